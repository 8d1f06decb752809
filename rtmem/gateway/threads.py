"""A thread as this process knows it: numbers events, logs them in groups, and hands them to whoever listens.

The order is: number, append, deliver. A client never sees an event that is not in the log, so a seq it has seen can
never come to mean something else, whatever is killed when. The price is one Redis round trip before the first token
of a group; groups are at least `log_flush_ms` apart, the first of a burst goes at once.

Seqs rise by one. When a run begins, its first seq is at least the clock in milliseconds: then seqs keep rising even if
the log has expired meanwhile, or if a Redis has come back without its last writes. (A thread would have to stream more
than a thousand events a second, all its life, to overtake the clock.)

One exception to the order, and it is told as such: when Redis cannot take the events that end a run, they are delivered
all the same (a client must learn that its run failed) and stay in memory to be appended before anything else is.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol
from weakref import WeakValueDictionary

import anyio
import msgspec

from rtmem.agent import turn
from rtmem.errors import RunInProgressError, StaleWriterError
from rtmem.eventlog import AsyncEventLog
from rtmem.gateway import protocol
from rtmem.records import LOG_LAYOUT, LogEvent, LogGroup, LogHead, ThreadStatus, TurnEvent
from rtmem.settings import Gateway

_EMPTY: Final = LogHead(last_seq=0, run_id="", run_after_seq=0, status="idle")
_STATUS: Final[dict[str, ThreadStatus]] = {
    "running": "running",
    "interrupted": "interrupted",
    "completed": "idle",
    "failed": "idle",
}


class Listener(Protocol):
    """Somebody who follows a thread."""

    def deliver(self, event: LogEvent) -> bool:
        """Take a live event; True if it was wanted. Never raises, never waits."""
        ...


@dataclass(eq=False, slots=True)
class Run:
    """A run at work in this process."""

    id: str
    assistant_id: str
    after_seq: int = 0
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    accepted: anyio.Event = field(default_factory=anyio.Event)  # its beginning is in the log, or it has failed
    error: Exception | None = None
    stop_reason: str = ""


class LiveThread:
    """One (principal, thread_id)."""

    def __init__(self, principal: str, thread_id: str, log: AsyncEventLog, settings: Gateway) -> None:
        self.principal = principal
        self.thread_id = thread_id
        self.key = log.key(principal, thread_id)
        self.run: Run | None = None
        self.listeners: set[Listener] = set()
        self.head = _EMPTY
        self._known = False  # head has been read from the log
        self._log = log
        self._settings = settings
        self._pending: list[LogEvent] = []  # numbered, not appended
        self._status: ThreadStatus = "idle"  # once all pending events are true
        self._run_id = ""  # of the current or last run
        self._run_after_seq = 0
        self._in_doubt: LogGroup | None = None  # sent; perhaps in the log, perhaps not: only to be sent again as it is
        self._numbered_seq = 0
        self._delivered_seq = 0
        self._lock = anyio.Lock()
        self._wake = anyio.Event()
        self._room = anyio.Event()

    @property
    def idle(self) -> bool:
        """May this object be forgotten? The log knows the rest."""
        return self.run is None and not self.listeners and not self._pending and self._in_doubt is None

    async def contact(self) -> None:
        """Make `head` true: read it once, append what Redis could not take before, and end a run whose process died.

        Raises:
            ServerError: Redis does not answer.
        """
        if self._known and not self._pending and self._in_doubt is None:
            return
        if self.run is not None:
            return
        async with self._lock:
            if self._known:
                await self._append_pending()
                return
            self.head = await self._log.head(self.key) or _EMPTY
            self._numbered_seq = self._delivered_seq = self.head.last_seq
            self._status = self.head.status
            self._run_id, self._run_after_seq = self.head.run_id, self.head.run_after_seq
            if self.head.status == "running":
                # The log's last word is that a run is at work, and it is not at work here. (With several gateway
                # processes the run's lease would say whether it lives elsewhere.)
                self._jump_to_clock()
                self._number(
                    turn.failed(
                        "",
                        f"run {self.head.run_id} was cut off: its gateway stopped; every finished step is stored, "
                        "start a run without input to go on from there",
                        resumable=True,
                    )
                )
                await self._append_pending()
            self._known = True

    def begin(self, run: Run) -> None:
        """Give the thread to `run`. Call `contact` first. Raises RunInProgressError."""
        if self.run is not None:
            raise RunInProgressError(
                f"thread {self.thread_id!r} is busy with run {self.run.id}: wait for its lifecycle event "
                "completed, failed or interrupted, then start again",
                run_id=self.run.id,
            )
        run.after_seq = self.head.last_seq
        self.run = run
        self._run_id, self._run_after_seq = run.id, run.after_seq
        self._jump_to_clock()

    async def publish(self, event: TurnEvent) -> None:
        """Number `event` of the current run. It is appended and delivered by `flush_continuously`, or by `flush`."""
        while len(self._pending) >= 4 * self._settings.log_group_events_max:
            await self._room.wait()  # Redis is slower than the graph: the graph waits
        self._number(event)
        self._wake.set()

    async def flush_continuously(self) -> None:
        """Append what is published, in groups. Runs beside a turn until cancelled."""
        pause_s = self._settings.log_flush_ms / 1_000
        while True:
            await self._wake.wait()
            self._wake = anyio.Event()
            await self.flush()
            await anyio.sleep(pause_s)

    async def flush(self) -> None:
        """Append and deliver everything published so far. Raises ServerError, StaleWriterError."""
        async with self._lock:
            await self._append_pending()

    def end(self, event: TurnEvent) -> None:
        """Number the last event of a run without waiting for room; `flush` is the caller's next step."""
        self._number(event)

    def deliver_unlogged(self, event: TurnEvent) -> None:
        """Deliver the end of a run that Redis does not take; it is appended when Redis is back, before anything else.

        If another process has taken the log over, there is nothing to append: the event only tells who listens here.
        """
        if not self._known:
            self._jump_to_clock()
            self._number(event)
        self._deliver((*(self._in_doubt.events if self._in_doubt is not None else ()), *self._pending))
        if not self._known:
            self._pending.clear()

    def forget(self) -> None:
        """Another process writes this log: drop what could not be appended, and read the head again."""
        self._pending.clear()
        self._in_doubt = None
        self._known = False

    def _number(self, event: TurnEvent) -> None:
        self._numbered_seq += 1
        seq = self._numbered_seq
        frame = protocol.encode_event(
            event, seq=seq, event_id=f"{seq}-{_PROCESS}", timestamp_ms=time.time_ns() // 1_000_000
        )
        self._pending.append(LogEvent(seq, protocol.channel_of(event), event.namespace, frame))
        if event.method == "lifecycle" and not event.namespace:
            self._status = _STATUS[event.data["event"]]

    def _jump_to_clock(self) -> None:
        self._numbered_seq = max(self._numbered_seq, time.time_ns() // 1_000_000)

    async def _append_pending(self) -> None:
        while self._in_doubt is not None or self._pending:
            if self._in_doubt is None:
                self._in_doubt = self._next_group()
            group = self._in_doubt
            try:
                # Shielded: cancelled half way, we would not know whether the group is in the log. The driver's
                # deadline bounds the wait.
                with anyio.CancelScope(shield=True):
                    await self._log.append(self.key, self._for_log(group))
            except StaleWriterError:
                self.forget()
                raise
            self._in_doubt = None
            self._room.set()
            self._room = anyio.Event()
            self._advance(group)

    def _next_group(self) -> LogGroup:
        events = tuple(self._pending[: self._settings.log_group_events_max])
        del self._pending[: len(events)]
        # While more events wait, the run that made them is still at work as far as a reader of this group can know.
        status = "running" if self._pending else self._status
        return LogGroup(LOG_LAYOUT, self.head.last_seq, self._run_id, self._run_after_seq, status, events)

    def _for_log(self, group: LogGroup) -> LogGroup:
        """`group` without states that are large: told after each step, they would fill Redis with copies of one thread.

        The state of a subgraph stays: when the subgraph has ended, nobody could give a current one.
        """
        limit = self._settings.log_values_bytes_max
        if not any(_is_large_state(event, limit) for event in group.events):
            return group
        events = tuple(
            LogEvent(event.seq, event.channel, event.namespace, protocol.without_state(event.frame), True)
            if _is_large_state(event, limit)
            else event
            for event in group.events
        )
        return msgspec.structs.replace(group, events=events)

    def _advance(self, group: LogGroup) -> None:
        """`group` is in the log: move the head, then deliver, so that a reaction to an event finds the thread ready."""
        self.head = LogHead(group.events[-1].seq, group.run_id, group.run_after_seq, group.status)
        self._deliver(group.events)

    def _deliver(self, events: Sequence[LogEvent]) -> None:
        ended = self.run is not None and self._status != "running" and self._numbered_seq == events[-1].seq
        if ended:
            self.run = None
        heard = False
        for event in events:
            if event.seq > self._delivered_seq:
                self._delivered_seq = event.seq
                # Every listener gets it (no generator: it would stop at the first); was the last event wanted at all?
                wanted = [listener.deliver(event) for listener in tuple(self.listeners)]
                heard = any(wanted)
        if ended:
            now_ms = time.monotonic_ns() // 1_000_000
            self.head = msgspec.structs.replace(self.head, unheard=not heard, ended_ms=now_ms)


def _is_large_state(event: LogEvent, limit: int) -> bool:
    return event.channel == "values" and not event.namespace and len(event.frame) > limit


class Threads:
    """The threads this process has met lately; never two objects for one thread."""

    def __init__(self, log: AsyncEventLog, settings: Gateway) -> None:
        self._log = log
        self._settings = settings
        # Whoever uses a thread holds it: connections, requests, runs. So it is found here as long as it is in use, and
        # what is kept beyond that is a cache.
        self._in_use: WeakValueDictionary[tuple[str, str], LiveThread] = WeakValueDictionary()
        self._kept: OrderedDict[tuple[str, str], LiveThread] = OrderedDict()

    def get(self, principal: str, thread_id: str) -> LiveThread:
        """The thread, which need not exist yet. Raises IdTooLongError."""
        name = (principal, thread_id)
        thread = self._in_use.get(name)
        if thread is None:
            thread = LiveThread(principal, thread_id, self._log, self._settings)
            self._in_use[name] = thread
        self._kept[name] = thread
        self._kept.move_to_end(name)
        self._evict()
        return thread

    def _evict(self) -> None:
        # Oldest first. One with events that Redis has not taken yet stays: nobody else has them.
        surplus = len(self._kept) - self._settings.threads_cached_max
        for name in list(self._kept)[: max(0, surplus)]:
            if self._kept[name].idle:
                del self._kept[name]


_PROCESS: Final = secrets.token_hex(4)
"""Makes event ids of different processes different, whatever happened to the log between them."""
