"""The awaiting driver: answers each request of an operation, and sends what many tasks ask for as one write.

Four lanes, so that nobody waits behind somebody slower:

- pipelined: one connection. A batch that finds it idle leaves at once, as it is; all others that are asked for in one
  tick of the event loop leave as one write. The replies are handed out in order.
- large: batches above `large_bytes_min`, on connections of their own; 1 MB in front of a token's checkpoint would
  delay it by milliseconds.
- blocking: a command that waits at the server (XREAD BLOCK) has a connection to itself for as long as it waits.
- durable: the same for what waits for a disk (WAITAOF); groups.py lets many share one such wait.

Cancelling a caller before its batch is written means that nothing happens; afterwards the whole write happens.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import redis.asyncio

from rtmem.drivers import clients, vectors, wire
from rtmem.drivers.aio_wire import Call
from rtmem.drivers.groups import AsyncGroups
from rtmem.drivers.lanes import ExclusiveLane, Lane
from rtmem.drivers.sync import backoff_s, retry_allowed
from rtmem.errors import (
    EmbeddingUnavailableError,
    InvalidRequestError,
    PersistenceError,
    ReadOnlyReplicaError,
    RtmemError,
)
from rtmem.settings import Redis
from rtmem.steps import Batch, Begin, Begun, Compute, Embed, Embedder, R, Request, Shared, Steps
from rtmem.steps import Call as Asked  # `Call` is a batch under way in this folder

YIELD_AFTER_US = 1_000
"""How long slices of computing keep the loop before other tasks have their turn.

