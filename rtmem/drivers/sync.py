"""The blocking driver: answers each request of an operation before going on."""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import redis

from rtmem.drivers import clients, vectors, wire
from rtmem.drivers.groups import SyncGroups
from rtmem.drivers.translate import connection_error
from rtmem.errors import (
    DeadlineExceededError,
    PersistenceError,
    ReadOnlyReplicaError,
    RtmemError,
    ServerUnavailableError,
    WrongColourError,
)
from rtmem.settings import Redis
from rtmem.steps import Batch, Begin, Begun, Call, Compute, Embed, Embedder, R, Request, Shared, Steps

_READ_BYTES = 256 * 1024
_SENT_AT_ONCE_BYTES = 64 * 1024
"""A server that is woken by the words before a value reads them alone: 0.1 ms of a MB, where they are sent together.

No more than this, because what comes behind it may be made while the server reads.
"""


class SyncDriver:
    """Runs operations against one Redis, blocking. Safe to share between threads."""

    def __init__(self, pool: Any, settings: Redis | None = None) -> None:
        self.settings = settings or Redis()
        self._wires = _WirePool(pool, self.settings)
        self._groups = SyncGroups(self.run)

    @classmethod
    def connect(cls, url: str, settings: Redis | None = None) -> SyncDriver:
        """A driver for `url`, after one PING. Raises ConfigError, AuthenticationError, ServerUnavailableError."""
        driver = cls.lazy(url, settings)
        try:
            # A server whose disk is full denies even PING, and can be read.
            with contextlib.suppress(PersistenceError):
                driver.answer(Batch((("PING",),)))
        except BaseException:
            driver.close()
            raise
        return driver

    @classmethod
    def lazy(cls, url: str, settings: Redis | None = None) -> SyncDriver:
        """A driver for `url` that connects when it is first used."""
        settings = settings or Redis()
        if clients.scheme_of(url) == "redis+cluster":
            from rtmem.drivers.cluster import SyncClusterDriver

            return SyncClusterDriver(url, settings)
        return cls(clients.sync_pool(url, settings), settings)

    @classmethod
    def of_client(cls, client: Any, settings: Redis | None = None) -> SyncDriver:
        """A driver that connects the way `client` (redis.Redis) does."""
        return cls(clients.pool_of(client, redis.ConnectionPool), settings)

    def run(self, steps: Steps[R], embedder: Embedder | None = None) -> R:
        """Run an operation to its end and return what it returns; whatever ends a request is thrown into it."""
        try:
            request = next(steps)
            while True:
                try:
                    replies = self.answer(request) if isinstance(request, Batch) else self._reply(request, embedder)
                except BaseException as exc:  # noqa: BLE001 - the steps let it rise
                    request = steps.throw(exc)
                else:
                    request = steps.send(replies)
        except StopIteration as stop:
            result: R = stop.value
            return result
        finally:
            steps.close()

    def _reply(self, request: Request, embedder: Embedder | None) -> list[Any]:
        if isinstance(request, Begin):
            return [Begun(request.request)]
        if isinstance(request, Begun):
            return self._reply(request.answer, embedder)
        if isinstance(request, Embed):
            return _embed(request, vectors.required(embedder))
        if isinstance(request, Call):
            return [self._call(request)]
        return self.answer(request)

    def _call(self, request: Call) -> Any:
        if request.beside is None:
            return _called(request)
        ended = threading.Event()
        beside = threading.Thread(target=self._beside, args=(request, ended), daemon=True)
        beside.start()
        try:
            return _called(request)
        finally:
            ended.set()
            beside.join()

    def _beside(self, request: Call, ended: threading.Event) -> None:
        assert request.beside is not None, "a call without steps beside it needs no thread"
        while not ended.wait(request.every_ms / 1000):
            self.run(request.beside())

    def answer(self, request: Batch | Compute | Shared) -> list[Any]:
        """The replies to one request. Retries idempotent batches after a lost connection, inside one deadline."""
        if isinstance(request, Compute):
            for _ in request.slices:
                pass
            return []
        if isinstance(request, Shared):
            return self._groups.join(request)
        return self._attempts(request)

    def _attempts(self, request: Batch) -> list[Any]:
        timeout_ms = self.settings.deadline_ms if request.timeout_ms is None else request.timeout_ms
        deadline = time.monotonic() + timeout_ms / 1000
        for attempt in range(self.settings.retries_max + 1):
            try:
                return self._attempt(request, deadline)
            except RtmemError as exc:
                self._learn_from(exc)
                if not retry_allowed(exc, request) or attempt == self.settings.retries_max:
                    raise
                pause_s = backoff_s(attempt)
                if time.monotonic() + pause_s >= deadline:
                    raise
                time.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _attempt(self, batch: Batch, deadline: float) -> list[Any]:
        replies = self._wires.exchange(wire.pack(batch), wire.replies_expected(batch), deadline)
        return wire.settle(batch, replies)

    def _learn_from(self, exc: RtmemError) -> None:
        if isinstance(exc, ReadOnlyReplicaError) and clients.follows_sentinel(self._wires.pool):
            self._wires.close()  # the master was demoted: a new connection asks Sentinel who it is now

    def close(self) -> None:
        """Close every connection; one that is in use is closed when its call ends."""
        self._wires.close()

    def __enter__(self) -> SyncDriver:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _embed(request: Embed, embedder: Embedder) -> list[Any]:
    if not request.texts:
        return []
    with vectors.FailingAsTold(embedder):
        answer = embedder.embed(request.texts, request.what)
    return vectors.rows(answer, len(request.texts), embedder)


