"""What a client is told when the log cannot continue where it left off.

Three frames, made for this client and not part of the log: a custom event named `rtmem.replay_gap` that says what is
missing, a `values` event with the state as it is now, and, when nothing more will come, the lifecycle event that the
client may be waiting for. They are sent whatever the subscription's channels are; the SDKs drop what they did not ask
for.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

from langgraph.types import StateSnapshot

from rtmem.gateway import protocol
from rtmem.records import ThreadStatus, TurnEvent

GAP_EVENT: Final = "rtmem.replay_gap"


def gap_events(
    since_seq: int, seq: int, snapshot: StateSnapshot | None, status: ThreadStatus | None
) -> Iterator[bytes]:
    """Frames that bridge a gap.

    Args:
        since_seq: what the client had seen.
        seq: the frames carry it; the log goes on after it.
        snapshot: the thread's state, None if it has none.
        status: of the thread, if the log ends here; None if logged events follow.
    """
    message = (
        f"events after seq {since_seq} are no longer in the log (trimmed, expired, or lost by Redis); "
        "the values event that follows holds the state they led to"
    )
    told = {"name": GAP_EVENT, "payload": {"since": since_seq, "resumes_after": seq, "message": message}}
    yield _frame(TurnEvent("custom", told), seq)
    yield _frame(TurnEvent("values", snapshot.values if snapshot is not None else {}), seq)
    if status is not None and status != "running":
        for event in _ending(snapshot):
            yield _frame(event, seq)


def _ending(snapshot: StateSnapshot | None) -> Iterator[TurnEvent]:
    """How the last run ended, read from what it left behind."""
    data: dict[str, Any] = {"event": "completed"}
    if snapshot is not None and snapshot.interrupts:
        for asked in snapshot.interrupts:
            yield TurnEvent("input.requested", {"interrupt_id": asked.id, "payload": asked.value, "value": asked.value})
        data = {"event": "interrupted"}
    elif snapshot is not None and snapshot.next:
        error = f"the run stopped before {', '.join(snapshot.next)}"
        data = {"event": "failed", "error": error, "resumable": not any(task.error for task in snapshot.tasks)}
    yield TurnEvent("lifecycle", data)


def _frame(event: TurnEvent, seq: int) -> bytes:
    event_id = f"gap-{secrets.token_hex(8)}"
    return protocol.encode_event(event, seq=seq, event_id=event_id, timestamp_ms=time.time_ns() // 1_000_000)
