"""`rtmem up` looks after its Redis while the disk below it fails (the shim): nobody has to type anything."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from loadtest.crash.faults import Disk
from rtmem.server import embedded
from rtmem.settings import Server
from tests.cli.commands import Up, environment
from tests.crash.faults import build

PATIENCE_S = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's tmp_path: its long names would push the socket out of the directory.
    with TemporaryDirectory(prefix="rtmem-cli-") as made:
        yield Path(made)


@pytest.fixture
def disk(folder: Path) -> Disk:
    return Disk(build(folder), folder, folder / "data")


@pytest.fixture
def up(folder: Path, disk: Disk, request: pytest.FixtureRequest) -> Iterator[Up]:
    env = environment(folder, **disk.environment)
    arguments = ("up", "--redis-only", "--profile", request.param)
    with Up(*arguments, env=env, data_dir=folder / "data", answers=False) as running:
        yield running
        disk.heal()


def eventually(condition: Callable[[], bool], up: Up) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, up.output()
        time.sleep(0.02)


def writes(up: Up) -> bool:
    once = Retry(NoBackoff(), 0)
    with suppress(redis.RedisError), redis.Redis(unix_socket_path=f"{up.data_dir}/redis.sock", retry=once) as client:
        return bool(client.set("key", "value"))
    return False


@pytest.mark.parametrize("up", ["balanced"], indirect=True)
def test_a_failed_fsync_is_recovered_from_without_anybody(up: Up, disk: Disk) -> None:
    disk.order(fsync=errno.EIO)
    eventually(lambda: not writes(up), up)
    eventually(lambda: "has failed (Input/output error): Redis refuses writes" in up.output(), up)
    disk.heal()
    eventually(lambda: writes(up), up)
    eventually(lambda: "the log was written anew" in up.output(), up)
    assert "started again" not in up.output()


@pytest.mark.parametrize("up", ["durable"], indirect=True)
def test_a_server_that_its_disk_has_ended_is_started_again_until_it_stays(up: Up, disk: Disk) -> None:
    disk.order(write=errno.ENOSPC)
    eventually(lambda: not writes(up), up)
    # A full disk lets a server start, and ends it at its next write.
    eventually(lambda: not writes(up) and up.output().count("died and was started again: its disk refused") >= 2, up)
    disk.heal()
    eventually(lambda: writes(up), up)
    eventually(lambda: "the log was written anew" in up.output(), up)


def test_what_was_joined_is_not_started_again_with_less_durability(folder: Path) -> None:
    with embedded.start(Server(data_dir=str(folder / "data"), profile="durable")) as first:
        with Up("up", "--redis-only", env=environment(folder), data_dir=folder / "data", answers=False) as up:
            eventually(lambda: "it runs already, with profile durable" in up.output(), up)
            os.kill(first.pid, signal.SIGKILL)
            eventually(lambda: "died and was started again" in up.output(), up)
            assert embedded.profile(Server(data_dir=str(folder / "data"))) == "durable"