def _called(request: Call) -> Any:
    result = request.function(*request.args)
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise WrongColourError(
            f"{getattr(request.function, '__qualname__', request.function)!s:.100} returned something to await, and "
            "this call blocks: give a plain function, or use the class whose name begins with Async"
        )
    return result


def retry_allowed(exc: RtmemError, batch: Batch) -> bool:
    """Whether `batch` may be sent again after `exc`.

    What Redis refused (LOADING) was not executed. What was lost with a connection may have been: only an idempotent
    batch, or one that was never sent, goes again. A passed deadline is final, and so is closing the driver.
    """
    if not exc.retryable or isinstance(exc, DeadlineExceededError) or exc.data.get("closed"):
        return False
    return batch.idempotent or not exc.data.get("sent", False)


def backoff_s(attempt: int) -> float:
    """How long to wait before attempt `attempt + 1`: 20 ms, 80 ms, 320 ms, then half a second."""
    return min(0.5, 0.02 * 4.0**attempt)


class _Wire:
    """One connection: made by redis-py, spoken over directly."""

    def __init__(self, connection: Any, where: str) -> None:
        self.connection = connection
        self.where = where
        self.reader = wire.new_reader()
        try:
            connection.connect()
        except BaseException as exc:
            connection.disconnect()
            if isinstance(exc, Exception):
                raise connection_error(exc, where) from exc
            raise
        self.socket: socket.socket = connection._sock
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)

    def readable(self) -> bool:
        return bool(self._poll.poll(0))

    def exchange(self, pieces: Iterator[wire.Piece], count: int, deadline: float) -> list[Any]:
        replies: list[Any] = []
        try:
            self._send(pieces, deadline)
            while len(replies) < count:
                reply = self.reader.gets()
                if reply is wire.NOTHING:
                    self.socket.settimeout(_remaining_s(deadline))
                    received = self.socket.recv(_READ_BYTES)
                    if not received:
                        raise ConnectionResetError("the server closed the connection")
                    self.reader.feed(received)
                elif not wire.is_push(reply):
                    replies.append(reply)
        except TimeoutError as exc:
            raise DeadlineExceededError(
                f"no answer from Redis at {self.where} within the deadline; a write may have happened: check the "
                "server's SLOWLOG, or raise deadline_ms",
                where=self.where,
            ) from exc
        except (OSError, wire.ProtocolError) as exc:
            raise ServerUnavailableError(
                f"the connection to Redis at {self.where} broke ({exc}); a write may have happened: send it again when "
                "Redis answers (what savers write may be sent twice)",
                where=self.where,
                sent=True,
            ) from exc
        return replies

    def _send(self, pieces: Iterator[wire.Piece], deadline: float) -> None:
        together: list[wire.Piece] = []
        size = 0
        for piece in pieces:
            together.append(piece)
            size += len(piece)
            if size >= _SENT_AT_ONCE_BYTES:
                self._send_together(together, deadline)
                together, size = [], 0
        if together:
            self._send_together(together, deadline)

    def _send_together(self, pieces: list[wire.Piece], deadline: float) -> None:
        if len(pieces) == 1 or isinstance(self.socket, ssl.SSLSocket):
            for piece in pieces:
                self.socket.settimeout(_remaining_s(deadline))
                self.socket.sendall(piece)
            return
        rest = [memoryview(piece) for piece in pieces]
        while rest:
            self.socket.settimeout(_remaining_s(deadline))
            sent = self.socket.sendmsg(rest)
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if sent:
                rest[0] = rest[0][sent:]

    def close(self) -> None:
        self.connection.disconnect()


