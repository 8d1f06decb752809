from __future__ import annotations

from pathlib import Path

import pytest

from rtmem.server import aof

SET = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nv\r\n*\r\n"
MULTI = b"*1\r\n$5\r\nMULTI\r\n"
EXEC = b"*1\r\n$4\r\nEXEC\r\n"
SELECT = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
NOTE = b"#TS:1795992058\r\n"


# --- commands -----------------------------------------------------------------------------------------------------


def test_a_whole_file_is_counted_without_its_frame() -> None:
    data = NOTE + SELECT + SET + MULTI + SET + SET + EXEC + NOTE + SET
    assert aof.scan(data) == aof.Scan(size=len(data), whole_bytes=len(data), commands=4)


def test_an_empty_file_is_whole() -> None:
    assert aof.scan(b"") == aof.Scan(size=0, whole_bytes=0, commands=0)


def test_every_cut_is_found_at_the_end_of_the_last_whole_thing() -> None:
    things = [NOTE, SELECT, SET, MULTI + SET + SET + EXEC, NOTE, SET]
    ends = [len(b"".join(things[:number])) for number in range(len(things) + 1)]
    data = b"".join(things)
    inside = {ends[3] + len(MULTI), ends[3] + len(MULTI + SET), ends[3] + len(MULTI + SET + SET)}
    for size in range(len(data) + 1):
        scan = aof.scan(data[:size])
        assert scan.whole_bytes == max(end for end in ends if end <= size)
        assert scan.flaw == (None if size in ends else "open" if size in inside else "torn"), size


def test_a_scan_may_begin_between_two_commands() -> None:
    size = 3 * len(SET) - 1
    assert aof.scan(SET + SET + SET[:-1], len(SET)) == aof.Scan(
        size=size, whole_bytes=2 * len(SET), commands=1, flaw="torn", broken_at=size
    )


def test_the_first_wrong_byte_is_found_wherever_it_is_in_the_frame() -> None:
    data = SET + MULTI + NOTE + SET + EXEC
    values = {len(SET) + len(MULTI + NOTE) + SET.index(b"v") + at for at in range(4)} | {
        SET.index(b"v") + at for at in range(4)
    }
    for place in range(len(data)):
        scan = aof.scan(data[:place] + b"\0" + data[place + 1 :])
        if scan.flaw is None:
            assert place in values or data[place : place + 1] in b"k", "a flipped byte inside a value is not seen"
        else:
            assert scan.broken_at == place, (place, scan)


@pytest.mark.parametrize(
    ("tail", "flaw"),
    [
        (bytes(1), "zeros"),
        (bytes(5_000), "zeros"),
        (b"\0\0x", "garbage"),
        (b"PING\r\n", "garbage"),
        (b"*0\r\n", "garbage"),
        (b"*x\r\n", "garbage"),
        (b"*1\r\n:1\r\n", "garbage"),
        (b"*1\r\n$-1\r\n", "garbage"),
        (b"*1\r\n$4\r\nPI\0\0\r\n", "garbage"),  # a name that is none
        (SET[:-2] + b"\0\0", "zeros"),  # Redis skips a value's line end unread
        (SET[:-9] + bytes(4_096), "zeros"),  # a command whose end, and all behind it, never arrived
        (b"#TX:1\r\n", "garbage"),
        (b"#" + b"T" * 100, "garbage"),
        (b"#TS:17", "torn"),
        (b"*" + b"1" * 100, "garbage"),
    ],
)
def test_what_is_no_command_is_told_apart(tail: bytes, flaw: aof.Flaw) -> None:
    scan = aof.scan(SET + tail)
    assert (scan.flaw, scan.whole_bytes, scan.first_after) == (flaw, len(SET), None)


def test_whole_commands_behind_the_damage_are_found_wherever_they_start() -> None:
    scan = aof.scan(SET + b"\0*1\r\n$9\r\n" + SET + SET + bytes(3) + SET + SET[:-1])
    assert (scan.flaw, scan.first_after, scan.commands_after) == ("garbage", len(SET) + 9, 3)


def test_commands_of_a_torn_transaction_are_not_behind_the_damage() -> None:
    scan = aof.scan(SET + MULTI + SET + SET + SET[:-1])
    assert (scan.flaw, scan.whole_bytes, scan.commands_behind, scan.first_after) == ("torn", len(SET), 2, None)


def test_a_transaction_that_ends_behind_the_damage_is_no_unfinished_end() -> None:
    scan = aof.scan(SET + MULTI + SET + bytes(10) + SET + EXEC)
    assert scan.whole_bytes == len(SET)
    assert scan.first_after is not None


def test_seconds_are_read_before_and_after_a_place() -> None:
    data = b"#TS:1795992058\r\n" + SET + b"#TS:1795992060\r\n" + SET + b"\0\0#TS:1795992061\r\n"
    place = data.index(b"#TS:1795992060")
    assert aof.timestamp_before(data, place) == 1_795_992_058
    assert aof.timestamps_after(data, place) == (1_795_992_060, 1_795_992_061)
    assert aof.timestamp_before(data, 3) is None
    assert aof.timestamps_after(data, len(data)) is None


def test_a_file_is_read_where_it_lies(tmp_path: Path) -> None:
    for data in (b"", SET, SET + bytes(10)):
        (tmp_path / "f").write_bytes(data)
        with aof.opened(tmp_path / "f") as mapped:
            assert aof.scan(mapped) == aof.scan(data)


# --- the manifest -------------------------------------------------------------------------------------------------

_LISTED = b"""file appendonly.aof.2.incr.aof seq 2 type i startoffset 5 endoffset 7
file appendonly.aof.1.base.rdb seq 1 type b
file appendonly.aof.1.incr.aof seq 1 type i
file appendonly.aof.0.incr.aof seq 0 type h
"""


def test_a_manifest_is_read_in_the_order_of_loading_without_history() -> None:
    entries = aof.read_manifest(b"# a remark\n" + _LISTED)
    assert [(entry.kind, entry.seq) for entry in entries] == [("b", 1), ("i", 1), ("i", 2)]


def test_a_manifest_is_written_with_its_own_lines() -> None:
    entries = aof.read_manifest(_LISTED)
    assert aof.read_manifest(aof.write_manifest(entries)) == entries
    assert b"startoffset 5 endoffset 7\n" in aof.write_manifest(entries)


@pytest.mark.parametrize(
    "data", [b"", b"\n", bytes(50), _LISTED[:-1], b"file a seq x type b\n", b"file a seq 1\n", b"file a seq 1 type q\n"]
)
def test_a_damaged_manifest_is_no_manifest(data: bytes) -> None:
    with pytest.raises(aof.ManifestDamageError):
        aof.read_manifest(data)


def test_a_file_name_tells_its_place() -> None:
    entry = aof.entry_of("appendonly.aof.12.incr.aof")
    assert entry is not None
    assert (entry.seq, entry.kind, entry.line) == (12, "i", "file appendonly.aof.12.incr.aof seq 12 type i")
    assert aof.entry_of("temp-rewriteaof-bg-3.aof") is None