A timer that comes due meanwhile waits for two such turns: asyncio runs what was ready before it first. With 1 ms and
slices of up to 1.1 ms, decoding 1 MB delays a timer by 4 ms and encoding by 2.4 ms (2 ms: 5.8 and 4.4).
"""

LARGE_WIRES_MAX = 4

_wishes: set[asyncio.Task[list[Any]]] = set()  # an event loop alone would forget them


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
            # A server whose disk is full denies even PING, and can be read.
            with suppress(PersistenceError):
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
        return cls(clients.pool_of(client, redis.asyncio.ConnectionPool), settings)

    async def run(self, steps: Steps[R], embedder: Embedder | None = None) -> R:
        """Run an operation to its end and return what it returns; whatever ends a request is thrown into it.

        What it began and does not wait for is told to stop when it ends, and not waited for. What it asks for after
        its caller was cancelled, to clean up, is done even if the caller is cancelled again, as anyio's scopes do.
        """
        begun: list[asyncio.Task[list[Any]]] = []
        is_cancelled = False
        try:
            request = next(steps)
            while True:
                try:
                    if isinstance(request, Batch):
                        replies = await (self._last_wish(request) if is_cancelled else self.answer(request))
                    else:
                        replies = await self._reply(request, embedder, begun)
                except BaseException as exc:  # noqa: BLE001 - the steps let it rise
                    is_cancelled = is_cancelled or isinstance(exc, asyncio.CancelledError)
                    request = steps.throw(exc)
                else:
                    request = steps.send(replies)
        except StopIteration as stop:
            result: R = stop.value
            return result
        finally:
            steps.close()
            for task in begun:
                task.cancel()

    async def _last_wish(self, request: Batch) -> list[Any]:
        task = asyncio.create_task(self.answer(request))
        _wishes.add(task)
        task.add_done_callback(_wishes.discard)
        task.add_done_callback(_heard)
        await asyncio.wait((task,))  # goes on if this is cancelled
        return task.result()

    async def _reply(
        self, request: Request, embedder: Embedder | None, begun: list[asyncio.Task[list[Any]]]
    ) -> list[Any]:
        if isinstance(request, Begin):
            task = asyncio.create_task(self._reply(request.request, embedder, begun))
            task.add_done_callback(_heard)
            begun.append(task)
            return [Begun(task)]
        if isinstance(request, Begun):
            replies: list[Any] = await request.answer
            return replies
        if isinstance(request, Embed):
            return await _embed(request, vectors.required(embedder))
        if isinstance(request, Asked):
            return [await self._call(request)]
        return await self.answer(request)

    async def _call(self, request: Asked) -> Any:
        beside = None if request.beside is None else asyncio.create_task(self._beside(request))
        try:
            async with asyncio.timeout(None if request.timeout_ms is None else request.timeout_ms / 1000):
                if request.apart and not inspect.iscoroutinefunction(request.function):
                    result = await asyncio.to_thread(request.function, *request.args)
                else:
                    result = request.function(*request.args)
                return await result if inspect.isawaitable(result) else result
        finally:
            if beside is not None:
                beside.add_done_callback(_heard)
                beside.cancel()

    async def _beside(self, request: Asked) -> None:
        assert request.beside is not None, "a call without steps beside it needs no task"
        while True:
            await asyncio.sleep(request.every_ms / 1000)
            await self.run(request.beside())

    async def answer(self, request: Batch | Compute | Shared) -> list[Any]:
        """The replies to one request. Retries idempotent batches after a lost connection, inside one deadline."""
        if isinstance(request, Compute):
            return await _compute(request)
        if isinstance(request, Shared):
            if self._loop is not asyncio.get_running_loop():
                self._adopt_loop()
            return await self._groups.join(request)
        return await self._attempts(request)

    async def _attempts(self, request: Batch) -> list[Any]:
        timeout_ms = self.settings.deadline_ms if request.timeout_ms is None else request.timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        for attempt in range(self.settings.retries_max + 1):
            try:
                return await self._attempt(request, deadline)
            except RtmemError as exc:
                self._learn_from(exc)
                if not retry_allowed(exc, request) or attempt == self.settings.retries_max:
                    raise
                pause_s = backoff_s(attempt)
                if time.monotonic() + pause_s >= deadline:
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _attempt(self, batch: Batch, deadline: float) -> list[Any]:
        return wire.settle(batch, await self._exchange(batch, deadline))

    def _learn_from(self, exc: RtmemError) -> None:
        if isinstance(exc, ReadOnlyReplicaError) and clients.follows_sentinel(self._pool):
            self._abandon()  # the master was demoted: a new connection asks Sentinel who it is now

    async def _exchange(self, batch: Batch, deadline: float) -> list[Any]:
        if not batch.commands:
            return []
        if self._loop is not asyncio.get_running_loop():
            self._adopt_loop()
        pieces: Iterable[wire.Piece] = wire.pack(batch)
        size = self.settings.large_bytes_min  # at least; a large batch is made while it is sent
        if batch.lane != "large":
            pieces = list(pieces)
            size = sum(map(len, pieces))
        call = Call(pieces, size, wire.replies_expected(batch), self._lanes_loop.create_future())
        if batch.lane == "auto" and size < self.settings.large_bytes_min:
            return await self._pipelined.ask(call, deadline)
        if batch.lane in ("blocking", "durable"):
            return await self._exclusive[batch.lane].ask(call, deadline)
        return await min(self._large, key=Lane.load).ask(call, deadline)

    def _adopt_loop(self) -> None:
        # A second asyncio.run() with the same driver: connections of the first loop are of no use to this one.
        if self._loop is not None:
            if self._loop.is_running():
                raise InvalidRequestError(
                    "this AsyncDriver is in use on the event loop of another thread: make one driver for each loop"
                )
            self._abandon()
        self._loop = self._lanes_loop = asyncio.get_running_loop()
        self._pipelined = Lane(self._pool, self.settings)
        self._large = [Lane(self._pool, self.settings) for _ in range(LARGE_WIRES_MAX)]
        # Apart, because clients who wait for events must not keep a durable write from its proof.
        self._exclusive = {name: ExclusiveLane(self._pool, self.settings) for name in ("blocking", "durable")}
        self._groups = AsyncGroups(self.run)
        self._lanes: tuple[Lane | ExclusiveLane, ...] = (self._pipelined, *self._large, *self._exclusive.values())

    def _abandon(self) -> None:
        for lane in self._lanes:
            lane.abandon()

    async def aclose(self) -> None:
        """Close every connection. What was already written is executed by the server; its callers get an error."""
        if self._loop is asyncio.get_running_loop():
            # First: a call that starts while this one waits gets lanes of its own, as any call after closing does.
            lanes, self._loop = self._lanes, None
            await self._groups.aclose()
            await asyncio.gather(*(lane.aclose() for lane in lanes))

    async def __aenter__(self) -> AsyncDriver:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


async def _embed(request: Embed, embedder: Embedder) -> list[Any]:
    if not request.texts:
        return []
    if request.timeout_ms is None:
        answer = await _embedded(request, embedder)
    else:
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                answer = await _embedded(request, embedder)
        except TimeoutError:
            raise EmbeddingUnavailableError(
                f"embedder {embedder.name!r} took longer than the {request.timeout_ms} ms that were left",
                embedder=embedder.name,
            ) from None
    return vectors.rows(answer, len(request.texts), embedder)


async def _embedded(request: Embed, embedder: Embedder) -> Any:
    with vectors.FailingAsTold(embedder):
        return await embedder.aembed(request.texts, request.what)


def _heard(task: asyncio.Task[Any]) -> None:
    # An error that nobody waits for any more is no news to the log.
    if not task.cancelled():
        task.exception()


async def _compute(request: Compute) -> list[Any]:
    if request.apart:
        await asyncio.to_thread(deque, request.slices, 0)
        return []
    turn_ends = time.perf_counter_ns() + YIELD_AFTER_US * 1000
    for _ in request.slices:
        if time.perf_counter_ns() > turn_ends:
            await asyncio.sleep(0)
            turn_ends = time.perf_counter_ns() + YIELD_AFTER_US * 1000
    return []
