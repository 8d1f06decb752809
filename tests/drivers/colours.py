"""Both drivers behind one awaitable face, so that what both promise is tested by one body."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio.to_thread
from anyio import CapacityLimiter

from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.settings import Redis
from rtmem.steps import Batch, Command, R, Steps

Colour = Literal["sync", "async"]
COLOURS: tuple[Colour, ...] = ("sync", "async")

CALLERS_MAX = 300


class Talker:
    """A driver of either colour; the blocking one is called from threads, as its users do."""

    def __init__(self, driver: SyncDriver | AsyncDriver) -> None:
        self.driver = driver
        self._threads = CapacityLimiter(CALLERS_MAX)

    async def answer(self, *commands: Command, **options: Any) -> list[Any]:
        """The replies to one batch of `commands`; `options` are those of Batch."""
        batch = Batch(commands, **options)
        if isinstance(self.driver, AsyncDriver):
            return await self.driver.answer(batch)
        return await anyio.to_thread.run_sync(self.driver.answer, batch, limiter=self._threads)

    async def run(self, steps: Steps[R]) -> R:
        """What an operation returns."""
        if isinstance(self.driver, AsyncDriver):
            return await self.driver.run(steps)
        return await anyio.to_thread.run_sync(self.driver.run, steps, limiter=self._threads)

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
