"""A damaged log ends in a start with exactly the valid beginning, or in a refusal that --accept-loss resolves."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rtmem.errors import ConfigError, DataDamagedError, DataDirectoryError, ServerStartError
from rtmem.server import aof, damage, examination, marker, repair
from tests.conftest import kill_server
from tests.server import logs
from tests.server.logs import Log
from tests.server.processes import client, eventually

SEED = 20_261_129


def _made(make: Callable[[Path], Log]) -> Iterator[Log]:
    path = Path(tempfile.mkdtemp(prefix="rtmem-test-"))
    try:
        yield make(path)
    finally:
        kill_server(path)
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    yield from _made(logs.make)


@pytest.fixture(scope="module")
def two(log: Log) -> Iterator[Log]:
    yield from _made(logs.make_two_increments)


def removed(log: Log) -> dict[str, bytes]:
    """Everything in quarantine, by file name."""
    return {path.name: path.read_bytes() for path in log.layout.quarantine.glob("*/*")}


def put_together(log: Log, name: str, end: int) -> bytes:
    """The file as it was before the repair, from what stayed and what was removed."""
    return (log.log_dir / name).read_bytes()[:end] + removed(log).get(f"{name}.from-{end}", b"")


def starts_with(log: Log, damaged: bytes, size: int) -> None:
    """The damaged incremental file starts with exactly what its first `size` bytes hold, and nothing is thrown away."""
    (path,) = log.increments
    path.write_bytes(damaged)
    end, state = log.expected(size)
    with logs.start(log.data_dir) as server, client(server) as connection:
        assert logs.state_of(connection) == state
        assert any("repaired" in line for line in server.report) == (end != len(damaged))
    assert put_together(log, path.name, end) == damaged


# --- the unfinished end -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_log_cut_anywhere_starts_with_every_whole_write_before(log: Log) -> None:
    whole = log.increments[0].read_bytes()
    assert len(whole) > 300
    for size in range(len(whole) + 1):
        with log.copy() as copy:
            starts_with(copy, whole[:size], size)


def repaired_bytes(log: Log, damaged: bytes) -> bytes:
    """What an unasked repair leaves of an incremental file, without a server."""
    (path,) = log.increments
    path.write_bytes(damaged)
    shutil.rmtree(log.layout.quarantine, ignore_errors=True)
    repair.before_start(log.layout)
    left = path.read_bytes()
    assert put_together(log, path.name, len(left)) == damaged
    return left


@pytest.mark.parametrize("zeros", [True, False], ids=["zeros", "garbage"])
def test_a_tail_that_is_no_command_is_cut_wherever_it_starts(log: Log, zeros: bool) -> None:
    whole = log.increments[0].read_bytes()
    chance = random.Random(SEED)
    with log.copy() as copy:
        for size in range(len(whole) + 1):
            for length in (1, chance.choice([2, 100, 512, 4_096])):
                tail = bytes(length) if zeros else chance.randbytes(length)
                if whole[size:].startswith(tail[:1]):
                    continue  # chance has continued the log rightly by a byte
                copy.layout.marker.unlink(missing_ok=True)
                assert len(repaired_bytes(copy, whole[:size] + tail)) == log.expected(size)[0], (size, length)


def test_a_server_starts_on_what_is_left_of_a_bad_tail(log: Log) -> None:
    whole = log.increments[0].read_bytes()
    chance = random.Random(SEED)
    for _ in range(12):
        size = chance.randrange(len(whole))
        tail = chance.choice([bytes(chance.choice([1, 512, 4_096])), b"\xff" + chance.randbytes(300)])
        with log.copy() as copy:
            starts_with(copy, whole[:size] + tail, size)


def test_the_report_tells_file_byte_commands_and_seconds(log: Log) -> None:
    whole = log.increments[0].read_bytes()
    multi = whole.rindex(b"*1\r\n$5\r\nMULTI")
    with log.copy() as copy:
        copy.increments[0].write_bytes(whole[: whole.rindex(b"*1\r\n$4\r\nEXEC")])
        found = examination.examine(copy.layout)
        (one,) = found.damages
        assert (one.kind, one.offset, one.commands_lost, one.consent) == ("open", multi, 3, "")
        seconds = [int(found) for found in aof._TIMESTAMP.findall(whole)]
        assert one.since_s == max(seconds)
        assert one.until_s is not None
        assert f"appendonly.aof.1.incr.aof at byte {multi}: it ends inside a transaction" in damage.words(one)
        assert "3 readable commands" in damage.words(one)
        assert "UTC" in damage.words(one)


# --- what nobody repairs unasked ----------------------------------------------------------------------------------


def refused_then_accepted(log: Log, state: logs.State, match: str) -> None:
    """Starting is refused and changes nothing; after --accept-loss it starts with `state`."""
    before = {path: path.read_bytes() for path in log.log_dir.glob("*")} if log.log_dir.exists() else {}
    with pytest.raises(DataDamagedError, match=match) as caught:
        logs.start(log.data_dir)
    assert "rtmem repair --accept-loss" in str(caught.value)
    assert caught.value.data["report"]["damages"]
    after = {path: path.read_bytes() for path in log.log_dir.glob("*")} if log.log_dir.exists() else {}
    assert after == before, "a refusal changed something"
    assert logs.accept_loss(log.data_dir)
    assert logs.state_after_start(log.data_dir) == state
    kept = b"".join(removed(log).values()) + b"".join(path.read_bytes() for path in log.log_dir.glob("*"))
    for path, data in before.items():
        end = next((end for end in range(len(data) + 1) if data[:end] in kept and data[end:] in kept), None)
        assert end is not None, f"bytes of {path.name} are gone"


def test_whole_commands_behind_the_damage_are_not_given_up_unasked(log: Log) -> None:
    whole = log.increments[0].read_bytes()
    second_end = log.ledger[1][1]
    for hole in (bytes(20), b"\xff" * 20):
        with log.copy() as copy:
            copy.increments[0].write_bytes(whole[: second_end + 5] + hole + whole[second_end + 25 :])
            refused_then_accepted(copy, log.expected(second_end)[1], "whole commands follow the damage")


def test_a_length_that_swallows_the_rest_is_no_unfinished_end(log: Log) -> None:
    whole = log.increments[0].read_bytes()
    at = whole.index(b"$9\r\ntwo") if b"$9\r\ntwo" in whole else whole.index(b"$10\r\ntwo")
    with log.copy() as copy:
        copy.increments[0].write_bytes(whole[:at] + b"$99999" + whole[at + 6 :])
        refused_then_accepted(copy, log.expected(at)[1], "whole commands follow the damage")


def test_bytes_that_had_reached_the_disk_do_not_vanish_in_silence(log: Log) -> None:
    for size in (0, log.ledger[0][1], log.ledger[1][1] - 3):
        with log.copy() as copy:
            with logs.start(copy.data_dir):  # stopped in good order: everything is on disk, and the marker knows
                pass
            os.truncate(copy.increments[0], size)
            refused_then_accepted(copy, log.expected(size)[1], "had reached the disk")


def test_what_was_marked_in_the_middle_of_a_write_is_an_unfinished_end_all_the_same(log: Log) -> None:
    # Somebody joins while Redis writes: what he sees, and syncs, ends inside a command. Then the power fails.
    whole = log.increments[0].read_bytes()
    for size in (log.ledger[0][1] + 20, log.ledger[-1][1] - 3):
        for tail in (b"", bytes(600), b"\xff" * 600):
            with log.copy() as copy:
                copy.increments[0].write_bytes(whole[:size])
                marker.keep(copy.layout)
                starts_with(copy, whole[:size] + tail, size)


def test_a_vanished_log_is_no_new_start(log: Log) -> None:
    with log.copy() as copy:
        shutil.rmtree(copy.log_dir)
        refused_then_accepted(copy, {}, "everything would be lost")


def test_a_vanished_manifest_is_written_again_from_the_marker(log: Log) -> None:
    for damage_manifest in (Path.unlink, lambda path: path.write_bytes(bytes(100)), lambda path: path.write_bytes(b"")):
        with log.copy() as copy:
            damage_manifest(copy.manifest)
            with logs.start(copy.data_dir) as server, client(server) as connection:
                assert logs.state_of(connection) == log.ledger[-1][2]
                assert any("written again" in line for line in server.report)


def test_without_manifest_and_marker_the_names_are_a_guess(log: Log) -> None:
    with log.copy() as copy:
        copy.manifest.unlink()
        copy.layout.marker.unlink()
        refused_then_accepted(copy, log.ledger[-1][2], "only guess that the log was appendonly.aof.1.base.rdb")


def test_a_missing_file_takes_those_behind_it_only_with_consent(two: Log) -> None:
    with two.copy() as copy:
        copy.increments[0].unlink()
        refused_then_accepted(copy, {}, "the manifest lists it, and it is gone")
    with two.copy() as copy:
        copy.increments[1].unlink()
        refused_then_accepted(copy, two.state_before(two.increments[1].name), "the manifest lists it, and it is gone")


@pytest.mark.parametrize("spoil", [lambda data: data[:-1], lambda data: bytes(len(data)), lambda data: b""])
def test_without_its_base_the_log_means_nothing(log: Log, spoil: Callable[[bytes], bytes]) -> None:
    (base,) = log.log_dir.glob("*.base.rdb")
    with log.copy() as copy:
        path = copy.log_dir / base.name
        path.write_bytes(spoil(base.read_bytes()))
        refused_then_accepted(copy, {}, "means nothing without it")


def test_an_older_manifest_is_not_believed(two: Log) -> None:
    # As after restoring one file of a backup: Redis would start without the second incremental file.
    with two.copy() as copy:
        with logs.start(copy.data_dir):
            pass
        lines = copy.manifest.read_text().splitlines(keepends=True)
        copy.manifest.write_text("".join(line for line in lines if "2.incr" not in line))
        with logs.start(copy.data_dir) as server, client(server) as connection:
            assert logs.state_of(connection) == two.ledger[-1][2]
            assert any("written again" in line for line in server.report)


def test_a_file_that_no_manifest_lists_is_not_overwritten(two: Log) -> None:
    with two.copy() as copy:
        copy.layout.marker.unlink()
        lines = copy.manifest.read_text().splitlines(keepends=True)
        copy.manifest.write_text("".join(line for line in lines if "2.incr" not in line))
        refused_then_accepted(copy, two.state_before(two.increments[1].name), "does not list it")


# --- damage before the last file ----------------------------------------------------------------------------------


def test_damage_before_a_file_with_commands_is_not_repaired_unasked(two: Log) -> None:
    first = two.increments[0]
    whole = first.read_bytes()
    for data, size in ((whole[:-3], len(whole) - 3), (whole + bytes(512), len(whole)), (whole[:40], 40)):
        with two.copy() as copy:
            (copy.log_dir / first.name).write_bytes(data)
            state = two.expected(size, first.name)[1]
            refused_then_accepted(copy, state, "mean nothing without those before them")


@pytest.mark.parametrize("behind", [b"", bytes(4_096), b"*3\r\n$3\r\nSE"], ids=["empty", "zeros", "torn"])
def test_damage_before_a_file_that_holds_nothing_whole_is_repaired(two: Log, behind: bytes) -> None:
    first, second = two.increments
    whole = first.read_bytes()
    with two.copy() as copy:
        (copy.log_dir / first.name).write_bytes(whole[:-3])
        (copy.log_dir / second.name).write_bytes(behind)
        end, state = two.expected(len(whole) - 3, first.name)
        assert logs.state_after_start(copy.data_dir) == state
        assert put_together(copy, first.name, end) == whole[:-3]
        assert removed(copy)[second.name] == behind


def test_an_end_that_is_torn_is_repaired_in_the_last_of_two_files_too(two: Log) -> None:
    second = two.increments[1]
    whole = second.read_bytes()
    for size in range(0, len(whole), 7):
        with two.copy() as copy:
            (copy.log_dir / second.name).write_bytes(whole[:size] + bytes(100))
            assert logs.state_after_start(copy.data_dir) == two.expected(size, second.name)[1]


# --- broken off ---------------------------------------------------------------------------------------------------

_DAMAGES: dict[str, Callable[[Log], None]] = {
    "zeros behind the last file": lambda two: _append(two.increments[1], bytes(512)),
    "damage in the first, nothing in the second": lambda two: (
        _append(two.increments[0], b"*3\r\n$3"),
        two.increments[1].write_bytes(bytes(64)),
    ),
    "damage in the first, commands in the second": lambda two: _append(two.increments[0], bytes(64)),
    "the base is gone": lambda two: next(two.log_dir.glob("*.base.rdb")).unlink(),
    "the manifest and the marker are gone": lambda two: (two.manifest.unlink(), two.layout.marker.unlink()),
}


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize("name", _DAMAGES)
def test_a_repair_broken_off_at_any_step_can_be_run_again(two: Log, name: str) -> None:
    with two.copy() as copy:
        _DAMAGES[name](copy)
        original = b"".join(path.read_bytes() for path in sorted(copy.log_dir.glob("*.aof")))
        logs.accept_loss(copy.data_dir)
        expected = logs.state_after_start(copy.data_dir)
    steps = 0
    while True:
        with two.copy() as copy:
            _DAMAGES[name](copy)
            ended = _broken_off_after(steps, copy)
            logs.accept_loss(copy.data_dir)
            assert logs.state_after_start(copy.data_dir) == expected, f"after step {steps}"
            kept = b"".join(removed(copy).values()) + b"".join(path.read_bytes() for path in copy.log_dir.glob("*.aof"))
            assert len(kept) >= len(original), f"bytes were lost after step {steps}"
        if ended:
            assert steps >= 3
            return
        steps += 1


_PROGRAM = """
import os, signal, sys
from rtmem.server import directory, repair

