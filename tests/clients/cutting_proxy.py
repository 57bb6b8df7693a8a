"""A proxy that cuts connections: at random bytes, or while the client waits for its response."""

import random
import socket
import threading
import time


class CuttingProxy:
    """Forwards bytes to the gateway until it cuts a connection in both directions.

    Each connection is cut after a random number of bytes of its responses, `longest` at most. With `before_response`, the
    first so many connections are cut while the client waits, and the others never.
    """

    def __init__(self, target: tuple[str, int], longest: int | None = None, before_response: int = 0):
        self.target, self.longest, self.left = target, longest, before_response
        self.connections = 0
        self.random = random.Random(20)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket):
        server = socket.create_connection(self.target)
        waits, self.left = self.left > 0, max(self.left - 1, 0)
        most = self.longest and self.random.randrange(1, self.longest)
        threading.Thread(target=forward, args=(client, server), daemon=True).start()
        if waits:
            time.sleep(0.3)
        else:
            forward(server, client, most)
        for end in (client, server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


def forward(source: socket.socket, sink: socket.socket, most: int | None = None):
    try:
        while most is None or most > 0:
            received = source.recv(4_096 if most is None else min(most, 4_096))
            if not received:
                return
            sink.sendall(received)
            most = most and most - len(received)
    except OSError:
        pass
