"""Bare redis-server processes on TCP: for Sentinel, Cluster, loading and everything the embedded server is not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loadtest.ports import free_port
from rtmem.server import binaries


class Process:
    """A redis-server, or a sentinel, with a directory of its own; kill -9 ends it."""

    def __init__(
        self,
        folder: Path,
        port: int,
        conf: Sequence[str],
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.port = port
        self.url = f"redis://127.0.0.1:{port}"
        self._arguments = arguments
        self._environment = {**os.environ, **(environment or {})}
        folder.mkdir(parents=True, exist_ok=True)
        lines = [f"port {port}", "bind 127.0.0.1", f"dir {folder}", 'save ""', "logfile log", *conf]
        (folder / "redis.conf").write_text("\n".join(lines) + "\n")
        self.start()

    def start(self) -> Self:
        program = str(binaries.find().server)
        self._process = subprocess.Popen(
            [program, str(self.folder / "redis.conf"), *self._arguments], env=self._environment
        )
        return self

    def client(self, **options: object) -> redis.Redis:
        return redis.Redis(port=self.port, retry=Retry(NoBackoff(), 0), **options)  # type: ignore[arg-type]

    def wait_until_answering(self, **options: object) -> Self:
        def answers() -> bool:
            with suppress(redis.ConnectionError), self.client(**options) as client:
                return bool(client.ping())
            return False

        eventually(answers)
        return self

    def kill(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)


Spawn = Callable[..., Process]


@contextmanager
def spawning() -> Iterator[Spawn]:
    """`spawn(*conf, port=0, arguments=())` starts a server, `environment` on top; all are killed at the end."""
    root = Path(tempfile.mkdtemp(prefix="rtmem-drivers-"))
    made: list[Process] = []

    def spawn(
        *conf: str, port: int = 0, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> Process:
        folder = root / str(len(made))
        process = Process(folder, port or free_port(), conf, *arguments, environment=environment)
        made.append(process)
        return process

    try:
        yield spawn
    finally:
        for process in made:
            process.kill()
        shutil.rmtree(root)


KEYS_LOADING = 700


def loading(spawn: Spawn, key_ms: int) -> Process:
    """A server that reads its data, `key_ms` for each of 700 keys, until it is told CONFIG SET key-load-delay 0."""
    server = spawn("enable-debug-command yes", "rdbcompression no").wait_until_answering()
    with server.client() as client:
        client.execute_command("DEBUG", "POPULATE", KEYS_LOADING, "key", 1_000)
        client.save()
    server.kill()
    conf = server.folder / "redis.conf"
    # Redis's own switches for its tests of loading: so many microseconds a key, and a look at the clients in between.
    slow = f"key-load-delay {key_ms * 1_000}\nloading-process-events-interval-bytes 1024\n"
    conf.write_text(conf.read_text() + slow)
    return server.start()


def eventually(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait until `condition` holds; fail when it has not within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{condition} has not become true within {timeout_s} s"
        time.sleep(0.01)


async def becomes(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Like `eventually`, while the event loop goes on."""
    with anyio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in other processes
            await anyio.sleep(0.005)
