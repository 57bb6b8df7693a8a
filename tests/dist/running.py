"""A gateway that runs in a root folder, as its unit or its image would start it."""

import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request


def free_ports():
    """Two ports of this machine that no program listens on."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


class Gateway:
    def __init__(self, root, program, command, user, environment=None):
        """Starts the command; only its ports are others than configured, because those may be in use on this machine."""
        self.root, self.program = root, program
        self.port, operator_port = free_ports()
        self.operator = {
            "TOLLGATE_OPERATOR_URL": f"http://127.0.0.1:{operator_port}",
            "TOLLGATE_OPERATOR_TOKEN_FILE": "/etc/tollgate/operator.token",
        }
        ports = {
            "TOLLGATE__SERVER__LISTEN": f"127.0.0.1:{self.port}",
            "TOLLGATE__OPERATOR__LISTEN": f"127.0.0.1:{operator_port}",
        }
        self.process = root.start(
            command,
            user=user,
            folder="/var/lib/tollgate",
            environment=ports | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def wait_until_ready(self, health=None):
        """Asks with the command of the program, or with this one, until the gateway is ready."""
        deadline = time.monotonic() + 30
        command = health or [self.program, "health"]
        environment = {"TOLLGATE_HEALTH_URL": f"http://127.0.0.1:{self.port}"}
        while True:
            assert self.process.poll() is None, f"the gateway ended: {self.process.stdout.read()}"
            asked = self.root.start(command, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            output, errors = asked.communicate()
            if asked.returncode == 0:
                assert output.strip() == "ready", output
                return
            assert time.monotonic() < deadline, f"the gateway was not ready after 30 s: {errors}"
            time.sleep(0.05)

    def command(self, *arguments, token=None):
        """The JSON that a command of an operator prints; run by root, who can read the token."""
        environment = dict(self.operator)
        if token:
            del environment["TOLLGATE_OPERATOR_TOKEN_FILE"]
            environment["TOLLGATE_OPERATOR_TOKEN"] = token
        return json.loads(self.root.run([self.program, *arguments, "--json"], environment=environment))

    def complete(self, key, model):
        """The JSON of a completion."""
        body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error.code}: {error.read().decode()}") from error

    def stop(self):
        """The log of the gateway, which must end cleanly on SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        log, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, f"exit code {self.process.returncode}: {log}"
        assert "panic" not in log, log
        return log
