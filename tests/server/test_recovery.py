"""A real server on a disk that fails (the shim), looked after as `rtmem up` does it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from loadtest.crash.faults import Disk
from rtmem.server import embedded
from rtmem.server.recovery import PAUSE_S_MIN, SEEN_AT_LEAST_S, Recovery
from tests.conftest import kill_server
from tests.crash.faults import build
from tests.server.processes import client, eventually, settings


@pytest.fixture
def disk(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk of every server that is started in `data_dir` from now on."""
    made = Disk(build(tmp_path), tmp_path, data_dir)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def server(data_dir: Path, disk: Disk) -> Iterator[redis.Redis]:
    with embedded.start(settings(data_dir)) as started, client(started) as connection:
        yield connection
        kill_server(data_dir)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def status(server: redis.Redis, name: str) -> object:
    return server.info("persistence")[name]


def rewrites(server: redis.Redis) -> int:
    return int(server.info("persistence")["aof_rewrites"])


def write(server: redis.Redis) -> bool:
    with suppress(redis.ResponseError):
        return bool(server.set("key", "value"))
    return False


def refuses(server: redis.Redis) -> Callable[[], bool]:
    return lambda: not write(server)


def looks_until_told(recovery: Recovery, server: redis.Redis, clock: Clock, word: str) -> Callable[[], bool]:
    """Looks twice in each second of `clock`, which here runs as fast as it is asked."""

    def look() -> bool:
        clock.now_s += 0.5
        return word in recovery.look(server)

    return look


def test_after_a_failed_fsync_the_log_is_written_anew_and_writes_are_taken_again(
    data_dir: Path, disk: Disk, server: redis.Redis
) -> None:
    clock = Clock()
    recovery = Recovery(data_dir, clock)
    disk.fail_once()
    eventually(refuses(server))
    told = recovery.look(server)
    assert "Input/output error" in told
    assert "written anew" in told
    eventually(looks_until_told(recovery, server, clock, "takes writes again"))
    assert write(server)
    assert rewrites(server) >= 1  # one more where the failure was still seen while the first one ran
    assert recovery.look(server) == ""


def test_a_failure_can_be_seen_for_a_while_before_the_rewrite_hides_it(
    data_dir: Path, disk: Disk, server: redis.Redis
) -> None:
    # Who waits for the proof of a write may look half a second from now.
    clock = Clock()
    recovery = Recovery(data_dir, clock)
    disk.fail_once()
    eventually(refuses(server))
    recovery.look(server)
    clock.now_s += SEEN_AT_LEAST_S - 0.1
    recovery.look(server)
    assert rewrites(server) == 0
    clock.now_s += 0.2
    recovery.look(server)
    eventually(lambda: rewrites(server) == 1)


def test_as_long_as_the_disk_is_broken_it_is_tried_again_ever_more_rarely(
    data_dir: Path, disk: Disk, server: redis.Redis
) -> None:
    clock = Clock()
    recovery = Recovery(data_dir, clock)
    disk.order(fsync=errno.EIO)
    eventually(refuses(server))
    recovery.look(server)
    clock.now_s += SEEN_AT_LEAST_S
    recovery.look(server)  # tries
    eventually(lambda: status(server, "aof_last_bgrewrite_status") == "err")
    clock.now_s += PAUSE_S_MIN
    recovery.look(server)  # tries again, and then not for two seconds
    disk.heal()
    for _ in range(3):
        clock.now_s += PAUSE_S_MIN / 2
        assert recovery.look(server) == ""
        assert rewrites(server) == 0
    eventually(looks_until_told(recovery, server, clock, "takes writes again"))
    assert write(server)


def test_a_log_that_redis_goes_on_writing_by_itself_is_written_anew_too(
    data_dir: Path, disk: Disk, server: redis.Redis
) -> None:
    # After a full disk Redis goes on alone. Whether an fsync had failed as well, nobody can tell any more.
    clock = Clock()
    recovery = Recovery(data_dir, clock)
    disk.order(write=errno.ENOSPC)
    eventually(refuses(server))
    assert "No space left on device" in recovery.look(server)
    disk.heal()
    eventually(lambda: write(server))
    eventually(looks_until_told(recovery, server, clock, "written anew"))
    assert rewrites(server) >= 1


def test_a_full_volume_is_not_filled_with_attempts(data_dir: Path, disk: Disk, server: redis.Redis) -> None:
    clock = Clock()
    recovery = Recovery(data_dir, clock)
    disk.fail_once()
    eventually(refuses(server))
    recovery.look(server)
    (data_dir / "aof.trial").mkdir()  # nothing can be written there
    for _ in range(20):
        clock.now_s += 1
        recovery.look(server)
    assert rewrites(server) == 0
    assert [path.name for path in data_dir.iterdir() if path.name.endswith(".tmp")] == []
    (data_dir / "aof.trial").rmdir()
    eventually(looks_until_told(recovery, server, clock, "takes writes again"))


def test_a_server_that_died_of_its_disk_owes_a_rewrite(data_dir: Path, disk: Disk, server: redis.Redis) -> None:
    clock = Clock()
    recovery = Recovery(data_dir, clock)
    recovery.look(server)
    assert recovery.look(server) == ""
    recovery.owe()
    eventually(looks_until_told(recovery, server, clock, "written anew"))
    assert rewrites(server) == 1


def test_a_server_that_does_not_answer_is_left_alone(data_dir: Path, disk: Disk, server: redis.Redis) -> None:
    recovery = Recovery(data_dir)
    kill_server(data_dir)
    assert recovery.look(server) == ""
