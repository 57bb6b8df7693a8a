"""The upstreams: third-party model servers, how each is started, and what each supports.

A server is a program; a row of `ROWS` is one of the APIs it offers, through one kind of provider.
The tests run for every row. Another API of the same server is another row; another kind of
provider is described in kinds.py.
"""

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from kinds import ANTHROPIC, GEMINI, OPENAI, Kind

HERE = Path(__file__).resolve().parent
START_SECONDS = 60

opener = build_opener(ProxyHandler({}))


# Programs


@dataclass(frozen=True)
class Fault:
    """A fault that an upstream can be configured to have, and its expected effect on the caller.

    `ends`: `answered`; `refused` with 502, and `code` for the upstream's own status; `interrupted`
    in the middle of a stream.
    """

    name: str
    ends: str
    stream: bool
    order: dict = field(default_factory=dict)
    prompt: str = "Hello!"
    code: str | None = None


class Server:
    """A program that listens on a free port and prints its address."""

    command: list
    address = r"(http://127\.0\.0\.1:\d+)"
    process = None

    def start(self, folder: Path) -> None:
        log = folder / f"{type(self).__name__}.log"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                self.command, cwd=HERE, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_SECONDS
        while not (found := re.search(self.address, log.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.command} did not start: {log.read_text()}")
            time.sleep(0.05)
        self.url = found[1]
        parts = urlsplit(self.url)
        self.host, self.port = parts.hostname, parts.port

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def send(self, method: str, path: str, body: dict | None = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(self.url + path, data=data, method=method, headers=headers)
        with opener.open(request, timeout=10) as response:
            response.read()

    def order(self, order: dict) -> None:
        """Configures a behaviour, in the server's own format, until it is reset."""
        raise NotImplementedError

    def reset(self) -> None:
        """Restores normal behaviour."""

    def faults(self, unworded: int) -> list[Fault]:
        """The faults that it supports; `unworded` chunks of its streams come before the first word."""
        raise NotImplementedError


class LlamaCpp(Server):
    """llama.cpp's own server with a small real model, on one thread."""

    command = [sys.executable, HERE / "../../scripts/model-server", "--max-tokens", "64"]


def stream_fault(kind: str, after: int, **more) -> dict:
    return {"type": "stream_fault", "kind": kind, "after_chunks": after, **more}


def failure(status: int, **more) -> dict:
    return {"type": "fail", "status": status, **more}


class Llmock(Server):
    """A mock of ten providers, from PyPI."""

    command = [Path(sys.executable).with_name("llmock"), "serve", "--port", "0"]
    address = r"running on (http://127\.0\.0\.1:\d+)"

    def order(self, order: dict) -> None:
        self.send("POST", "/_llmock/scenario", {"behaviors": [{**order, "times": None}]})

    def reset(self) -> None:
        self.send("POST", "/_llmock/reset")

    def faults(self, unworded: int) -> list[Fault]:
        return [
            Fault("400", "refused", False, failure(400), code="400"),
            Fault("401", "refused", False, failure(401), code="401"),
            Fault("429", "refused", False, failure(429, retry_after=7), code="429"),
            Fault("500", "refused", False, failure(500), code="500"),
            Fault("529", "refused", True, failure(529), code="529"),
            Fault("429 to a stream", "refused", True, failure(429, retry_after=7), code="429"),
            Fault("slow", "answered", False, {"type": "delay", "seconds": 0.5}),
            Fault("slow first word", "answered", True, {"type": "slow_first_token", "seconds": 0.5}),
            Fault("too slow", "refused", False, {"type": "delay", "seconds": 5}),
            Fault("disconnect before a word", "refused", True, stream_fault("disconnect", unworded)),
            Fault("disconnect", "interrupted", True, stream_fault("disconnect", unworded + 2)),
            Fault("clean end before a word", "refused", True, stream_fault("truncate", unworded)),
            Fault("clean end", "interrupted", True, stream_fault("truncate", unworded + 2)),
            Fault("malformed chunk", "interrupted", True, stream_fault("malformed", unworded + 2)),
            Fault("stall", "interrupted", True, stream_fault("stall", unworded + 2, stall_seconds=5)),
        ]


class Aimock(Server):
    """A mock of many providers, from npm; its responses are in aimock.json.

    So are its token counts, because as Anthropic and as Gemini it counts nothing by default.
    """

    command = [
        HERE / "node_modules/.bin/node", HERE / "node_modules/@copilotkit/aimock/dist/cli.js",
        "--port", "0", "--fixtures", HERE / "aimock.json", "--chunk-size", "5", "--strict",
    ]
    address = r"listening on (http://127\.0\.0\.1:\d+)"

    def order(self, order: dict) -> None:
        self.send("POST", "/__aimock/chaos", order)

    def reset(self) -> None:
        self.send("DELETE", "/__aimock/chaos")

    def faults(self, unworded: int) -> list[Fault]:
        return [
            Fault("500", "refused", False, {"dropRate": 1}, code="500"),
            Fault("429", "refused", False, {"rateLimitRate": 1}, code="429"),
            Fault("429 to a stream", "refused", True, {"rateLimitRate": 1}, code="429"),
            Fault("broken JSON", "refused", False, {"malformedRate": 1}),
            Fault("broken JSON to a stream", "refused", True, {"malformedRate": 1}),
            Fault("no answer", "refused", False, {"disconnectRate": 1}),
            Fault("no answer to a stream", "refused", True, {"disconnectRate": 1}),
            Fault("slow", "answered", True, {"latencyMs": 500}),
            Fault("too slow", "refused", False, {"latencyMs": 5000}),
            Fault("cut short", "interrupted", True, prompt="Cut it short."),
            Fault("disconnect", "interrupted", True, prompt="Break the connection."),
        ]


# Rows


@dataclass(frozen=True)
class Row:
    name: str
    server: Server
    kind: Kind
    """The kind of provider in the configuration."""
    path: str
    """The path of the API: `base_url` without the address."""
    model: str
    real: bool = False
    """Whether a real model responds: it respects stop sequences, and may or may not call a tool."""
    to_length: dict = field(default_factory=dict)
    """The order that makes a mock report that its response reached `max_tokens`."""
    details: str = ""
    """A prompt whose response reports cached and reasoning tokens, if there is one."""
    faults: bool = False
    """Whether the server's faults are tested with this API."""
    unworded: int = 1
    """Number of chunks of its streams before the first word."""


LLAMA, LLMOCK, AIMOCK = LlamaCpp(), Llmock(), Aimock()
CUT = {"type": "reply", "text": "One two three four", "finish_reason": "length"}

ROWS = [
    Row("llama.cpp", LLAMA, OPENAI, "/v1", "smollm2", real=True),
    Row("llama.cpp-anthropic", LLAMA, ANTHROPIC, "/v1", "smollm2", real=True),
    Row("llmock", LLMOCK, OPENAI, "/v1", "gpt-5-mini", to_length=CUT, faults=True),
    Row("llmock-groq", LLMOCK, OPENAI, "/groq/openai/v1", "llama-3.3-70b-versatile", to_length=CUT),
    Row("llmock-mistral", LLMOCK, OPENAI, "/mistral/v1", "mistral-large-latest", to_length=CUT),
    Row("llmock-together", LLMOCK, OPENAI, "/together/v1", "meta-llama/Llama-3-8b", to_length=CUT),
    Row(
        "llmock-anthropic", LLMOCK, ANTHROPIC, "/anthropic/v1", "claude-sonnet-4-6",
        to_length=CUT, faults=True, unworded=3,
    ),
    Row(
        "llmock-gemini", LLMOCK, GEMINI, "/gemini/v1beta", "gemini-2.5-pro",
        to_length=CUT, faults=True, unworded=0,
    ),
    Row("aimock", AIMOCK, OPENAI, "/v1", "gpt-5-mini", faults=True),
    Row("aimock-openrouter", AIMOCK, OPENAI, "/api/v1", "vendor/model", details="Remember this."),
    Row("aimock-anthropic", AIMOCK, ANTHROPIC, "/v1", "claude-sonnet-4-6", faults=True),
    Row("aimock-gemini", AIMOCK, GEMINI, "/v1beta", "gemini-3-flash", faults=True),
]
