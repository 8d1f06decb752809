"""The event log's exchanges, with scripted replies: no Redis, no event loop."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from rtmem.errors import CommandError, CorruptRecordError, NewerLayoutError, ServerUnavailableError, StaleWriterError
from rtmem.operations import event_log
from rtmem.records import LOG_LAYOUT, LogEvent, LogGroup, LogHead, LostEvents
from rtmem.steps import Batch, Steps

R = TypeVar("R")

PAST = CommandError("ERR The ID specified in XADD is equal or smaller than the target stream top item")


def group(previous: int, *seqs: int, status: Any = "running") -> LogGroup:
    events = tuple(LogEvent(seq, "values", (), b"{}") for seq in seqs)
    return LogGroup(LOG_LAYOUT, previous, "run", 1, status, events)


def row(one: LogGroup, *, resp3: bool = False) -> list[Any]:
    payload = msgspec.msgpack.encode(one)
    fields: Any = {b"g": payload} if resp3 else [b"g", payload]
    return [b"%d-0" % one.events[-1].seq, fields]


def played(steps: Steps[R], *script: Any) -> tuple[R, list[Batch]]:
    """What an operation returns when Redis answers like this; an exception in the script is thrown."""
    asked: list[Batch] = []
    answers = iter(script)
    request: Any = next(steps)
    try:
        while True:
            asked.append(request)
            answer = next(answers)
            request = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
    except StopIteration as stop:
        return stop.value, asked


def test_append_is_one_transaction_that_names_its_seq_and_renews_the_ttl() -> None:
    one = group(3, 4, 5)
    result, (batch,) = played(event_log.append("k", one, ttl_ms=1_000, groups_max=7), [b"5-0", 1])
    assert result is None
    add, expire = batch.commands
    assert add[:6] == ("XADD", "k", "MAXLEN", "~", 7, "5-0")
    assert expire == ("PEXPIRE", "k", 1_000)
    assert batch.atomic


def test_append_without_a_ttl_leaves_the_log_for_ever() -> None:
    _, (batch,) = played(event_log.append("k", group(3, 4), ttl_ms=0, groups_max=7), [b"4-0"])
    assert [command[0] for command in batch.commands] == ["XADD"]


@pytest.mark.parametrize("resp3", [False, True])
def test_append_that_had_arrived_before_the_connection_broke_is_done(resp3: bool) -> None:
    one = group(3, 4, 5)
    result, asked = played(event_log.append("k", one, ttl_ms=1, groups_max=7), PAST, [[row(one, resp3=resp3)]])
    assert result is None
    assert asked[1].commands == (("XRANGE", "k", "5-0", "5-0"),)


@pytest.mark.parametrize("found", [[], [row(group(2, 5))]])
def test_append_behind_another_writer_is_refused(found: list[Any]) -> None:
    with pytest.raises(StaleWriterError, match="already past it"):
        played(event_log.append("k", group(3, 4, 5), ttl_ms=1, groups_max=7), PAST, [found])


def test_append_lets_other_errors_rise() -> None:
    for error in (ServerUnavailableError("gone"), CommandError("WRONGTYPE")):
        with pytest.raises(type(error)):
            played(event_log.append("k", group(3, 4), ttl_ms=1, groups_max=7), error)


def seqs(page: Any) -> list[int]:
    return [event.seq for event in page.events]


def test_read_after_gives_what_follows_and_says_that_it_is_all() -> None:
    page, (batch,) = played(event_log.read_after("k", 2, groups=3), [[row(group(2, 3, 4)), row(group(4, 9))]])
    assert batch.commands == (("XRANGE", "k", "(2-0", "+", "COUNT", 3),)
    assert (seqs(page), page.last_seq, page.complete, page.lost) == ([3, 4, 9], 9, True, None)


def test_read_after_in_the_middle_of_a_group_gives_its_rest() -> None:
    page, _ = played(event_log.read_after("k", 3), [[row(group(2, 3, 4, 5))]])
    assert (seqs(page), page.lost) == ([4, 5], None)


def test_a_full_page_is_not_complete() -> None:
    page, _ = played(event_log.read_after("k", 2, groups=2), [[row(group(2, 3)), row(group(3, 4))]])
    assert not page.complete


@pytest.mark.parametrize("nothing", [None, []])
def test_an_empty_page_stays_where_it_was(nothing: Any) -> None:
    page, _ = played(event_log.read_after("k", 7), [nothing])
    assert (page.events, page.last_seq, page.complete, page.lost) == ((), 7, True, None)


@pytest.mark.parametrize(
    ("after", "groups", "lost"),
    [
        (0, [group(0, 5)], None),  # the log began here
        (0, [group(4, 5)], LostEvents(4, 5)),  # its beginning was trimmed
        (2, [group(4, 5)], LostEvents(4, 5)),
        (4, [group(4, 9)], None),  # seqs may jump; the chain does not
        (6, [group(4, 9)], LostEvents(4, 9)),  # 6 was an event of a log whose end is lost
        (4, [group(4, 5), group(7, 9)], LostEvents(7, 9)),  # lost in the middle
    ],
)
def test_a_break_in_the_chain_is_told(after: int, groups: list[LogGroup], lost: LostEvents | None) -> None:
    page, _ = played(event_log.read_after("k", after), [[row(one) for one in groups]])
    assert page.lost == lost


@pytest.mark.parametrize(
    "reply",
    [None, {b"k": [row(group(2, 3), resp3=True)]}, [[b"k", [row(group(2, 3))]]]],
    ids=["none", "resp3", "resp2"],
)
def test_tail_waits_on_a_lane_of_its_own_and_reads_both_protocols(reply: Any) -> None:
    page, (batch,) = played(event_log.tail("k", 2, block_ms=500), [reply])
    assert batch.commands == (("XREAD", "COUNT", 64, "BLOCK", 500, "STREAMS", "k", "2-0"),)
    assert batch.lane == "blocking"
    assert batch.timeout_ms is not None
    assert batch.timeout_ms > 500
    assert seqs(page) == ([] if reply is None else [3])


def test_head_is_the_last_group() -> None:
    head, (batch,) = played(event_log.head("k"), [[row(group(2, 3, 4, status="interrupted"))]])
    assert batch.commands == (("XREVRANGE", "k", "+", "-", "COUNT", 1),)
    assert head == LogHead(last_seq=4, run_id="run", run_after_seq=1, status="interrupted")
    assert played(event_log.head("k"), [[]])[0] is None


def test_trim_says_how_many_went() -> None:
    dropped, (batch,) = played(event_log.trim("k", groups_max=5), [3])
    assert (dropped, batch.commands) == (3, (("XTRIM", "k", "MAXLEN", "=", 5),))


@pytest.mark.parametrize("rest", [[1, "r", 1, "idle", [[5, "values", [], b"{}"]]], ["other", "fields"], []])
def test_a_newer_layout_is_refused_whatever_it_holds(rest: list[Any]) -> None:
    newer = [b"5-0", [b"g", msgspec.msgpack.encode([LOG_LAYOUT + 1, *rest])]]
    with pytest.raises(NewerLayoutError, match="upgrade rtmem"):
        played(event_log.read_after("k", 0), [[newer]])


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", msgspec.msgpack.encode([LOG_LAYOUT, "no"]), msgspec.msgpack.encode("x")]
)
def test_bytes_that_are_no_group_are_a_corrupt_record(payload: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="does not decode"):
        played(event_log.head("k"), [[[b"5-0", [b"g", payload]]]])
