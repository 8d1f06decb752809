"""Logs written by a real server, with a ledger of what each of their beginnings holds; and ways to damage them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from rtmem.server import binaries, directory, embedded, repair
from rtmem.server.binaries import Binaries
from rtmem.server.directory import Layout
from rtmem.settings import Profile, Server
from tests.conftest import kill_server
from tests.server.processes import client, eventually, settings

State = dict[bytes, bytes]

# Hundreds of repairs and starts are tried, each with ten fsyncs: in memory they are free, and here only order counts.
_FAST = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

_NOTE = re.compile(rb"#TS:[0-9]+\r\n|\*2\r\n\$6\r\nSELECT\r\n\$1\r\n0\r\n")


def program() -> Binaries:
    """A server without modules: starts in a third of the time."""
    return Binaries(binaries.find().server, ())


def server_settings(data_dir: Path, profile: Profile = "durable") -> Server:
    return settings(data_dir, profile=profile)


def start(data_dir: Path, extra_conf: Sequence[str] = ()) -> embedded.Embedded:
    return embedded.start(server_settings(data_dir), program=program(), extra_conf=extra_conf)


def accept_loss(data_dir: Path) -> tuple[str, ...]:
    """`rtmem repair --accept-loss`, without its words."""
    with repair.at_rest(server_settings(data_dir)) as layout:
        return repair.mend(layout, repair.examine(layout, thorough=True))


def state_of(connection: redis.Redis) -> State:
    keys = sorted(connection.scan_iter())
    return dict(zip(keys, connection.mget(keys), strict=True)) if keys else {}


def state_after_start(data_dir: Path) -> State:
    with start(data_dir) as server, client(server) as connection:
        return state_of(connection)


@dataclass
class Log:
    """A data directory as a killed server left it. Tests damage copies of it."""

    data_dir: Path
    # After each acknowledged write, under `always`: the file being written, its size, and everything stored so far.
    ledger: list[tuple[str, int, State]] = field(default_factory=list)

    def write(self, connection: redis.Redis, *writes: tuple[str, str, str]) -> None:
        """One command, or several as a transaction, and a line in the ledger."""
        if len(writes) == 1:
            connection.execute_command(*writes[0])
        else:
            pipeline = connection.pipeline(transaction=True)
            for write in writes:
                pipeline.execute_command(*write)
            pipeline.execute()
        newest = self.increments[-1]
        self.ledger.append((newest.name, newest.stat().st_size, state_of(connection)))

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "appendonlydir"

    @property
    def increments(self) -> list[Path]:
        return sorted(self.log_dir.glob("*.incr.aof"))

    @property
    def manifest(self) -> Path:
        return self.log_dir / "appendonly.aof.manifest"

    @property
    def layout(self) -> Layout:
        return directory.locate(str(self.data_dir))

    def expected(self, size: int, name: str | None = None) -> tuple[int, State]:
        """Where the last whole thing within the first `size` bytes of a file ends, and what is stored then."""
        name = name or self.increments[0].name
        end, state = 0, self.state_before(name)
        for file, written, stored in self.ledger:
            if file == name and written <= size:
                end, state = written, stored
        # Before a write Redis may note the second and select the database: whole by themselves, and nothing stored.
        data = (self.log_dir / name).read_bytes()
        while (note := _NOTE.match(data, end)) and note.end() <= size:
            end = note.end()
        return end, state

    def state_before(self, name: str) -> State:
        state: State = {}
        for file, _, stored in self.ledger:
            if file == name:
                break
            state = stored
        return state

    @contextmanager
    def copy(self) -> Iterator[Log]:
        """The same log in a directory of its own, gone afterwards, with the server in it."""
        path = Path(tempfile.mkdtemp(prefix="rtmem-test-", dir=_FAST))
        try:
            shutil.copytree(self.data_dir, path, dirs_exist_ok=True, ignore=_no_socket)
            yield Log(path, self.ledger)
        finally:
            if (path / "life.lock").exists():
                kill_server(path)
            shutil.rmtree(path)


def _no_socket(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith((".sock", ".pid"))]


def make(data_dir: Path) -> Log:
    """A log of single commands, transactions and noted seconds, left by kill -9."""
    log = Log(data_dir)
    server = start(data_dir)
    with client(server) as connection:
        log.write(connection, ("SET", "a", "1"))
        log.write(connection, ("SET", "b", "two\r\nlines"), ("APPEND", "a", "2"))
        next_second()
        log.write(connection, ("APPEND", "a", "3"))
        log.write(connection, ("SET", "c", "x" * 40), ("APPEND", "b", "!"), ("APPEND", "a", "4"))
        log.write(connection, ("APPEND", "a", "5"))
    os.kill(server.pid, signal.SIGKILL)
    kill_server(data_dir)
    server.release()
    return log


def make_two_increments(data_dir: Path) -> Log:
    """A log whose rewrite was broken off: a base and two incremental files with data in both."""
    log = Log(data_dir)
    server = start(data_dir)
    with client(server) as connection:
        log.write(connection, ("SET", "a", "1"))
        log.write(connection, ("SET", "b", "1"), ("APPEND", "a", "2"))
        connection.config_set("rdb-key-save-delay", 10_000_000)
        connection.bgrewriteaof()
        eventually(lambda: bool(_children(server.pid)))
        (rewriter,) = _children(server.pid)
        os.kill(rewriter, signal.SIGKILL)
        eventually(lambda: not connection.info("persistence")["aof_rewrite_in_progress"])
        log.write(connection, ("APPEND", "a", "3"))
        log.write(connection, ("APPEND", "b", "2"), ("APPEND", "a", "4"))
    os.kill(server.pid, signal.SIGKILL)
    kill_server(data_dir)
    server.release()
    assert len(log.increments) == 2
    return log


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def next_second() -> None:
    """Wait for the clock's next second, so that the log notes one more."""
    now = int(time.time())
    eventually(lambda: int(time.time()) > now)
