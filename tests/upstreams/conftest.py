from dataclasses import dataclass

import pytest
from gateway import KEY, PROVIDER, Gateway
from kinds import Asked
from openai import OpenAI
from tap import Exchange, Tap
from upstreams import Row, Server


@dataclass
class Desk:
    """What a test works with: an upstream, a tap on its wire, a gateway before it, and a client."""

    row: Row
    tap: Tap
    gateway: Gateway
    client: OpenAI

    def exchanges(self) -> list[Exchange]:
        """What the gateway and the upstream said to each other."""
        return self.tap.exchanges()

    def asked(self) -> Asked:
        """What the gateway asked the upstream for at first."""
        return self.row.kind.asked(self.exchanges()[0])


def pytest_collection_modifyitems(items):
    """Servers are tested beside each other, each by one test at a time: what one is told to do wrong, it does for all."""
    for item in items:
        row = item.callspec.params.get("row") if hasattr(item, "callspec") else None
        group = type(row.server).__name__ if row else "no server"
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """Starts a server when the first test needs it; stops all of them after the last test."""
    folder, running = tmp_path_factory.mktemp("upstreams"), []

    def start(server: Server) -> Server:
        if server not in running:
            server.start(folder)
            running.append(server)
        return server

    yield start
    for server in running:
        server.stop()


@pytest.fixture
def at(started, tmp_path):
    """Sets up a desk before a row, with so many seconds of patience for the upstream.

    Each test has a gateway of its own: its one account is all the money there is, and what an
    earlier test made of the upstream is forgotten.
    """
    open_desks = []

    def set_up(row: Row, patience: int = 60) -> Desk:
        server = started(row.server)
        server.reset()
        tap = Tap(server.host, server.port)
        base_url = f"http://127.0.0.1:{tap.port}{row.path}"
        providers = PROVIDER.format(
            kind=row.kind.name, base_url=base_url, model=row.model, patience=patience
        )
        gateway = Gateway(tmp_path, providers, {"UPSTREAM_KEY": KEY})
        open_desks.append((server, tap, gateway))
        client = OpenAI(
            base_url=f"{gateway.url}/v1", api_key=gateway.open_account(), max_retries=0, timeout=60
        )
        return Desk(row, tap, gateway, client)

    yield set_up
    for server, tap, gateway in open_desks:
        server.reset()
        tap.close()
        gateway.stop()
