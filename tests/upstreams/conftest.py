from dataclasses import dataclass

import pytest
from gateway import KEY, PROVIDER, Gateway
from kinds import UpstreamRequest
from openai import OpenAI
from tap import Exchange, Tap
from upstreams import Row, Server


@dataclass
class Setup:
    """The setup of a test: an upstream, a wire tap, a gateway in front of it, and a client."""

    row: Row
    tap: Tap
    gateway: Gateway
    client: OpenAI

    def exchanges(self) -> list[Exchange]:
        """The recorded exchanges between the gateway and the upstream."""
        return self.tap.exchanges()

    def first_request(self) -> UpstreamRequest:
        """The gateway's first request to the upstream."""
        return self.row.kind.read_request(self.exchanges()[0])


def pytest_collection_modifyitems(items):
    """Groups tests by server: servers are tested in parallel, each by one test at a time, because its faults affect all."""
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
    """Sets up a gateway in front of a row, with this many seconds as timeouts of the upstream.

    Each test has its own gateway: its one account has all the credit, and earlier tests have no
    effect on its circuit breakers.
    """
    setups = []

    def set_up(row: Row, timeout: int = 60) -> Setup:
        server = started(row.server)
        server.reset()
        tap = Tap(server.host, server.port)
        base_url = f"http://127.0.0.1:{tap.port}{row.path}"
        providers = PROVIDER.format(
            kind=row.kind.name, base_url=base_url, model=row.model, timeout=timeout
        )
        gateway = Gateway(tmp_path, providers, {"UPSTREAM_KEY": KEY})
        setups.append((server, tap, gateway))
        client = OpenAI(
            base_url=f"{gateway.url}/v1", api_key=gateway.open_account(), max_retries=0, timeout=60
        )
        return Setup(row, tap, gateway, client)

    yield set_up
    for server, tap, gateway in setups:
        server.reset()
        tap.close()
        gateway.stop()
