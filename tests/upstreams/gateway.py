"""A real `tollgate serve` in front of one upstream, with an account of its own."""

import json
import os
import secrets
import signal
import subprocess
import time
from decimal import Decimal
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

BINARY = os.environ["TOLLGATE_BIN"]
CREDIT = Decimal("10")
KEY = "sk-upstream"
"""The gateway's own key for the upstream."""
START_SECONDS = 30

SERVER = """
[server]
listen = "127.0.0.1:0"
shutdown_grace_seconds = 10
[operator]
listen = "127.0.0.1:0"
[store]
url = "sqlite:{folder}/tollgate.db"
durability = "process"
"""

PROVIDER = """
[providers.upstream]
kind = "{kind}"
base_url = "{base_url}"
api_key_env = "UPSTREAM_KEY"
timeouts = {{ connect_seconds = 2, first_byte_seconds = {timeout}, idle_seconds = {timeout} }}
[[deployments]]
model = "*"
provider = "upstream"
upstream_model = "{model}"
"""

opener = build_opener(ProxyHandler({}))


class Gateway:
    def __init__(self, folder: Path, providers: str, keys: dict[str, str]):
        """Starts a gateway with these providers and deployments, and the keys they name."""
        self.token, self.keys = secrets.token_hex(16), keys
        (folder / "tollgate.toml").write_text(SERVER.format(folder=folder) + providers)
        self.environment = {**os.environ, **keys, "TOLLGATE_OPERATOR_TOKEN": self.token}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            command = [BINARY, "serve", "--config", folder / "tollgate.toml"]
            self.process = subprocess.Popen(command, stderr=log, env=self.environment)
        ready = self._ready()
        self.url = f"http://{ready['public']}"
        self.operator_url = self.environment["TOLLGATE_OPERATOR_URL"] = f"http://{ready['operator']}"

    def _ready(self) -> dict:
        """The fields of the log line with the addresses."""
        deadline = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            for line in self.log.read_text().splitlines():
                if " is ready at " in line:
                    return json.loads(line)
            time.sleep(0.001)  # so that a stop can follow at once
        self.process.kill()
        raise RuntimeError(f"the gateway did not start: {self.log.read_text()}")

    def open_account(self) -> str:
        """Creates the account and returns its key."""
        account = {"email": "upstream@example.com", "track": "business", "tier": "flex"}
        self.account_id = self.operator("accounts", account)["id"]
        self.operator(f"accounts/{self.account_id}/grants", {"amount": str(CREDIT)})
        return self.operator(f"accounts/{self.account_id}/keys", {"name": "upstream tests"})["key"]

    def account(self) -> dict:
        return self.operator(f"accounts/{self.account_id}")

    def settled_account(self) -> dict:
        """The account once nothing is held; fails if a hold stays."""
        deadline = time.monotonic() + 5
        while Decimal((account := self.account())["held"]) != 0:
            assert time.monotonic() < deadline, f"{account['held']} is still held"
            time.sleep(0.02)
        return account

    def charges(self) -> list[dict]:
        """The charges, oldest first."""
        return self.operator(f"accounts/{self.account_id}/usage")["data"][::-1]

    def prices(self, model: str) -> dict[str, Decimal]:
        """The published prices in US dollars per token."""
        with opener.open(f"{self.url}/v1/models/{model}", timeout=10) as response:
            listed = json.load(response)
        return {name: Decimal(price) for name, price in listed["pricing"].items()}

    def operator(self, path: str, body: dict | None = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}"}
        request = Request(f"{self.operator_url}/operator/{path}", data=data, headers=headers)
        with opener.open(request, timeout=10) as response:
            return json.load(response)

    def audit(self) -> None:
        """Asserts that the ledger adds up, with the gateway's own command."""
        audit = subprocess.run([BINARY, "audit"], env=self.environment, capture_output=True, text=True)
        assert audit.returncode == 0, audit.stdout + audit.stderr

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(20)
        finally:
            self.process.kill()
        log = self.log.read_text()
        assert status == 0, log
        assert "panic" not in log, log
        for secret in (self.token, *self.keys.values()):
            assert secret not in log, "the log holds a secret"
