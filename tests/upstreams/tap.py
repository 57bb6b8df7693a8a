"""A wire tap: relays bytes between the gateway and an upstream, and keeps what both said.

It changes nothing and understands nothing while it relays, so that what an upstream does wrong
arrives as it was sent. What was said is taken apart afterwards.
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
    """A request and the answer to it."""

    path: str
    headers: list[str]
    asked: dict
    status: int | None
    body: bytes

    @property
    def events(self) -> list[dict]:
        """The JSON in the body's events, as far as there is any."""
        data = [line[5:].strip() for line in self.body.splitlines() if line.startswith(b"data:")]
        return [json.loads(text) for text in data if text.startswith(b"{") and text.endswith(b"}")]


class Tap:
    def __init__(self, host: str, port: int):
        self.upstream = (host, port)
        self.said: list[tuple[bytearray, bytearray]] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def exchanges(self) -> list[Exchange]:
        """All of them, in the order of their connections."""
        found = []
        for asked, answered in self.said:
            answers = Recorded(answered)
            for head, body in requests(bytes(asked)):
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
            kept = (bytearray(), bytearray())
            self.said.append(kept)
            threading.Thread(target=relay, args=(near, far, *kept), daemon=True).start()


def relay(near: socket.socket, far: socket.socket, asked: bytearray, answered: bytearray) -> None:
    """Passes bytes on until both sides have ended, each in the way that the other did."""
    ways = {near: (far, asked), far: (near, answered)}
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
        for end in (near, far):  # a reset, not an end, when they are closed
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
    """What `HTTPResponse` takes for a socket, from which several answers can be read."""

    def makefile(self, *_):
        return self

    def close(self) -> None:
        """Left open for the next answer."""


def next_answer(answers: Recorded) -> tuple[int | None, bytes]:
    """The next status and body in these bytes, as much as there is of them."""
    response = HTTPResponse(answers, method="POST")
    try:
        response.begin()
        return response.status, response.read()
    except IncompleteRead as cut:
        return response.status, cut.partial
    except HTTPException:
        return None, b""
