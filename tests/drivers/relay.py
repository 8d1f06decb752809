"""A relay in front of a real Redis that sees every byte, and cuts or withholds them where a test says."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CHUNK_BYTES = 1 << 20


class Relay:
    """Forwards connections on a unix socket, or on TCP with TLS, to the unix socket of a server."""

    def __init__(self, target: str, listener: socket.socket, url: str, tls: ssl.SSLContext | None = None) -> None:
        self.url = url
        self.connections = 0
        self.requests: list[bytes] = []  # what clients sent, one item per arrival
        self.refuse = 0  # so many connections are accepted and closed at once
        self.garbage = b""  # stands before the next reply
        self._reply_bytes_left: int | None = None
        self._request_bytes_left: int | None = None
        self._target = target
        self._listener = listener
        self._tls = tls
        self._open: list[socket.socket] = []
        self._muted: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after_reply_bytes(self, count: int) -> None:
        """Let `count` more bytes of replies through, then break the connection; once."""
        self._reply_bytes_left = count

    def cut_after_request_bytes(self, count: int) -> None:
        """Let `count` more bytes of requests through, then break the connection; once."""
        self._request_bytes_left = count

    def cut(self) -> None:
        """Break every connection."""
        with self._lock:
            broken, self._open = self._open, []
        for sock in broken:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def mute(self) -> None:
        """Swallow what servers reply on the connections of now, as a dead network would."""
        with self._lock:
            self._muted = set(self._open)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                if self.refuse > 0:
                    self.refuse -= 1
                    client.close()
                    continue
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            with client, socket.socket(socket.AF_UNIX) as server:
                server.connect(self._target)
                with self._lock:
                    self._open += [client, server]
                back = threading.Thread(target=self._replies, args=(server, client), daemon=True)
                back.start()
                self._requests(client, server)
                back.join()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                self.requests.append(data)
                if self._request_bytes_left is not None:
                    server.sendall(data[: self._request_bytes_left])
                    self._request_bytes_left -= len(data)
                    if self._request_bytes_left <= 0:
                        self._request_bytes_left = None
                        break
                    continue
                server.sendall(data)
        _end(client, server)

    def _replies(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            # A reply has to come before it can be cut: a cut is asked for while nothing is under way, and a connection
            # that broke then would be an idle one, which drivers replace without a word.
            while data := server.recv(_CHUNK_BYTES):
                if client in self._muted:
                    continue
                cut = False
                if self._reply_bytes_left is not None:
                    data = data[: self._reply_bytes_left]
                    self._reply_bytes_left -= len(data)
                    cut = self._reply_bytes_left == 0
                garbage, self.garbage = self.garbage, b""
                client.sendall(garbage + data)
                if cut:
                    self._reply_bytes_left = None
                    break
        _end(client, server)


def _end(*sockets: socket.socket) -> None:
    for sock in sockets:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(target: str) -> Iterator[Relay]:
    """A relay on a unix socket of its own to the server at the unix socket `target`."""
    with tempfile.TemporaryDirectory(prefix="rtmem-relay-") as folder:
        path = Path(folder) / "s"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(64)
        relay = Relay(target, listener, f"unix://{path}")
        try:
            yield relay
        finally:
            relay.close()


@contextmanager
def tls_relay_to(target: str, certificate: Path, key: Path) -> Iterator[Relay]:
    """A relay that speaks TLS on a port of 127.0.0.1, for servers built without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    relay = Relay(target, listener, f"rediss://127.0.0.1:{listener.getsockname()[1]}", context)
    try:
        yield relay
    finally:
        relay.close()
