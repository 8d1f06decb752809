"""Brings back an embedded Redis that died under a gateway, and its log after its disk failed.

One that was stopped on purpose stays stopped.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

import msgspec

from rtmem.cli import screen
from rtmem.errors import DataDirectoryError, RtmemError
from rtmem.server import address, diagnosis, directory, embedded
from rtmem.server.embedded import Embedded
from rtmem.server.recovery import Recovery
from rtmem.settings import Server

LOOK_INTERVAL_S: Final = 0.5
RETRY_INTERVAL_S_MAX: Final = 5.0
"""Between two starts, after several that did not last; also how long one has to last to be called a success. Under
`durable` a server on a broken disk dies again at its first write."""

_ANSWER_TIMEOUT_S: Final = 2.0


def what_is_kept(settings: Server) -> str:
    """What a stop of the embedded Redis leaves, in words."""
    if embedded.profile(settings) == "ephemeral":
        return "and nothing is kept: it ran with profile ephemeral"
    return "its data is kept"


class Supervisor:
    """Holds a share in the embedded Redis for the length of a with block, and starts it again when it dies."""

    def __init__(self, settings: Server, share: Embedded) -> None:
        self._settings = settings
        self._share = share
        self._layout = directory.locate(str(share.data_dir))
        self._recovery = Recovery(share.data_dir)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="redis-supervisor", daemon=True)

    def _watch(self) -> None:
        pause_s = 0.0
        while True:
            lived_s = self._look_after_it()
            if self._ended.is_set():
                return
            # Redis removes its pid file when it is told to end, and leaves it when it is killed.
            if not self._layout.pid.exists():
                screen.note("(embedded Redis was stopped; end this with Ctrl-C and start it again)")
                return
            lasted = lived_s > RETRY_INTERVAL_S_MAX
            pause_s = 0.0 if lasted else min(max(2 * pause_s, LOOK_INTERVAL_S), RETRY_INTERVAL_S_MAX)
            if self._ended.wait(pause_s):
                return
            self._start_again()

    def _look_after_it(self) -> float:
        """Returns when it has died, or when this ends: how long it lived, in seconds."""
        began_s = time.monotonic()
        with address.client(self._layout, _ANSWER_TIMEOUT_S) as client:
            while self._lives():
                if told := self._recovery.look(client):
                    screen.note(f"({told})")
                if self._ended.wait(LOOK_INTERVAL_S):
                    break
        return time.monotonic() - began_s

    def _lives(self) -> bool:
        try:
            return embedded.running_url(self._settings) is not None
        except DataDirectoryError:
            return True  # nobody can tell: the disk may have become read-only. Nothing could be started on it either.

    def _start_again(self) -> None:
        cause = diagnosis.cause_of_death(self._layout.log)
        if cause.kind == "disk":
            self._recovery.owe()
        try:
            # Not with less durability than it had, when the settings leave the profile open.
            settings = msgspec.structs.replace(self._settings, profile=self._share.profile)
            again = embedded.start(settings)
        except RtmemError as exc:
            screen.error(exc)
            screen.note("(embedded Redis has died; it is tried again)")
            return
        self._share.release()
        self._share = again
        why = "" if cause.kind == "unknown" else f": {cause.meaning}"
        screen.note(f"(embedded Redis had died and was started again{why})")
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
            screen.note(f"(embedded Redis stopped, {what_is_kept(self._settings)})")
        elif embedded.running_url(self._settings) is not None:
            screen.note("(embedded Redis is still in use)")
