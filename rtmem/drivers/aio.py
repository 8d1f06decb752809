"""The awaiting driver: answers each request of an operation, and sends what many tasks ask for as one write.

Three lanes, so that nobody waits behind somebody slower:

- pipelined: one connection. All batches asked for in one tick of the event loop leave as one write; the replies are
  handed out in order. A lone batch is written as it is, without copying.
- large: batches above `large_bytes_min`, on connections of their own; 1 MB in front of a token's checkpoint would
  delay it by milliseconds.
- blocking: a command that waits at the server (XREAD BLOCK) has a connection to itself for as long as it waits.

Cancelling a caller before its batch is written means that nothing happens; afterwards the whole write happens.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from rtmem.drivers import clients, wire
from rtmem.drivers.sync import backoff_s, retry_allowed
from rtmem.drivers.translate import connection_error
from rtmem.errors import DeadlineExceededError, RtmemError, ServerUnavailableError
from rtmem.settings import Redis
from rtmem.steps import Batch, Compute, R, Request, Steps

YIELD_AFTER_US = 2_000
"""How long slices of computing keep the loop before other tasks have their turn."""

LARGE_WIRES_MAX = 4


class AsyncDriver:
    """Runs operations against one Redis, awaiting. Belongs to one event loop at a time."""

    def __init__(self, pool: Any, settings: Redis | None = None) -> None:
        self.settings = settings or Redis()
        self._pool = pool
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    async def connect(cls, url: str, settings: Redis | None = None) -> AsyncDriver:
        """A driver for `url`, after one PING. Raises ConfigError, AuthenticationError, ServerUnavailableError."""
        driver = cls.lazy(url, settings)
        try:
            await driver.answer(Batch((("PING",),)))
        except BaseException:
            await driver.aclose()
            raise
        return driver

    @classmethod
    def lazy(cls, url: str, settings: Redis | None = None) -> AsyncDriver:
        """A driver for `url` that connects when it is first used."""
        settings = settings or Redis()
        if clients.scheme_of(url) == "redis+cluster":
            from rtmem.drivers.cluster import AsyncClusterDriver

            return AsyncClusterDriver(url, settings)
        return cls(clients.async_pool(url, settings), settings)

    @classmethod
    def of_client(cls, client: Any, settings: Redis | None = None) -> AsyncDriver:
        """A driver that connects the way `client` (redis.asyncio.Redis) does."""
        return cls(clients.pool_of(client), settings)

    async def run(self, steps: Steps[R]) -> R:
        """Run an operation to its end and return what it returns; errors of Redis are thrown into it."""
        try:
            request = next(steps)
            while True:
                try:
                    replies = await self.answer(request)
                except RtmemError as exc:
                    request = steps.throw(exc)
                else:
                    request = steps.send(replies)
        except StopIteration as stop:
            result: R = stop.value
            return result
        finally:
            steps.close()

    async def answer(self, request: Request) -> list[Any]:
        """The replies to one request. Retries idempotent batches after a lost connection, inside one deadline."""
        if isinstance(request, Compute):
            return await _compute(request)
        timeout_ms = self.settings.deadline_ms if request.timeout_ms is None else request.timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        for attempt in range(self.settings.retries_max + 1):
            try:
                return wire.settle(request, await self._exchange(request, deadline))
            except RtmemError as exc:
                if not retry_allowed(exc, request) or attempt == self.settings.retries_max:
                    raise
                pause_s = backoff_s(attempt)
                if time.monotonic() + pause_s >= deadline:
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _exchange(self, batch: Batch, deadline: float) -> list[Any]:
        if self._loop is not asyncio.get_running_loop():
            self._adopt_loop()
        payload = wire.pack(batch)
        call = _Call(payload, wire.replies_expected(batch), self._lanes_loop.create_future())
        if batch.lane == "auto" and len(payload) < self.settings.large_bytes_min:
            return await self._pipelined.ask(call, deadline)
        if batch.lane == "blocking":
            return await self._blocking.ask(call, deadline)
        return await min(self._large, key=_Lane.load).ask(call, deadline)

    def _adopt_loop(self) -> None:
        # A second asyncio.run() with the same driver: connections of a closed loop cannot be used, nor closed.
        self._loop = self._lanes_loop = asyncio.get_running_loop()
        self._pipelined = _Lane(self._pool)
        self._large = [_Lane(self._pool) for _ in range(LARGE_WIRES_MAX)]
        self._blocking = _ExclusiveLane(self._pool, self.settings.connections_max)

    async def aclose(self) -> None:
        """Close every connection. What was already written is executed by the server; its callers get an error."""
        if self._loop is asyncio.get_running_loop():
            for lane in (self._pipelined, *self._large):
                await lane.aclose()
            await self._blocking.aclose()
            self._loop = None

    async def __aenter__(self) -> AsyncDriver:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


async def _compute(request: Compute) -> list[Any]:
    turn_ends = time.perf_counter_ns() + YIELD_AFTER_US * 1000
    for _ in request.slices:
        if time.perf_counter_ns() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.perf_counter_ns() + YIELD_AFTER_US * 1000
    return []


class _Call:
    """A packed batch, the replies that have come so far, and who waits for them."""

    __slots__ = ("count", "future", "payload", "replies", "sent_at")

    def __init__(self, payload: bytes, count: int, future: asyncio.Future[list[Any]]) -> None:
        self.payload = payload
        self.count = count
        self.future = future
        self.replies: list[Any] = []
        self.sent_at = 0.0


class _Wire(asyncio.Protocol):
    """One connection: made by redis-py, whose transport is then taken over.

    redis-py's stream reader costs about three times as much per reply as feeding the parser right where the bytes
    arrive. set_protocol() is asyncio's own way to do that; the price is that `_writer` is not public.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.in_flight: deque[_Call] = deque()
        self.bytes_in_flight = 0
        self.received_at = 0.0
        self.paused = False
        self._reader = wire.new_reader()
        self._connection: Any = None
        self._transport: asyncio.Transport | None = None

    async def connect(self, pool: Any) -> None:
        connection = pool.make_connection()
        try:
            await connection.connect()
        except Exception as exc:
            await connection.disconnect(nowait=True)
            raise connection_error(exc, self.where) from exc
        self._connection = connection
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, calls: list[_Call]) -> None:
        """Send `calls` as one write."""
        assert self._transport is not None, "connect() comes before write()"
        now = time.monotonic()
        for call in calls:
            call.sent_at = now
            self.bytes_in_flight += len(call.payload)
        self.in_flight.extend(calls)
        self._transport.write(calls[0].payload if len(calls) == 1 else b"".join([c.payload for c in calls]))

    def data_received(self, data: bytes) -> None:
        reader, in_flight = self._reader, self.in_flight
        self.received_at = time.monotonic()
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not wire.NOTHING:
                if wire.is_push(reply):
                    continue
                call = in_flight[0]
                call.replies.append(reply)
                if len(call.replies) == call.count:
                    in_flight.popleft()
                    self.bytes_in_flight -= len(call.payload)
                    if not call.future.done():
                        call.future.set_result(call.replies)
        except Exception as exc:  # noqa: BLE001 - a parser that lost its place must not be read any further
            self.abort(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc else "the server closed the connection"
        while self.in_flight:
            call = self.in_flight.popleft()
            if not call.future.done():
                error = ServerUnavailableError(
                    f"the connection to Redis at {self.where} broke ({reason}); a write may have happened",
                    where=self.where,
                    sent=True,
                )
                error.__cause__ = exc
                call.future.set_exception(error)
        self.bytes_in_flight = 0
        if self._connection is not None:
            # The transport is closed; redis-py must not warn that nobody closed it.
            self._connection._writer = self._connection._reader = None

    def abort(self, exc: BaseException | None = None) -> None:
        """Give the connection up at once."""
        if self._transport is not None:
            self._transport.abort()

    async def aclose(self) -> None:
        if self._transport is not None:
            self._transport.close()
            # connection_lost() comes in the next tick.
            await asyncio.sleep(0)
            self.connection_lost(None)


class _Lane:
    """Calls that share one connection, in order. Everything asked for in one tick leaves as one write."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._where = clients.place_of(pool.connection_kwargs)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Call] = []
        self._flush_scheduled = False
        self._wire: _Wire | None = None
        self._connecting: asyncio.Task[None] | None = None

    def load(self) -> int:
        """Bytes that are under way or waiting."""
        waiting = sum(len(call.payload) for call in self._waiting)
        return waiting + (self._wire.bytes_in_flight if self._wire else 0)

    async def ask(self, call: _Call, deadline: float) -> list[Any]:
        self._waiting.append(call)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)
        timer = self._loop.call_later(deadline - time.monotonic(), self._expire, call)
        try:
            return await call.future
        finally:
            timer.cancel()

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
            connection = _Wire(self._where)
            await connection.connect(self._pool)
        except Exception as exc:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                if not call.future.done():
                    call.future.set_exception(_copy_of(exc))
        else:
            self._wire = connection
            self._flush()
        finally:
            self._connecting = None

    def _expire(self, call: _Call) -> None:
        if call.future.done():
            return
        call.future.set_exception(_deadline_error(self._where))
        if self._wire is not None and call.sent_at and self._wire.received_at < call.sent_at:
            # Not a byte since this call was sent: the connection is dead, or the server hangs. The next
            # caller shall not wait for a reply that queues behind ours.
            self._wire.abort()

    async def aclose(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        for call in self._waiting:
            call.future.cancel()
        if self._wire is not None:
            await self._wire.aclose()


class _ExclusiveLane:
    """Calls that each have a connection to themselves; at most `size`, others wait."""

    def __init__(self, pool: Any, size: int) -> None:
        self._pool = pool
        self._size = size
        self._where = clients.place_of(pool.connection_kwargs)
        self._places = asyncio.Semaphore(size)
        self._free: list[_Wire] = []
        self._busy: set[_Wire] = set()

    async def ask(self, call: _Call, deadline: float) -> list[Any]:
        try:
            async with asyncio.timeout(deadline - time.monotonic()), self._places:
                return await self._ask(call)
        except TimeoutError as exc:
            raise _deadline_error(self._where) from exc

    async def _ask(self, call: _Call) -> list[Any]:
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

    async def _take(self) -> _Wire:
        while self._free:
            connection = self._free.pop()
            if connection.open:
                return connection
        connection = _Wire(self._where)
        await connection.connect(self._pool)
        return connection

    async def aclose(self) -> None:
        for connection in (*self._free, *self._busy):
            await connection.aclose()
        self._free.clear()


def _copy_of(exc: Exception) -> Exception:
    # One exception object raised in several tasks would collect all their tracebacks.
    if not isinstance(exc, RtmemError):
        return exc
    twin = type(exc)(exc.message, **exc.data)
    twin.__cause__ = exc
    return twin


def _deadline_error(where: str) -> DeadlineExceededError:
    return DeadlineExceededError(
        f"no answer from Redis at {where} within the deadline; a write may have happened: check the server's "
        "SLOWLOG, or raise deadline_ms",
        where=where,
    )
