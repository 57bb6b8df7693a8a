"""A wire tap: relays bytes between the gateway and an upstream, and records both directions.

It neither changes nor parses anything while it relays, so that an upstream's faults arrive as they
were sent. Recordings are parsed afterwards.
"""

import io
import json
import select
import socket
import struct
import threading
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, IncompleteRead


@dataclass
class Exchange:
    """A request and its response."""

    path: str
    headers: list[str]
    request: dict
    status: int | None
    body: bytes

    @property
    def events(self) -> list[dict]:
        """The JSON of the body's events; other events are skipped."""
        data = [line[5:].strip() for line in self.body.splitlines() if line.startswith(b"data:")]
        return [json.loads(text) for text in data if text.startswith(b"{") and text.endswith(b"}")]


class Tap:
    def __init__(self, host: str, port: int):
        self.upstream = (host, port)
        self.records: list[tuple[bytearray, bytearray]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def exchanges(self) -> list[Exchange]:
        """All exchanges, in the order of their connections."""
        found = []
        for requested, replied in self.records:
            answers = Recorded(replied)
            for head, body in requests(bytes(requested)):
                first, *headers = head.decode().split("\r\n")
                sent = json.loads(body or b"{}")
                found.append(Exchange(first.split(" ")[1], headers, sent, *next_answer(answers)))
        return found

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.upstream)
            record_pair = (bytearray(), bytearray())
            self.records.append(record_pair)
            threading.Thread(target=relay, args=(near, far, *record_pair), daemon=True).start()


def relay(near: socket.socket, far: socket.socket, requested: bytearray, replied: bytearray) -> None:
    """Relays bytes until both sides have ended, and ends each side as the other did."""
    ways = {near: (far, requested), far: (near, replied)}
    open_ends = [near, far]
    try:
        while open_ends:
            for source in select.select(open_ends, [], [])[0]:
                sink, record = ways[source]
                if data := source.recv(65536):
                    record += data
                    sink.sendall(data)
                else:
                    sink.shutdown(socket.SHUT_WR)
                    open_ends.remove(source)
    except OSError:
        for end in (near, far):  # reset instead of an orderly close
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        near.close()
        far.close()


def requests(said: bytes):
    """Each request's head and body."""
    while said:
        head, _, rest = said.partition(b"\r\n\r\n")
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        yield head, rest[:length]
        said = rest[length:]


class Recorded(io.BytesIO):
    """A socket stand-in for `HTTPResponse`, from which several responses can be read."""

    def makefile(self, *_):
        return self

    def close(self) -> None:
        """Does nothing: stays open for the next response."""


def next_answer(answers: Recorded) -> tuple[int | None, bytes]:
    """Status and body of the next response in these bytes, as far as they are complete."""
    response = HTTPResponse(answers, method="POST")
    try:
        response.begin()
        return response.status, response.read()
    except IncompleteRead as cut:
        return response.status, cut.partial
    except HTTPException:
        return None, b""
