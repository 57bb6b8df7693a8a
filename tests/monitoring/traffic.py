"""A gateway that has seen everything that the dashboard shows, so that all of its metrics exist."""

import http.server
import json
import os
import secrets
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

CONFIG = """
[server]
listen = "127.0.0.1:0"
[operator]
listen = "127.0.0.1:0"
[store]
url = "sqlite:tollgate.db"
durability = "process"
[limits]
rpm = 1000
[providers.simulator]
kind = "simulator"
[providers.boastful]
kind = "openai"
base_url = "http://127.0.0.1:{port}/v1"
[[deployments]]
model = "*"
provider = "simulator"
[[models]]
id = "too-cheap"
provider = "simulator"
input = "0.10"
output = "0.40"
cost = {{ input = "10.00", output = "40.00" }}
[[models]]
id = "boastful"
provider = "boastful"
input = "0.10"
output = "0.40"
"""
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Boastful(http.server.BaseHTTPRequestHandler):
    """A provider that reports far more tokens than a request could use."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        usage = {"prompt_tokens": 9_000, "completion_tokens": 1, "total_tokens": 9_001}
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
        body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        body = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Gateway:
    """A gateway with its provider, until the end of the `with`."""

    def __init__(self, binary, folder):
        self.provider = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Boastful)
        threading.Thread(target=self.provider.serve_forever, daemon=True).start()
        config = Path(folder) / "tollgate.toml"
        config.write_text(CONFIG.format(port=self.provider.server_address[1]))
        self.token = secrets.token_hex(32)
        self.log = Path(folder) / "log"
        with self.log.open("wb") as log:
            environment = os.environ | {"TOLLGATE_OPERATOR_TOKEN": self.token}
            self.process = subprocess.Popen([binary, "serve", "--config", config], stderr=log, stdout=log, env=environment)
        self.public, self.operator = self._addresses()

    def _addresses(self):
        """The addresses in the line that says that the gateway is ready."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            for line in self.log.read_text().splitlines():
                if '"operator"' in line and "is ready" in line:
                    fields = json.loads(line)
                    fields = fields.get("fields", fields)
                    return f"http://{fields['public']}", f"http://{fields['operator']}"
            time.sleep(0.05)
        raise AssertionError(f"the gateway did not start: {self.log.read_text()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.provider.shutdown()
        assert self.process.returncode == 0, self.log.read_text()

    def operate(self, method, path, body=None):
        return json.loads(self._send(f"{self.operator}{path}", self.token, method, body)[1])

    def metrics(self, accept=None):
        """The response of /metrics, as text, with its content type."""
        headers = {"Accept": accept} if accept else {}
        head, body = self._send(f"{self.operator}/metrics", self.token, "GET", None, headers)
        return head["Content-Type"], body.decode()

    def chat(self, key, model, message="Hello!", headers=None, **fields):
        """Sends a message; the status of the response is of no interest."""
        body = {"model": model, "messages": [{"role": "user", "content": message}]} | fields
        try:
            self._send(f"{self.public}/v1/chat/completions", key, "POST", body, headers or {})
        except urllib.error.HTTPError as error:
            error.read()

    def _send(self, url, token, method, body, headers=None):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} | (headers or {})
        data = None if body is None else json.dumps(body).encode()
        with opener.open(urllib.request.Request(url, data, headers, method=method), timeout=30) as response:
            return response.headers, response.read()

    def see_everything(self):
        """Makes at least one event for each metric that counts events."""
        account = self.operate("POST", "/operator/accounts", {"email": "ada@example.com", "track": "business", "tier": "flex"})["id"]
        self.operate("POST", f"/operator/accounts/{account}/grants", {"amount": "10.00"})
        key = self.operate("POST", f"/operator/accounts/{account}/keys", {"name": "a"})
        secret = key["key"]
        for headers in [{"Idempotency-Key": "once"}] * 2 + [{}]:
            self.chat(secret, "svc-standard", headers=headers)
        self.chat(secret, "svc-standard", stream=True)
        self.chat(secret, "svc-standard", "[[sim status=529]]")
        self.chat(secret, "svc-standard", "[[sim no_usage]]")
        self.chat(secret, "svc-standard", '[[sim tool=convert_units {"value":"1","from":"ether","to":"wei"}]]')
        self.chat(secret, "svc-hybrid-cost")
        self.chat(secret, "too-cheap")
        self.chat(secret, "boastful")
        other = self.operate("POST", f"/operator/accounts/{account}/keys", {"name": "b"})
        budget = {"account": account, "scope": "key", "id": other["id"], "amount": "0.000001", "period": "day"}
        self.operate("PUT", "/operator/budgets", budget)
        self.chat(other["key"], "svc-standard")
