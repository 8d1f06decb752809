"""Brings back an embedded Redis that died under a gateway. One that was stopped on purpose stays stopped."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

from rtmem.cli import screen
from rtmem.errors import RtmemError
from rtmem.server import embedded
from rtmem.server.embedded import Embedded
from rtmem.settings import Server

LOOK_INTERVAL_S: Final = 0.5
RETRY_INTERVAL_S: Final = 10.0  # after a start that failed


class Supervisor:
    """Holds a share in the embedded Redis for the length of a with block, and starts it again when it dies."""

    def __init__(self, settings: Server, share: Embedded) -> None:
        self._settings = settings
        self._share = share
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="redis-supervisor", daemon=True)

    def _watch(self) -> None:
        interval_s = LOOK_INTERVAL_S
        while not self._ended.wait(interval_s):
            interval_s = LOOK_INTERVAL_S
            if embedded.running_url(self._settings) is not None:
                continue
            # Redis removes its pid file when it is told to end, and leaves it when it is killed.
            if not (self._share.data_dir / "redis.pid").exists():
                screen.note("(embedded Redis was stopped; end this with Ctrl-C and start it again)")
                return
            try:
                again = embedded.start(self._settings)
            except RtmemError as exc:
                screen.error(exc)
                interval_s = RETRY_INTERVAL_S
                continue
            self._share.release()
            self._share = again
            screen.note("(embedded Redis had died and was started again)")
            for sentence in again.report:
                screen.note(f"({sentence})")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        ended = self._share.release()
        if ended:
            screen.note("(embedded Redis stopped, its data is kept)")
        elif embedded.running_url(self._settings) is not None:
            screen.note("(embedded Redis is still in use)")
