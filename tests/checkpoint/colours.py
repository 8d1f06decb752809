"""One test body for all savers: the awaiting ones are driven through their sync verbs, from outside their loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
from rtmem.errors import ServerUnavailableError
from rtmem.operations.inspection import ThreadReport, inspect_thread
from rtmem.steps import Batch, Request, Steps

T = TypeVar("T")
AnySaver = RedisSaver | AsyncRedisSaver


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, run in the loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@dataclass(slots=True)
class Savers:
    """Makes savers of one colour for one server."""

    url: str
    client: Any  # redis.Redis, raw: bytes
    loop: Loop
    awaiting: bool
    protocol: int

    @contextmanager
    def open(
        self, *, shallow: bool = False, awaiting: bool | None = None, url: str | None = None, **options: Any
    ) -> Iterator[AnySaver]:
        """A saver whose sync verbs can be called here, whatever its colour."""
        arguments = {"protocol": self.protocol, **options.pop("connection_args", {})}
        if self.awaiting if awaiting is None else awaiting:
            kind = AsyncShallowRedisSaver if shallow else AsyncRedisSaver
            saver = kind(url or self.url, connection_args=arguments, **options)
            saver.loop = self.loop.loop
            try:
                yield saver
            finally:
                self.loop.wait(saver.aclose())
        else:
            with (ShallowRedisSaver if shallow else RedisSaver)(
                url or self.url, connection_args=arguments, **options
            ) as blocking:
                yield blocking


def run(saver: AnySaver, steps: Steps[T]) -> T:
    """Run an operation over the connections of a saver."""
    if isinstance(saver, AsyncRedisSaver):
        assert saver.loop is not None
        return asyncio.run_coroutine_threadsafe(saver._driver.run(steps), saver.loop).result(60)
    return saver._driver.run(steps)


def inspect(saver: AnySaver, thread_id: str) -> ThreadReport:
    """What `rtmem doctor threads` says about a thread."""
    return run(saver, inspect_thread(saver.scope, thread_id))


def watch(
    saver: AnySaver, before: Callable[[Request], None] | None = None, after: Callable[[Request], None] | None = None
) -> None:
    """Show every request of a saver to `before` and `after` it is answered; they may raise."""
    driver: Any = saver._driver
    answer = driver.answer
    see: Any = before or (lambda _: None)
    saw: Any = after or (lambda _: None)

    async def answer_async(request: Request) -> list[Any]:
        see(request)
        replies: list[Any] = await answer(request)
        saw(request)
        return replies

    def answer_sync(request: Request) -> list[Any]:
        see(request)
        replies: list[Any] = answer(request)
        saw(request)
        return replies

    driver.answer = answer_async if isinstance(saver, AsyncRedisSaver) else answer_sync


class Fuse:
    """Breaks the n-th round trip of a saver, before it reaches the server or after it was done there."""

    def __init__(self, saver: AnySaver) -> None:
        self.left = -1
        self.after = False
        watch(saver, self._before, self._after)

    def set(self, nth: int, *, after: bool) -> None:
        """From now on let `nth` round trips pass, and break the next one."""
        self.left, self.after = nth, after

    @property
    def blown(self) -> bool:
        return self.left < 0

    def _before(self, request: Request) -> None:
        if isinstance(request, Batch) and not self.after:
            self._burn()

    def _after(self, request: Request) -> None:
        if isinstance(request, Batch) and self.after:
            self._burn()

    def _burn(self) -> None:
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise ServerUnavailableError("the fuse has blown: this is a test")


class Meter:
    """Counts the round trips of a saver."""

    def __init__(self, saver: AnySaver) -> None:
        self.batches: list[Batch] = []
        watch(saver, lambda request: self.batches.append(request) if isinstance(request, Batch) else None)

    def take(self) -> int:
        """Round trips since the last call."""
        count = len(self.batches)
        self.batches.clear()
        return count
