"""Gateways whose traces are looked at."""

import contextlib
import json
import os
import secrets
import subprocess
import time
import urllib.request

from openai import OpenAI

BIN = os.environ["TOLLGATE_BIN"]
MODEL = "svc-native-fast"
# It is offered the built-in tools.
TOOL_MODEL = "svc-basic"
SECRET = "a prompt that nobody else must read"
FAST = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "200"}


class Gateway:
    """A gateway of its own with these variables."""

    def __init__(self, folder, variables, config=None):
        folder.mkdir(exist_ok=True)
        self.log_file = folder / "log"
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "TOLLGATE_"))}
        command = ["serve", "--config", config] if config else ["dev", "--port", "0", "--operator-port", "0", "--data", folder]
        with open(self.log_file, "wb") as log:
            self.process = subprocess.Popen(
                [BIN, *command], env=plain | FAST | variables, stdout=subprocess.DEVNULL, stderr=log
            )
        if config:
            return
        env_file = folder / "dev.env"
        deadline = time.monotonic() + 30
        while not env_file.exists():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        self.settings = dict(line.split("=", 1) for line in env_file.read_text().splitlines() if "=" in line)
        self.client = OpenAI(
            api_key=self.settings["OPENAI_API_KEY"], base_url=self.settings["OPENAI_BASE_URL"], max_retries=0, timeout=30
        )

    def log(self):
        return self.log_file.read_text(errors="replace")

    def operator(self, path, method="GET", body=None):
        """What the operator API answers, as text."""
        url = self.settings["TOLLGATE_OPERATOR_URL"] + path
        headers = {"Authorization": f"Bearer {self.settings['TOLLGATE_OPERATOR_TOKEN']}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=10) as response:
            return response.read().decode()

    def has_dropped_spans(self):
        return "tollgate_dropped_spans_total 0\n" not in self.operator("/metrics")

    def stop(self):
        self.process.terminate()
        return self.process.wait(30)


def until(holds, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what()
        time.sleep(0.02)


@contextlib.contextmanager
def gateway(tmp_path, collector, **variables):
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    running = Gateway(tmp_path / "gateway", endpoint | variables)
    try:
        yield running
    finally:
        status = running.stop()
    assert status == 0, running.log()


def trace_parent(flags="01"):
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, {"traceparent": f"00-{trace}-{span}-{flags}"}


def ask(running, text=SECRET, headers=None, **more):
    more = {"model": MODEL, **more}
    return running.client.chat.completions.create(
        messages=[{"role": "user", "content": text}], extra_headers=headers or {}, **more
    )


def one(spans):
    assert len(spans) == 1, spans
    return spans[0]


CONFIG = """
[server]
listen = "127.0.0.1:0"
[operator]
listen = "127.0.0.1:0"
token_file = "operator.token"
[store]
url = "sqlite:data/tollgate.db"
"""


@contextlib.contextmanager
def provided(folder, collector, config, **variables):
    """A gateway with the providers and models of this configuration, and an account with credit."""
    folder.mkdir()
    (folder / "operator.token").write_text(secrets.token_hex(20))
    (folder / "tollgate.toml").write_text(CONFIG + config)
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    running = Gateway(folder, endpoint | variables, folder / "tollgate.toml")
    try:
        public, operator = listening(running)
        token = (folder / "operator.token").read_text()
        running.settings = {"TOLLGATE_OPERATOR_URL": operator, "TOLLGATE_OPERATOR_TOKEN": token}
        running.account = create(running, "/operator/accounts", email="ada@example.com", track="business", tier="flex")["id"]
        create(running, f"/operator/accounts/{running.account}/grants", amount="100", reason="test")
        key = create(running, f"/operator/accounts/{running.account}/keys", name="test")["key"]
        running.settings |= {"OPENAI_BASE_URL": f"{public}/v1", "OPENAI_API_KEY": key}
        running.client = OpenAI(api_key=key, base_url=f"{public}/v1", max_retries=0, timeout=30)
        yield running
    finally:
        status = running.stop()
    assert status == 0, running.log()


def create(running, path, **fields):
    return json.loads(running.operator(path, "POST", fields))


def listening(running):
    """The URLs in the line that says that the gateway is ready."""
    deadline = time.monotonic() + 30
    while True:
        for line in running.log().splitlines():
            if '"operator"' in line and "is ready" in line:
                fields = json.loads(line)
                fields = fields.get("fields", fields)
                return f"http://{fields['public']}", f"http://{fields['operator']}"
        assert running.process.poll() is None and time.monotonic() < deadline, running.log()
        time.sleep(0.05)
