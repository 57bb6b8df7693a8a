"""The commands of docs/QUICKSTART.md on a bare machine: the packed program, bash, curl and sleep, and nothing else.

The page's Ollama is a small server outside the root, and only the ports are others than on the page."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from running import free_ports

USER = (1000, 1000)
HOME = "home/ada"
TIMEOUT = 60
ANSWER = {
    "object": "list", "data": [{"id": "llama3.2", "object": "model"}],
    "id": "chatcmpl-1", "created": 1, "model": "llama3.2",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello Ada."}}],
    "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
}


class Ollama(BaseHTTPRequestHandler):
    """Answers the list of models and every completion with the same object."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def script(page, port, operator_port, ollama):
    commands = "".join(blocks(page, "console"))
    commands = re.sub(r"^\$ ", "", commands, flags=re.MULTILINE)
    for written, free in [("8080", port), ("9090", operator_port)]:
        commands = commands.replace(f"127.0.0.1:{written}", f"127.0.0.1:{free}")
    # Between starting the gateway and the next command a person takes longer than it does.
    live = f"curl -sf http://127.0.0.1:{port}/health/live >/dev/null"
    ready = f"tollgate.toml 2>log &\nfor try in {{1..300}}; do {live} && break; sleep 0.1; done\n"
    assert commands.count("tollgate.toml &\n") == 1, commands
    return f"""
trap 'kill $(jobs -p); wait' EXIT
export TOLLGATE__SERVER__LISTEN=127.0.0.1:{port} TOLLGATE__OPERATOR__LISTEN=127.0.0.1:{operator_port}
export TOLLGATE_OPERATOR_URL=http://127.0.0.1:{operator_port}
export TOLLGATE__PROVIDERS__OLLAMA__BASE_URL=http://127.0.0.1:{ollama}/v1
""" + commands.replace("tollgate.toml &\n", ready)


def run(root, unpacked):
    """Follows the page in this root, as an ordinary user in an empty folder."""
    for name in ["bash", "curl", "sleep"]:
        program = shutil.which(name)
        root.copy(Path(program).resolve(), root.path / "bin" / name)
        root.add_libraries(program)
    program = root.path / "usr/local/bin/tollgate"
    root.copy(unpacked / "bin/tollgate", program)
    root.add_libraries(program)
    home = root.path / HOME
    home.mkdir(parents=True)
    os.chown(home, *USER)
    page = (unpacked / "docs/QUICKSTART.md").read_text()
    with ThreadingHTTPServer(("127.0.0.1", 0), Ollama) as ollama:
        threading.Thread(target=ollama.serve_forever, daemon=True).start()
        commands = script(page, *free_ports(), ollama.server_port)
        process = root.start(["bash", "-euc", commands], user=USER, folder=f"/{HOME}", start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            said, errors = process.communicate(timeout=TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            ollama.shutdown()
    log = home / "log"
    log = log.read_text() if log.exists() else ""
    assert process.returncode == 0, f"exit code {process.returncode}\n{said}{errors}{log}"
    for words in ["tollgate.toml serves llama3.2", "provider `ollama`: answers", "Hello Ada.", "9.99997", "Everything adds up."]:
        assert words in said, f"{words}: {said}{errors}{log}"
    [shown] = blocks(page, "toml")
    written = tomllib.loads((home / "tollgate.toml").read_text())
    assert written["models"] == tomllib.loads(shown)["models"], written
    assert root.mode(f"{HOME}/operator.token") == ("0o600", *USER)
    assert (home / "data/tollgate.db").exists(), "the page's gateway has its data beside the file"
