"""What goes on around a victim while it writes: somebody who fsyncs on its volume, and somebody who looks on."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import redis

from loadtest.crash.victim import Victim

_POLL_S: Final = 0.01

_SIDE_WRITER: Final = """
import os, sys, time
side = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
while True:
    os.write(side, b"x" * 4096)
    os.fsync(side)
    time.sleep(0.002)
"""


class SideWriter:
    """A process that writes a little and fsyncs it, again and again: each time the file system commits what it knows of
    all files, also of those whose data has not arrived."""

    def __init__(self, path: Path) -> None:
        # -S -E: it needs nothing of ours, and starts in 15 ms without it.
        command = [sys.executable, "-S", "-E", "-c", _SIDE_WRITER, str(path)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class FsyncWatch:
    """How long the longest fsync of a server's log took, seen from outside every 10 ms (it may have been 10 ms longer
    or shorter). Stop it before the server dies, or after."""

    def __init__(self, victim: Victim) -> None:
        self._over = threading.Event()
        self._longest_ms = 0.0
        self._client = victim.client(socket_timeout=10.0)
        self._thread = threading.Thread(target=self._look_on, name="fsync watch", daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """The longest, in ms."""
        self._over.set()
        self._thread.join()
        self._client.close()
        return self._longest_ms

    def _look_on(self) -> None:
        since_s: float | None = None
        # A server that dies ends the watch; what was under way then counts for as long as it was seen.
        with suppress(redis.RedisError, OSError):
            while not self._over.wait(_POLL_S):
                pending = self._client.info("persistence").get("aof_pending_bio_fsync", 0)
                now_s = time.monotonic()
                if pending:
                    since_s = now_s if since_s is None else since_s
                    self._longest_ms = max(self._longest_ms, (now_s - since_s) * 1000)
                else:
                    since_s = None
                # Under `always` the main thread syncs, and says itself how long that took when it was over 10 ms.
                for name, _, _, longest_ms in self._client.latency_latest():
                    if name == b"aof-fsync-always":
                        self._longest_ms = max(self._longest_ms, float(longest_ms))
