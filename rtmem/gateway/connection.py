"""One websocket connection: a reading task, a writing task, and one task for each subscription that is catching up.

Decisions are made in `session.py`; here they are carried out.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup
from starlette.websockets import WebSocketDisconnect

from rtmem.errors import (
    CorruptRecordError,
    DrainingError,
    NewerLayoutError,
    RtmemError,
    ServerError,
    StateUnreadableError,
    StorageError,
)
from rtmem.gateway import protocol
from rtmem.gateway.outbox import Outbox, SlowReaderError
from rtmem.gateway.protocol import (
    Command,
    InputRespondParams,
    PrefetchParams,
    RunStartParams,
    StateGetParams,
    SubscribeParams,
    UnsubscribeParams,
)
from rtmem.gateway.replay import gap_events
from rtmem.gateway.session import Session, Subscription
from rtmem.gateway.threads import LiveThread
from rtmem.records import LogEvent

if TYPE_CHECKING:
    from rtmem.gateway.app import Gateway

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SLOW_READER: Final = 4429  # 4000 + HTTP status: the SDKs retry 4408, 4429, 1012 and 1013, and give up on other 4xxx
TRY_AGAIN_LATER: Final = 1013
UNREADABLE: Final = 4409
_LASTING: Final = (CorruptRecordError, NewerLayoutError, StateUnreadableError)  # coming back changes nothing


class Connection:
    """Serves one accepted websocket until either side ends it."""

    def __init__(self, thread: LiveThread, gateway: Gateway, receive: Receive, send: Send) -> None:
        settings = gateway.settings
        self._thread = thread
        self._gateway = gateway
        self._runs = gateway.runs
        self._log = gateway.log
        self._receive = receive
        self._send = send
        self._session = Session(settings.subscriptions_max)
        self._outbox = Outbox(frames_max=settings.outbox_frames_max, bytes_max=settings.outbox_bytes_max)
        self._close_timeout_s = settings.close_timeout_ms / 1_000
        self._close: tuple[int, str] | None = None
        self._gone = False  # the client takes nothing any more, no close frame either
        self._has_prefetched = False  # for a message that has not come yet
        self._stall_timeout_s = settings.stall_timeout_ms / 1_000
        self._tasks: TaskGroup

    async def serve(self) -> None:
        """Returns when the client has gone or has been sent away. The caller has accepted the websocket."""
        self._gateway.connections.add(self)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write, name="websocket writer")
                await self._read()
                tasks.cancel_scope.cancel()
        finally:
            self._thread.listeners.discard(self)
            self._gateway.connections.discard(self)
            if self._has_prefetched:
                self._gateway.memories.cancel_prefetch(self._thread.principal, self._thread.thread_id)
        if self._close is not None and not self._gone:
            code, reason = self._close
            with anyio.move_on_after(self._close_timeout_s):
                await self._send({"type": "websocket.close", "code": code, "reason": reason})

    async def told(self) -> None:
        """Wait until all that the client is to hear by now has been sent."""
        await self._outbox.emptied()

    def deliver(self, event: LogEvent) -> bool:
        """Take a live event of the thread. See threads.Listener."""
        if self._session.wants(event):
            try:
                self._outbox.put_event(event)
            except SlowReaderError:
                # The log has it too. All that follow it there at once, so that none is sent twice.
                self._tasks.start_soon(self._catch_up, self._session.fall_behind())
        self._session.passed(event)
        return self._session.follows(event)

    def _end(self, code: int, reason: str, *, after_flush: bool = False) -> None:
        """Close with `code`: at once, or when what waits in the outbox has been sent."""
        if self._close is None:
            # A close frame holds 125 bytes, 2 of them the code.
            self._close = (code, reason.encode()[:120].decode("utf-8", "ignore"))
        if after_flush:
            self._outbox.finish()
        else:
            self._tasks.cancel_scope.cancel()

    async def _write(self) -> None:
        try:
            while True:
                frame = await self._outbox.get()
                await self._send({"type": "websocket.send", "text": frame.decode()})
        except anyio.EndOfStream:
            self._end(*(self._close or (1000, "")))
        except (OSError, WebSocketDisconnect):
            # The client has gone: the reader learns it too, and ends the connection.
            self._gone = True

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return
            text = message.get("text")
            decided = self._session.receive(text if text is not None else message.get("bytes") or b"")
            if isinstance(decided, bytes):
                self._reply(decided)
            else:
                await self._carry_out(decided)

    def _reply(self, frame: bytes) -> None:
        try:
            self._outbox.put(frame)
        except SlowReaderError as exc:
            self._end(SLOW_READER, str(exc))

    async def _carry_out(self, command: Command) -> None:
        """Do what `command` asks and answer it. Commands of one connection are carried out in their order."""
        params = command.params
        try:
            match params:
                case SubscribeParams():
                    await self._subscribe(command.id, params)
                case UnsubscribeParams():
                    self._session.unsubscribe(params.subscription_id)
                    self._reply(protocol.success(command.id, {}))
                case RunStartParams():
                    run = await self._runs.start(self._thread, params)
                    self._has_prefetched = False  # it is the run's now
                    self._session.started_run_id = run.id
                    self._reply(protocol.success(command.id, {"run_id": run.id}, applied_through_seq=run.after_seq))
                case InputRespondParams():
                    run = await self._runs.respond(self._thread, params)
                    self._session.started_run_id = run.id
                    self._reply(protocol.success(command.id, {"run_id": run.id}, applied_through_seq=run.after_seq))
                case StateGetParams():
                    self._reply(protocol.success(command.id, await self._gateway.state(self._thread, params)))
                case PrefetchParams():
                    self._has_prefetched = True
                    self._reply(protocol.success(command.id, self._gateway.prefetch(self._thread, params)))
        except RtmemError as exc:
            self._reply(protocol.failure(command.id, exc))
            if isinstance(params, SubscribeParams) and isinstance(exc, ServerError | DrainingError | StorageError):
                self._give_up(exc)

    def _give_up(self, error: RtmemError) -> None:
        """The stream cannot be read: say so, and close so that the client comes back, unless that would not help.

        An unanswered subscription would look like a quiet thread: the Python SDK ignores replies on its event socket.
        It does read an error frame without an id, and reconnects after 1013.
        """
        self._reply(protocol.failure(None, error))
        code = UNREADABLE if isinstance(error, _LASTING) else TRY_AGAIN_LATER
        self._end(code, error.message, after_flush=True)

    async def _subscribe(self, command_id: int, params: SubscribeParams) -> None:
        await self._thread.contact()
        self._thread.listeners.add(self)
        now_ms = time.monotonic_ns() // 1_000_000
        subscription = self._session.subscribe(params, self._thread.head, now_ms)
        self._reply(protocol.success(command_id, {"subscription_id": subscription.id}))
        self._tasks.start_soon(self._catch_up, [subscription], name=subscription.id)

    async def _catch_up(self, subscriptions: Sequence[Subscription]) -> None:
        """Send the past of subscriptions that start at one seq, at the client's pace; then let them live."""
        try:
            await self._send_past(subscriptions, subscriptions[0].start_seq)
        except SlowReaderError as exc:
            self._end(SLOW_READER, exc.message)
        except RtmemError as exc:
            self._give_up(exc)

    async def _send_past(self, subscriptions: Sequence[Subscription], since: int) -> None:
        position = since
        if position > self._thread.head.last_seq:
            # The client has seen more than the log holds: Redis came back without its last writes.
            position = self._thread.head.last_seq
            await self._tell_gap(since, position, at_end=True)
        while any(not one.ended for one in subscriptions):
            target = self._thread.head.last_seq
            if position >= target:
                # No await between this comparison and the step to live: no event can fall between.
                self._session.caught_up(subscriptions, position)
                return
            page = await self._log.read_after(self._thread.key, position)
            values = await self._values_now() if any(event.without_state for event in page.events) else None
            for event in page.events:
                if page.lost is not None and event.seq == page.lost.before_seq:
                    await self._tell_gap(since, page.lost.after_seq, at_end=False)
                if any(one.matches(event) and not one.ended for one in subscriptions):
                    frame = protocol.with_state(event.frame, values) if event.without_state else event.frame
                    await self._put_when_there_is_room(frame)
            position = page.last_seq
            if page.complete and position < target:
                position = target
                await self._tell_gap(since, position, at_end=True)

    async def _values_now(self) -> Any:
        """What stands in for states that were too large for the log."""
        snapshot = await self._runs.snapshot(self._thread)
        return snapshot.values if snapshot is not None else {}

    async def _tell_gap(self, since: int, seq: int, *, at_end: bool) -> None:
        """Never skip silently: say that events are gone, and give the state that they led to."""
        snapshot = await self._runs.snapshot(self._thread)
        status = self._thread.head.status if at_end else None
        for frame in gap_events(since, seq, snapshot, status):
            await self._put_when_there_is_room(frame)

    async def _put_when_there_is_room(self, frame: bytes) -> None:
        await self._outbox.room(stall_timeout_s=self._stall_timeout_s)
        self._outbox.put(frame)
