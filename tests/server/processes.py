"""Servers and other processes for the tests of sharing: real ones, because locks end with processes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.server import embedded
from rtmem.settings import Server

MAXMEMORY_BYTES = 256 * 1024**2

_PROGRAM = """
import sys
from rtmem.server import embedded
from rtmem.settings import Server

sys.stdin.readline()  # the starting shot
server = embedded.start(Server(data_dir=sys.argv[1], profile=sys.argv[2], maxmemory_bytes=256 * 1024**2))
print(server.pid, flush=True)
sys.stdin.readline()
print(server.release(), flush=True)
"""


class Sharer:
    """A process that takes a share in the server of a data directory when it is told to."""

    def __init__(self, data_dir: Path, profile: str = "balanced") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(data_dir), profile],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def go(self) -> None:
        """Let it start; does not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        """As `kill -9` and as a crash would: no clean-up of any kind."""
        self.process.kill()
        self.process.communicate()


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until `condition` holds; fail when it has not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{condition} has not become true within {timeout_s} s"
        time.sleep(0.005)


KEYS_TO_LOAD = 200


def fill_for_loading(server: embedded.Embedded) -> None:
    """Put KEYS_TO_LOAD keys into the base file of the AOF, which Redis reads key by key as `slow_loading` says."""
    with client(server) as connection:
        connection.config_set("rdbcompression", "no")  # Redis looks up every so many bytes
        for number in range(KEYS_TO_LOAD):
            connection.set(f"k{number}", "v" * 1_000)
        connection.bgrewriteaof()
        eventually(lambda: not connection.info("persistence")["aof_rewrite_in_progress"])


def slow_loading(key_ms: int) -> tuple[str, ...]:
    """Configuration with which a key takes `key_ms` to load; Redis's own switches for its tests of loading.

    It looks at its clients after every key or two; CONFIG SET key-load-delay 0 ends the slowness.
    """
    return (f"key-load-delay {key_ms * 1_000}", "loading-process-events-interval-bytes 1024")


def settings(data_dir: Path, **changes: Any) -> Server:
    return Server(data_dir=str(data_dir), maxmemory_bytes=MAXMEMORY_BYTES, **changes)


def client(server: embedded.Embedded) -> redis.Redis:
    return redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0))


def is_alive(data_dir: Path) -> bool:
    return embedded.running_url(settings(data_dir)) is not None
