"""A socket between saver and Redis that can be cut at a chosen moment."""

from __future__ import annotations

import select
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

Cut = Literal["before", "torn", "after"]
"""before: the server never hears of the call. torn: it gets half of its bytes. after: it does it, the reply is lost."""

_QUIET_S = 0.01  # a sender that pauses this long has sent its whole batch


class Scissors:
    """Forwards everything; `arm` decides about the next batch that calls a function."""

    def __init__(self, path: str, upstream: str) -> None:
        self.url = f"unix://{path}?db=0"
        self.cuts = 0
        self._upstream = upstream
        self._armed: Cut | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, cut: Cut) -> None:
        self._armed = cut

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._upstream)
        with client, server, suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    if ready is server:
                        received = server.recv(1 << 20)
                        if not received:
                            return
                        client.sendall(received)
                        continue
                    # Unarmed, whatever has arrived goes on at once.
                    batch = _whole(client) if self._armed else client.recv(1 << 20)
                    if not batch:
                        return
                    if self._armed is None or b"FCALL" not in batch:
                        server.sendall(batch)
                        continue
                    cut, self._armed = self._armed, None
                    self.cuts += 1
                    if cut == "torn":
                        server.sendall(batch[: len(batch) // 2])
                    elif cut == "after":
                        server.sendall(batch)
                        _whole(server)
                    return


def _whole(sender: socket.socket) -> bytes:
    received = sender.recv(1 << 20)
    while received and select.select([sender], [], [], _QUIET_S)[0]:
        more = sender.recv(1 << 20)
        if not more:
            break
        received += more
    return received


@contextmanager
def between(url: str) -> Iterator[Scissors]:
    """Scissors in front of the server at `url` (unix://)."""
    with tempfile.TemporaryDirectory(prefix="rtmem-test-") as folder:
        scissors = Scissors(str(Path(folder) / "cut.sock"), url.removeprefix("unix://").partition("?")[0])
        try:
            yield scissors
        finally:
            scissors.close()
