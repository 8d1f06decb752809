"""One connection of the awaiting driver, and the calls that are under way on it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from rtmem.drivers import clients, wire
from rtmem.drivers.translate import connection_error
from rtmem.errors import RtmemError, ServerUnavailableError

CLOSE_TIMEOUT_S = 0.5
"""How long a connection may take to say goodbye (TLS) before it is cut."""


class Call:
    """A packed batch of about `size` bytes, the replies that have come so far, and who waits for them."""

    __slots__ = ("count", "deadline", "future", "pieces", "replies", "sent_at", "size")

    def __init__(self, pieces: Iterable[wire.Piece], size: int, count: int, future: asyncio.Future[list[Any]]) -> None:
        self.pieces = pieces
        self.size = size
        self.count = count
        self.future = future
        self.replies: list[Any] = []
        self.sent_at = 0.0
        self.deadline = math.inf


class Wire(asyncio.Protocol):
    """One connection: made by redis-py, whose transport is then taken over.

    redis-py's stream reader costs about three times as much per reply as feeding the parser right where the bytes
    arrive. set_protocol() is asyncio's own way to do that; the price is that `_writer` is not public.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.in_flight: deque[Call] = deque()
        self.bytes_in_flight = 0
        self.received_at = 0.0
        self.paused = False
        self._unsent: Iterator[wire.Piece] = iter(())
        self._broke: Exception | None = None
        self._loop = asyncio.get_running_loop()
        self._lost = asyncio.Event()
        self._reader = wire.new_reader()
        self._connection: Any = None
        self._transport: asyncio.Transport | None = None

    async def connect(self, pool: Any, timeout_s: float) -> None:
        connection = clients.new_connection(pool, timeout_s)
        try:
            await _connect(connection, pool)
        except BaseException as exc:
            await connection.disconnect(nowait=True)
            if isinstance(exc, Exception):
                raise connection_error(exc, self.where) from exc
            raise
        self._connection = connection
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)

    def silent_s(self) -> float:
        """How long the oldest call under way has been waiting without any byte of any reply."""
        if not self.in_flight:
            return 0.0
        return time.monotonic() - max(self.in_flight[0].sent_at, self.received_at)

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def write(self, calls: list[Call]) -> None:
        """Send `calls` as one write."""
        assert self._transport is not None, "connect() comes before write()"
        now = time.monotonic()
        for call in calls:
            call.sent_at = now
            self.bytes_in_flight += call.size
        self.in_flight.extend(calls)
        pieces = chain.from_iterable(call.pieces for call in calls)
        if all(call.size < wire.LARGE_BYTES_MIN for call in calls):
            # One piece each, and one write for all of them.
            self._transport.write(b"".join(pieces))
        else:
            self._unsent = pieces
            self._send()

    def _send(self) -> None:
        """Write what is not written yet, as much as the socket takes; `resume_writing` goes on.

        So what is large is not copied to wait in a buffer, and is made while the server reads what came before it.
        """
        self.paused = False
        try:
            for piece in self._unsent:
                # Behind a write that broke the connection, asyncio would log a warning for each.
                if self._transport is None or self._transport.is_closing():
                    return
                self._transport.write(piece)
                if self.paused:
                    return
        except Exception as exc:  # noqa: BLE001 - a command that could not be made; who waits for its reply is told
            # The rest of it is missing, and whatever is written next would be taken for that.
            self._broke = exc
            self.abort()

    def data_received(self, data: bytes) -> None:
        reader, in_flight = self._reader, self.in_flight
        self.received_at = time.monotonic()
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not wire.NOTHING:
                if wire.is_push(reply):
                    continue
                if not in_flight:
                    # A last word before the server hangs up, such as "max number of clients reached".
                    self._broke = wire.unasked(reply, self.where)
                    self.abort()
                    return
                call = in_flight[0]
                call.replies.append(reply)
                if len(call.replies) == call.count:
                    in_flight.popleft()
                    self.bytes_in_flight -= call.size
                    if not call.future.done():
                        call.future.set_result(call.replies)
        except wire.ProtocolError as exc:
            self._broke = exc
            self.abort()

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        # Not at once: asyncio would close a transport twice that finds out in here that its connection is broken.
        self._loop.call_soon(self._send)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        cause = exc or self._broke
        self._fail(f"broke ({cause or 'the server closed the connection'})", cause)
        self._let_go()
        self._lost.set()

    def _fail(self, what: str, cause: BaseException | None = None, *, closed: bool = False) -> None:
        """Tell those who wait for a reply that none will come."""
        while self.in_flight:
            call = self.in_flight.popleft()
            if not call.future.done():
                call.future.set_exception(
                    _with_cause(
                        ServerUnavailableError(
                            f"the connection to Redis at {self.where} {what}; a write may have "
                            "happened: send it again when Redis answers (what savers write may be sent twice)",
                            where=self.where,
                            sent=True,
                            closed=closed,
                        ),
                        cause,
                    )
                )
        self.bytes_in_flight = 0

    def _let_go(self) -> None:
        if self._connection is not None:
            # The transport is closed; redis-py must not warn that nobody closed it.
            self._connection._writer = self._connection._reader = None

    def abort(self) -> None:
        """Give the connection up at once; connection_lost() follows in the next tick."""
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Give up a connection whose event loop may be closed already."""
        transport, self._transport = self._transport, None
        if transport is not None and not self._loop.is_closed():
            transport.abort()
        # A closed loop cannot close its transports any more: Python does when it collects them, and warns that
        # nobody called aclose() while there was time.
        self._let_go()

    async def aclose(self) -> None:
        if self._transport is not None:
            self._fail("was closed with its driver", closed=True)
            self._transport.close()
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._lost.wait()
            except TimeoutError:
                self._transport.abort()
                await asyncio.sleep(0)
            finally:
                self._let_go()


async def _connect(connection: Any, pool: Any) -> None:
    """Connect, or raise and leave only `connection` itself to be closed.

    disconnect(nowait=True) never suspends, so no cancellation can come in between.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelled = task.cancelling()
    try:
        await connection.connect()
    finally:
        for asked in clients.asked_sentinels(connection, pool):
            await asked.disconnect(nowait=True)
    # redis-py sends with asyncio.wait_for, which before Python 3.12 loses a cancellation that comes in the tick in
    # which it ends: the caller who gave up would wait for its answer all the same.
    if task.cancelling() > cancelled:
        raise asyncio.CancelledError


def _with_cause(error: RtmemError, cause: BaseException | None) -> RtmemError:
    error.__cause__ = cause
    return error
