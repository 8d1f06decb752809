"""Both drivers behind one awaitable face, so that what both promise is tested by one body."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from itertools import product
from typing import Any, Literal

import anyio
import anyio.to_thread
from anyio import CapacityLimiter

from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.settings import Redis
from rtmem.steps import Batch, Command, Embedder, R, Steps

Colour = Literal["sync", "async"]
COLOURS: tuple[Colour, ...] = ("sync", "async")

CALLERS_MAX = 300
SLOWNESS = 20


def patient_clock() -> float:
    """For a Promise, which rightly doubts a proof when nobody looked at the server for a second: here for twenty."""
    return time.monotonic() / SLOWNESS


Test = Callable[..., Awaitable[None]]


def at_once(**axes: Sequence[Any]) -> Callable[[Test], Test]:
    """A test whose body runs for all combinations of `axes` at the same time: for one that mostly waits for a disk."""

    def decorate(body: Test) -> Test:
        signature = inspect.signature(body)

        async def combination(values: dict[str, Any], fixtures: dict[str, Any]) -> None:
            try:
                await body(**values, **fixtures)
            except Exception as exc:
                exc.add_note(f"with {values}")
                raise

        @wraps(body)
        async def together(**fixtures: Any) -> None:
            async with anyio.create_task_group() as tasks:
                for values in product(*axes.values()):
                    tasks.start_soon(combination, dict(zip(axes, values, strict=True)), fixtures)

        # pytest fills in what is left of the arguments.
        left = [parameter for name, parameter in signature.parameters.items() if name not in axes]
        together.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return together

    return decorate


class Talker:
    """A driver of either colour; the blocking one is called from threads, as its users do."""

    def __init__(self, driver: SyncDriver | AsyncDriver) -> None:
        self.driver = driver
        self._threads = CapacityLimiter(CALLERS_MAX)

    async def answer(self, *commands: Command, **options: Any) -> list[Any]:
        """The replies to one batch of `commands`; `options` are those of Batch."""
        return await self.answer_to(Batch(commands, **options))

    async def answer_to(self, batch: Batch) -> list[Any]:
        """The replies to `batch`."""
        if isinstance(self.driver, AsyncDriver):
            return await self.driver.answer(batch)
        return await anyio.to_thread.run_sync(self.driver.answer, batch, limiter=self._threads)

    async def run(self, steps: Steps[R], embedder: Embedder | None = None) -> R:
        """What an operation returns."""
        if isinstance(self.driver, AsyncDriver):
            return await self.driver.run(steps, embedder)
        return await anyio.to_thread.run_sync(self.driver.run, steps, embedder, limiter=self._threads)

    async def aclose(self) -> None:
        if isinstance(self.driver, AsyncDriver):
            await self.driver.aclose()
        else:
            self.driver.close()


@asynccontextmanager
async def talking(colour: Colour, url: str, *, lazy: bool = False, **settings: Any) -> AsyncIterator[Talker]:
    """A driver of `colour` for `url`; the keywords are those of settings.Redis. Closed afterwards."""
    how = Redis(**settings)
    driver: SyncDriver | AsyncDriver
    if colour == "async":
        driver = AsyncDriver.lazy(url, how) if lazy else await AsyncDriver.connect(url, how)
    elif lazy:
        driver = SyncDriver.lazy(url, how)
    else:
        driver = await anyio.to_thread.run_sync(SyncDriver.connect, url, how)
    talker = Talker(driver)
    try:
        yield talker
    finally:
        await talker.aclose()
