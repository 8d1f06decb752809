"""After a disk failed under a running server: have its log written anew, as soon as the disk takes writes again.

What Redis does by itself, with `appendfsync everysec` (8.2):

    a write() of the log fails   writes are refused (MISCONF); it tries again every second and goes on when it can
    an fsync fails               writes are refused, for ever: nothing new is written, so nothing is fsynced again

And in both cases the log is not to be trusted afterwards: Linux reports a failed fsync once, marks the pages clean and
may never write them, so a later power cut leaves a hole with whole commands behind it. All of it is still in memory. So
the rule is one: after a failure that was seen, a rewrite (BGREWRITEAOF) that began later has to succeed. It also ends
the refusal.

Under `always` the server exits at the first failure instead; whoever starts it again says so here (`owe`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

import redis

from rtmem.server import durable_file

SEEN_AT_LEAST_S: Final = 2.0
"""How long a failure stays to be seen. A rewrite ends the error that INFO shows, and whoever waits for the proof of a
write (operations/durability_proof.py) looks for that error every 50 ms, or twice a second beside a turn."""

PAUSE_S_MIN: Final = 1.0
PAUSE_S_MAX: Final = 8.0  # after a try that failed, doubled each time
_TRIAL_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class Recovery:
    """What the log of one directory has gone through, in all lives of its server. Call `look` twice a second."""

    data_dir: Path
    clock: Callable[[], float] = time.monotonic
    _failed_s: float = -inf  # the last look that saw a failure
    _asked_s: float = -inf  # when the last rewrite was asked for
    _next_s: float = -inf  # not before
    _pause_s: float = PAUSE_S_MIN

    def look(self, client: redis.Redis) -> str:
        """Look, and ask for a rewrite where one is due. Returns what is worth telling, usually nothing.

        A server that does not answer is somebody else's business.
        """
        try:
            return self._look(client, client.info("persistence"))
        except (redis.ConnectionError, redis.TimeoutError):
            return ""

    def owe(self) -> None:
        """The server has died of its disk: its log, too, has to be written anew."""
        self._failed_s = self.clock()
        self._next_s, self._pause_s = -inf, PAUSE_S_MIN

    def _look(self, client: redis.Redis, found: Mapping[str, object]) -> str:
        now_s = self.clock()
        recovering = self._failed_s > -inf
        if found.get("aof_last_write_status") == "err":
            self._failed_s = now_s
            if not recovering:
                self._next_s = now_s + SEEN_AT_LEAST_S
                return (
                    f"the disk under the log in {self.data_dir} has failed ({_reason(client)}): Redis refuses writes "
                    "until it works again; the log is then written anew"
                )
        if not recovering or found.get("aof_rewrite_in_progress") or found.get("aof_rewrite_scheduled"):
            return ""
        if self._asked_s > self._failed_s:
            if found.get("aof_last_bgrewrite_status") == "ok":
                self._failed_s, self._pause_s = -inf, PAUSE_S_MIN
                return "the disk takes writes again, and the log was written anew: nothing is missing in it"
            self._failed_s = now_s
        if now_s >= self._next_s:
            self._next_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
            if self._disk_takes_writes() and _asked_for_rewrite(client):
                self._asked_s = self.clock()
        return ""

    def _disk_takes_writes(self) -> bool:
        """A try that costs little: a rewrite forks the server, and may write gigabytes before it fails."""
        trial = self.data_dir / "aof.trial"
        try:
            durable_file.replace(trial, bytes(_TRIAL_BYTES))
            trial.unlink()
        except OSError:
            return False
        return True


def _reason(client: redis.Redis) -> str:
    """What the operating system said, which only the refusal of a command tells."""
    try:
        client.ping()
    except redis.ResponseError as exc:
        return str(exc).rpartition(": ")[2]
    return "and works again"


def _asked_for_rewrite(client: redis.Redis) -> bool:
    try:
        client.bgrewriteaof()
    except redis.ResponseError:
        return False  # another one has just begun: from before, so it proves nothing
    return True
