"""The lanes of the awaiting driver: calls that share a connection, and calls that have one to themselves."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from rtmem.drivers import clients
from rtmem.drivers.aio_wire import Call, Wire
from rtmem.drivers.sync import not_sent_in_time
from rtmem.drivers.translate import copy_of
from rtmem.errors import DeadlineExceededError, ServerUnavailableError
from rtmem.settings import Redis


class Lane:
    """Calls that share one connection, in order. What finds it idle is written at once: waiting for the others of its
    tick would take 5 us of a round trip of 60. Everything else that is asked for in one tick leaves as one write."""

    def __init__(self, pool: Any, settings: Redis) -> None:
        self._pool = pool
        self._where = clients.place_of(pool)
        self._connect_timeout_s = settings.connect_timeout_ms / 1000
        # Half of it, because a call's deadline starts before the call is sent.
        self._silence_s_max = settings.deadline_ms / 2000
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Call] = []
        self._flush_scheduled = False
        self._wire: Wire | None = None
        self._connecting: asyncio.Task[None] | None = None
        # One timer for all calls, for the earliest deadline: one each takes 5 us, a tenth of a small command.
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf

    def load(self) -> int:
        """Bytes that are under way or waiting."""
        waiting = sum(call.size for call in self._waiting)
        return waiting + (self._wire.bytes_in_flight if self._wire else 0)

    async def ask(self, call: Call, deadline: float) -> list[Any]:
        call.deadline = deadline
        if not self._waiting and self._wire is not None and not self._wire.in_flight and self._wire.open:
            self._wire.write([call])
        else:
            self._waiting.append(call)
            if not self._flush_scheduled:
                self._flush_scheduled = True
                self._loop.call_soon(self._flush)
        if deadline < self._due:
            self._watch(deadline)
        return await call.future

    def _flush(self) -> None:
        self._flush_scheduled = False
        # Who was cancelled in the meantime is dropped here: nothing of it was sent.
        self._waiting = [call for call in self._waiting if not call.future.done()]
        if not self._waiting:
            return
        if self._wire is None or not self._wire.open:
            if self._connecting is None:
                self._connecting = self._loop.create_task(self._connect())
        elif self._wire.paused:
            # The socket is full. Wait for it, and let the calls gather into one write.
            self._flush_scheduled = True
            self._loop.call_later(0.001, self._flush)
        else:
            calls, self._waiting = self._waiting, []
            self._wire.write(calls)

    async def _connect(self) -> None:
        try:
            connection = Wire(self._where)
            await connection.connect(self._pool, self._connect_timeout_s)
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            self._fail_waiting(exc)
        else:
            self._wire = connection
            self._flush()
        finally:
            self._connecting = None

    def _watch(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._loop.call_later(due - time.monotonic(), self._expire)

    def _expire(self) -> None:
        """Tell those whose time is over, and wait for the next of the others."""
        self._timer, self._due = None, math.inf
        now = time.monotonic()
        under_way = self._wire.in_flight if self._wire else ()
        pending = [call for call in (*under_way, *self._waiting) if not call.future.done()]
        late = [call for call in pending if call.deadline <= now]
        for call in late:
            call.future.set_exception(_deadline_error(self._where, sent=bool(call.sent_at)))
        if late and self._wire is not None and self._wire.silent_s() >= self._silence_s_max:
            # The connection is dead, or the server hangs. The next caller shall not queue behind our reply. Not at
            # once after any deadline: a caller in a hurry must not break what others have under way.
            self._wire.abort()
        due = min((call.deadline for call in pending if call.deadline > now), default=math.inf)
        if due < math.inf:
            self._watch(due)

    def _fail_waiting(self, exc: Exception) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            if not call.future.done():
                call.future.set_exception(copy_of(exc))

    def abandon(self) -> None:
        if self._wire is not None:
            self._wire.abandon()
            self._wire = None

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        self._fail_waiting(_closed_error(self._where))
        if self._wire is not None:
            await self._wire.aclose()
        if self._timer is not None:
            self._timer.cancel()


class ExclusiveLane:
    """Calls that each have a connection to themselves; at most `size`, others wait."""

    def __init__(self, pool: Any, settings: Redis) -> None:
        self._pool = pool
        self._where = clients.place_of(pool)
        self._connect_timeout_s = settings.connect_timeout_ms / 1000
        self._closed = False
        self._places = asyncio.Semaphore(settings.connections_max)
        self._free: list[Wire] = []
        self._busy: set[Wire] = set()

    async def ask(self, call: Call, deadline: float) -> list[Any]:
        try:
            async with asyncio.timeout(deadline - time.monotonic()), self._places:
                return await self._ask(call)
        except TimeoutError as exc:
            raise _deadline_error(self._where, sent=bool(call.sent_at)) from exc

    async def _ask(self, call: Call) -> list[Any]:
        connection = await self._take()
        self._busy.add(connection)
        try:
            connection.write([call])
            replies = await call.future
        except BaseException:
            # Somebody stopped waiting; the reply may still come, so this connection cannot serve another.
            connection.abort()
            raise
        finally:
            self._busy.discard(connection)
        self._free.append(connection)
        return replies

    async def _take(self) -> Wire:
        while self._free:
            connection = self._free.pop()
            if connection.open:
                return connection
        connection = Wire(self._where)
        await connection.connect(self._pool, self._connect_timeout_s)
        if self._closed:
            await connection.aclose()
            raise _closed_error(self._where)
        return connection

    def abandon(self) -> None:
        for connection in (*self._free, *self._busy):
            connection.abandon()
        self._free.clear()

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.gather(*(connection.aclose() for connection in (*self._free, *self._busy)))
        self._free.clear()


def _closed_error(where: str) -> ServerUnavailableError:
    return ServerUnavailableError(
        f"the driver for Redis at {where} was closed before this was sent: keep it open while calls are under way",
        where=where,
        closed=True,
    )


def _deadline_error(where: str, *, sent: bool) -> DeadlineExceededError:
    if not sent:
        return not_sent_in_time(where)
    return DeadlineExceededError(
        f"no answer from Redis at {where} within the deadline; a write may have happened: check the server's "
        "SLOWLOG, or raise deadline_ms",
        where=where,
    )
