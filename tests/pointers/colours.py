"""One test body for both colours: awaiting pointers are driven from outside their loop."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rtmem import settings as all_settings
from rtmem.errors import ServerUnavailableError
from rtmem.pointers import AsyncPointers, Pointers
from rtmem.records import PointerReport
from rtmem.steps import Batch, Request, Steps
from tests.checkpoint.colours import Loop

SMALL = all_settings.Pointers(chunk_bytes=1_024, batch_bytes=4_096)
"""So that a value of some kilobytes has many chunks and several batches."""


class Caller:
    """Pointers of either colour whose verbs are called the same way."""

    def __init__(self, pointers: Pointers | AsyncPointers, loop: Loop) -> None:
        self.pointers = pointers
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.pointers, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            result = found(*args, **options)
            if isinstance(result, Pointers | AsyncPointers):
                return Caller(result, self.loop)
            return self.loop.wait(result) if inspect.isawaitable(result) else result  # type: ignore[arg-type]

        return call

    def run(self, steps: Steps[Any]) -> Any:
        """Run an operation over the same connections."""
        if isinstance(self.pointers, AsyncPointers):
            return self.loop.wait(self.pointers._driver.run(steps))
        return self.pointers._driver.run(steps)

    def sound(self) -> PointerReport:
        """What `inspect` reports, if all of it fits together."""
        report: PointerReport = self.inspect()
        assert report.sound, report
        return report


@dataclass(slots=True)
class World:
    """Makes pointers of one colour at one server."""

    url: str
    client: Any  # redis.Redis, raw: bytes
    loop: Loop
    awaiting: bool
    protocol: int

    @contextmanager
    def open(self, *, url: str | None = None, settings: Any = SMALL, **options: Any) -> Iterator[Caller]:
        redis = all_settings.Redis(protocol=2 if self.protocol == 2 else 3)
        if self.awaiting:
            awaiting = AsyncPointers(url or self.url, settings=settings, redis=redis, **options)
            try:
                yield Caller(awaiting, self.loop)
            finally:
                self.loop.wait(awaiting.aclose())
        else:
            with Pointers(url or self.url, settings=settings, redis=redis, **options) as blocking:
                yield Caller(blocking, self.loop)


class Wire:
    """Sees every round trip of some pointers, and breaks the one it is told to."""

    def __init__(self, caller: Caller) -> None:
        self.batches: list[Batch] = []
        self.left = -1  # round trips to let pass before one breaks; below 0: none will
        self.after = False
        driver: Any = caller.pointers._driver
        answer = driver.answer

        async def answer_async(request: Request) -> list[Any]:
            self._see(request)
            replies: list[Any] = await answer(request)
            self._saw(request)
            return replies

        def answer_sync(request: Request) -> list[Any]:
            self._see(request)
            replies: list[Any] = answer(request)
            self._saw(request)
            return replies

        driver.answer = answer_async if isinstance(caller.pointers, AsyncPointers) else answer_sync

    def take(self) -> int:
        """Round trips since the last call."""
        count = len(self.batches)
        self.batches.clear()
        return count

    def cut(self, nth: int, *, after: bool) -> None:
        """Let `nth` round trips pass, and break the next one before the server hears of it, or after it was done."""
        self.left, self.after = nth, after

    def _see(self, request: Request) -> None:
        if isinstance(request, Batch):
            self.batches.append(request)
            if not self.after:
                self._burn()

    def _saw(self, request: Request) -> None:
        if isinstance(request, Batch) and self.after:
            self._burn()

    def _burn(self) -> None:
        if self.left >= 0:
            self.left -= 1
            if self.left < 0:
                raise ServerUnavailableError("the wire was cut: this is a test")