layout = directory.locate(sys.argv[1])
found = repair.examine(layout, thorough=True)
for number, _ in enumerate(repair.carry_out(layout, found, repair.new_quarantine(layout))):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def _broken_off_after(steps: int, log: Log) -> bool:
    """Run a repair in a process of its own that is killed after so many steps; whether it had ended before."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(log.data_dir), str(steps)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode == 0


# --- around it ----------------------------------------------------------------------------------------------------


def test_a_whole_log_is_started_without_a_word(log: Log) -> None:
    with log.copy() as copy:
        with logs.start(copy.data_dir) as server:
            assert server.report == ("started with profile durable",)
        assert not copy.layout.quarantine.exists()


def test_a_first_start_that_was_broken_off_is_started_anew(log: Log) -> None:
    with log.copy() as copy:
        copy.manifest.unlink()
        copy.layout.marker.unlink()
        os.truncate(copy.increments[0], 0)
        assert logs.state_after_start(copy.data_dir) == {}


def test_a_small_base_with_keys_is_not_taken_for_a_first_start(log: Log) -> None:
    with log.copy() as copy:
        with logs.start(copy.data_dir) as server, client(server) as connection:
            connection.bgrewriteaof()
            eventually(lambda: copy.increments[-1].name == "appendonly.aof.2.incr.aof")
            eventually(lambda: not connection.info("persistence")["aof_rewrite_in_progress"])
        copy.manifest.unlink()
        copy.layout.marker.unlink()
        refused_then_accepted(copy, log.ledger[-1][2], "only guess")


def test_what_redis_refuses_is_read_from_its_first_byte(log: Log) -> None:
    with log.copy() as copy:
        with logs.start(copy.data_dir):  # from now on the start trusts everything up to here
            pass
        whole = copy.increments[0].read_bytes()
        end = log.ledger[1][1]
        copy.increments[0].write_bytes(whole[:end] + bytes(10) + whole[end + 10 :])
        assert examination.examine(copy.layout).damages == ()
        refused_then_accepted(copy, log.expected(end)[1], "had reached the disk")


def test_a_log_with_a_command_that_redis_does_not_know_is_no_damage(log: Log) -> None:
    with log.copy() as copy:
        _append(copy.increments[0], b"*1\r\n$7\r\nNOTHERE\r\n")
        with pytest.raises(ServerStartError, match="NOTHERE"):
            logs.start(copy.data_dir)


def test_a_running_server_is_not_examined(data_dir: Path) -> None:
    with logs.start(data_dir):
        with pytest.raises(ConfigError, match=r"is running.*rtmem down"):
            with repair.at_rest(logs.server_settings(data_dir)):
                pass


def test_a_directory_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="does not exist"):
        with repair.at_rest(logs.server_settings(tmp_path / "none")):
            pass
    assert not (tmp_path / "none").exists()


def test_a_marker_that_cannot_be_read_is_told_and_written_again(log: Log) -> None:
    with log.copy() as copy:
        copy.layout.marker.write_bytes(b"{")
        with logs.start(copy.data_dir) as server, client(server) as connection:
            assert logs.state_of(connection) == log.ledger[-1][2]
            assert any("aof.marker: it cannot be read" in line for line in server.report)
        assert examination.examine(copy.layout).damages == ()
