"""The log of what was streamed on a thread: one Redis stream, bounded, expiring.

An entry is a *group* of events and its id is `<seq of the last event>-0`. Redis refuses an id that is not above the
newest one, so a seq can never be given to two events, whatever process asks. Each group names the group before it
(`previous_seq`): a reader that finds a break in that chain knows that something is gone (trimmed, expired, or lost with
a Redis that came back without its last writes) and says so. Reading never skips silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rtmem.errors import CommandError, CorruptRecordError, NewerLayoutError, StaleWriterError
from rtmem.records import LOG_LAYOUT, LogEvent, LogGroup, LogHead, LogPage, LostEvents
from rtmem.steps import Batch, Steps

_FIELD: Final = "g"
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(LogGroup)
_layout: Final = msgspec.msgpack.Decoder(list[Any])


def append(key: str, group: LogGroup, *, ttl_ms: int, groups_max: int) -> Steps[None]:
    """Put `group` at the end of the log `key`; safe to send again after a lost connection.

    Args:
        group: at least one event, seqs rising.
        ttl_ms: the whole log lives this long after its last append; 0 means for ever.
        groups_max: older groups are dropped beyond about this many.

    Raises:
        StaleWriterError: the log already holds other events at or above these seqs; another process writes it.

    Redis: 1 round trip (MULTI of XADD and PEXPIRE); 2 if an append is found to have happened already.
    """
    payload = _encoder.encode(group)
    last = group.events[-1].seq
    add = ("XADD", key, "MAXLEN", "~", groups_max, f"{last}-0", _FIELD, payload)
    commands: tuple[tuple[Any, ...], ...] = (add, ("PEXPIRE", key, ttl_ms)) if ttl_ms else (add,)
    try:
        yield Batch(commands, atomic=True)
    except CommandError as exc:
        if "equal or smaller" not in str(exc):
            raise
        # Either this very group arrived before the connection broke, or somebody else is writing.
        (rows,) = yield Batch((("XRANGE", key, f"{last}-0", f"{last}-0"),))
        if not (rows and _payload(rows[0]) == payload):
            raise StaleWriterError(
                f"event log {key}: cannot append seq {last}, the log is already past it: "
                "one process at a time may run a thread; start the run again",
                key=key,
                seq=last,
            ) from exc


def read_after(key: str, seq: int, *, groups: int = 64) -> Steps[LogPage]:
    """Events with a seq above `seq`, oldest first, at most `groups` groups of them.

    Returns:
        A page; read on from its `last_seq` until it is `complete`. `lost` is set when events right after `seq`, or in
        the middle of the page, are no longer there.

    Redis: 1 round trip (XRANGE).
    """
    (rows,) = yield Batch((("XRANGE", key, f"({seq}-0", "+", "COUNT", groups),))
    return _page(key, seq, rows or (), complete=len(rows or ()) < groups)


def tail(key: str, seq: int, *, block_ms: int, groups: int = 64) -> Steps[LogPage]:
    """Like `read_after`, but waits up to `block_ms` for the first event. The page may be empty.

    Redis: 1 round trip (XREAD BLOCK) on the blocking lane.
    """
    command = ("XREAD", "COUNT", groups, "BLOCK", block_ms, "STREAMS", key, f"{seq}-0")
    (reply,) = yield Batch((command,), lane="blocking", timeout_ms=block_ms + 5_000)
    return _page(key, seq, _rows_of_one_stream(reply), complete=True)


def head(key: str) -> Steps[LogHead | None]:
    """Where the log ends, or None when there is none. Redis: 1 round trip (XREVRANGE)."""
    (rows,) = yield Batch((("XREVRANGE", key, "+", "-", "COUNT", 1),))
    if not rows:
        return None
    group = _group(key, rows[0])
    return LogHead(group.events[-1].seq, group.run_id, group.run_after_seq, group.status)


def trim(key: str, *, groups_max: int) -> Steps[int]:
    """Drop the oldest groups beyond `groups_max`, exactly. Returns how many went. Redis: 1 round trip."""
    (dropped,) = yield Batch((("XTRIM", key, "MAXLEN", "=", groups_max),))
    return int(dropped)


def _page(key: str, seq: int, rows: Sequence[Any], *, complete: bool) -> LogPage:
    events: list[LogEvent] = []
    position = seq
    lost: LostEvents | None = None
    for row in rows:
        group = _group(key, row)
        # A group may straddle `seq` (a client saw part of it); anything else must follow on directly. A `seq` that
        # lies between two groups is no event of this log: it was, in a log whose end Redis has lost.
        if group.previous_seq != position and group.events[0].seq > position:
            lost = LostEvents(group.previous_seq, group.events[0].seq)
        events += (event for event in group.events if event.seq > seq)
        position = group.events[-1].seq
    return LogPage(tuple(events), position, complete, lost)


def _rows_of_one_stream(reply: Any) -> Sequence[Any]:
    # RESP3 answers a map of stream to rows, RESP2 a list of pairs; nothing in time is a null.
    if not reply:
        return ()
    if isinstance(reply, dict):
        (rows,) = reply.values()
        return rows  # type: ignore[no-any-return]
    return reply[0][1]  # type: ignore[no-any-return]


def _payload(row: Any) -> bytes:
    fields = row[1]
    return fields[b"g"] if isinstance(fields, dict) else fields[1]  # type: ignore[no-any-return]


def _group(key: str, row: Any) -> LogGroup:
    payload = _payload(row)
    try:
        group = _decoder.decode(payload)
    except msgspec.DecodeError as exc:
        _refuse_newer(key, payload)
        raise CorruptRecordError(
            f"event log {key}: entry {row[0]!r} does not decode: {exc}: DEL this key; the thread's state is not in it, "
            "and clients are given that instead",
            key=key,
        ) from exc
    if group.layout > LOG_LAYOUT:
        _refuse_newer(key, payload)
    return group


def _refuse_newer(key: str, payload: bytes) -> None:
    """Raise NewerLayoutError if the version in front says so, whatever follows it."""
    try:
        layout = _layout.decode(payload)[0]
    except (msgspec.DecodeError, IndexError):
        return
    if isinstance(layout, int) and layout > LOG_LAYOUT:
        raise NewerLayoutError(
            f"event log {key} has layout {layout}, this rtmem knows up to {LOG_LAYOUT}: upgrade rtmem",
            key=key,
            layout=layout,
        )
