"""One test body for all savers: the awaiting ones are driven through their sync verbs, from outside their loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import redis

from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
from rtmem.operations.inspection import ThreadReport, inspect_thread
from rtmem.steps import Request, Steps

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
    client: redis.Redis
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


def watch(saver: AnySaver, see: Callable[[Request], None]) -> None:
    """Show every request of a saver to `see` before it is answered; `see` may raise instead."""
    driver: Any = saver._driver
    answer = driver.answer
    if isinstance(saver, AsyncRedisSaver):

        async def answer_async(request: Request) -> list[Any]:
            see(request)
            replies: list[Any] = await answer(request)
            return replies

        driver.answer = answer_async
    else:

        def answer_sync(request: Request) -> list[Any]:
            see(request)
            replies: list[Any] = answer(request)
            return replies

        driver.answer = answer_sync
