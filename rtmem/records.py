"""What is stored or handed from floor to floor, as msgspec structs. No behaviour.

Every stored layout begins with its version, so that an older program can refuse what it does not understand.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

LOG_LAYOUT: Final = 1

ThreadStatus = Literal["running", "interrupted", "idle"]
"""running: a run is at work. interrupted: the graph waits for a person's answer. idle: neither."""


class TurnEvent(msgspec.Struct, frozen=True):
    """One thing that happened in a turn, in the words of the agent streaming protocol, not yet numbered."""

    method: str  # lifecycle, messages, values, updates, tools, tasks, checkpoints, custom, input.requested
    data: Any
    namespace: tuple[str, ...] = ()  # path of the subgraph, () is the graph itself
    node: str | None = None  # of a messages event: the node that speaks
    interrupts: tuple[Any, ...] = ()  # of a values event


class LogEvent(msgspec.Struct, frozen=True, array_like=True):
    """One event as clients receive it, with what a subscription filters on."""

    seq: int  # per thread, never decreases, never used twice
    channel: str  # values, messages, ..., input, custom:<name>
    namespace: tuple[str, ...]
    frame: bytes  # JSON, UTF-8
    without_state: bool = False  # the state was too large to be logged: the frame's data is null


class LogGroup(msgspec.Struct, frozen=True, array_like=True):
    """Events appended together: one entry of the thread's Redis stream, whose id is the seq of the last event."""

    layout: int
    previous_seq: int  # last seq of the group before; the chain by which a reader notices loss. 0: the log began here
    run_id: str
    run_after_seq: int  # the run's events are those after this one
    status: ThreadStatus  # of the thread once these events are true
    events: tuple[LogEvent, ...]


class LogHead(msgspec.Struct, frozen=True):
    """Where a thread's log ends."""

    last_seq: int
    run_id: str
    run_after_seq: int
    status: ThreadStatus
    unheard: bool = False  # the run ended in this process and no subscriber was there to hear it
    ended_ms: int = 0  # when, on this process' monotonic clock


class LostEvents(msgspec.Struct, frozen=True):
    """A place where the log does not continue."""

    after_seq: int  # the group before the place, if it is still there, ended with this seq
    before_seq: int  # the first event behind the place


class LogPage(msgspec.Struct, frozen=True):
    """Some events after a seq."""

    events: tuple[LogEvent, ...]
    last_seq: int  # where to read on
    complete: bool  # nothing more was there
    lost: LostEvents | None = None  # the last such place, if the page has one