class _WirePool:
    """At most `size` connections; a caller waits for a free one until its deadline."""

    def __init__(self, pool: Any, settings: Redis) -> None:
        self.pool = pool
        self._where = clients.place_of(pool)
        self._size = settings.connections_max
        self._connect_timeout_s = settings.connect_timeout_ms / 1000
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._free: deque[_Wire] = deque()
        # One item for each call that may be under way; a semaphore of `threading` takes ten times as long.
        self._places: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(self._size):
            self._places.put(None)

    def exchange(self, pieces: Iterator[wire.Piece], count: int, deadline: float) -> list[Any]:
        if self._pid != os.getpid():
            # A forked child must not speak on its parent's sockets.
            self._reset()
        # Two threads of a new child may both have reset: each gives its place back where it took it.
        places, free = self._places, self._free
        try:
            places.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise DeadlineExceededError(
                f"all {self._size} connections to Redis at {self._where} were busy: raise connections_max",
                where=self._where,
            ) from None
        try:
            return self._exchange(pieces, count, deadline, free)
        finally:
            places.put(None)

    def _exchange(self, pieces: Iterator[wire.Piece], count: int, deadline: float, free: deque[_Wire]) -> list[Any]:
        connection = self._take(free, deadline)
        try:
            replies = connection.exchange(pieces, count, deadline)
        except BaseException:
            # Also after KeyboardInterrupt: a reply that is still under way would answer the next caller.
            connection.close()
            raise
        free.append(connection)
        if free is not self._free:
            _close_all(free)  # the driver was closed meanwhile
        return replies

    def _take(self, free: deque[_Wire], deadline: float) -> _Wire:
        while free:
            try:
                connection = free.pop()
            except IndexError:
                break  # another thread took the last one
            if not connection.readable():
                return connection
            # Idle and readable means that the server closed it: do not let a write find out.
            connection.close()
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            raise not_sent_in_time(self._where)
        connection = clients.new_connection(self.pool, min(self._connect_timeout_s, remaining_s))
        try:
            return _Wire(connection, self._where)
        except ServerUnavailableError as exc:
            if time.monotonic() < deadline:
                raise
            raise not_sent_in_time(self._where) from exc
        finally:
            for asked in clients.asked_sentinels(connection, self.pool):
                asked.disconnect()

    def close(self) -> None:
        free, self._free = self._free, deque()
        _close_all(free)


def _close_all(connections: deque[_Wire]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()


def not_sent_in_time(where: str) -> DeadlineExceededError:
    return DeadlineExceededError(
        f"no connection to Redis at {where} within the deadline, nothing was sent: check that the server answers "
        "(`rtmem doctor`), or raise deadline_ms",
        where=where,
        sent=False,
    )


def _remaining_s(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining
