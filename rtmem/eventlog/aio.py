"""The event log for asyncio programs. The algorithms are in `operations/event_log.py`."""

from __future__ import annotations

from rtmem.drivers import AsyncDriver
from rtmem.keys import Keys
from rtmem.operations import event_log
from rtmem.records import LogGroup, LogHead, LogPage
from rtmem.settings import Gateway


class AsyncEventLog:
    """What was streamed on each (principal, thread_id)."""

    def __init__(self, driver: AsyncDriver, settings: Gateway, *, prefix: str = "rtmem") -> None:
        self._driver = driver
        self._settings = settings
        self._keys = Keys(prefix)

    def key(self, principal: str, thread_id: str) -> str:
        """Redis key of the log. Raises IdTooLongError."""
        return self._keys.thread(principal, thread_id).event_log

    async def append(self, key: str, group: LogGroup) -> None:
        """See operations.event_log.append."""
        settings = self._settings
        await self._driver.run(
            event_log.append(key, group, ttl_ms=settings.log_ttl_ms, groups_max=settings.log_groups_max)
        )

    async def read_after(self, key: str, seq: int) -> LogPage:
        """See operations.event_log.read_after."""
        return await self._driver.run(event_log.read_after(key, seq))

    async def tail(self, key: str, seq: int, *, block_ms: int) -> LogPage:
        """See operations.event_log.tail."""
        return await self._driver.run(event_log.tail(key, seq, block_ms=block_ms))

    async def head(self, key: str) -> LogHead | None:
        """See operations.event_log.head."""
        return await self._driver.run(event_log.head(key))

    async def trim(self, key: str, *, groups_max: int) -> int:
        """See operations.event_log.trim."""
        return await self._driver.run(event_log.trim(key, groups_max=groups_max))
