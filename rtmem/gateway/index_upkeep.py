"""Makes the index of long-term memory a graph when it has grown large, in the background of a gateway; of several on
one Redis, one at a time."""

from __future__ import annotations

import logging
import secrets
import time
from typing import Final

import anyio

from rtmem.drivers import AsyncDriver
from rtmem.errors import RtmemError
from rtmem.gateway.memory import Memories
from rtmem.operations.leases import take_lease

_logger: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 0.5


class IndexUpkeep:
    """Looks once in every interval, if no other process has done it in this one.

    The engine builds the graph by itself, beside the index that everybody uses; all there is to do here is to begin,
    and to switch when it is whole. So a process that dies leaves nothing undone: the next one sees it and goes on.
    """

    def __init__(self, driver: AsyncDriver, memories: Memories, interval_ms: int) -> None:
        self._driver = driver
        self._memories = memories
        self._interval_ms = interval_ms
        self._name = secrets.token_hex(8)
        self._has_warned = False

    async def run(self) -> None:
        """Until cancelled; not at all with an interval of 0."""
        while self._interval_ms:
            await anyio.sleep(self._interval_ms / 1_000)
            try:
                await self.look_after()
            except RtmemError as exc:
                # Searches go on with the index there is.
                _logger.warning("the index of memory could not be looked after: %s", exc)

    async def look_after(self) -> bool:
        """Begin or go on, for an interval at most, if it is this process's turn; answers whether it was.

        Raises ServerError; StaleWriterError where somebody else was quicker.
        """
        opened = self._memories.opened
        if opened is None or opened.embedder is None or opened.scope.index.settings.vectors != "auto":
            return False
        index = opened.scope.index
        if not await self._driver.run(take_lease(index.keys.memory_upkeep, self._name, self._interval_ms)):
            return False
        # Packages of the query engine, which whoever opened memory has paid for.
        from rtmem.operations.index_choice import choose
        from rtmem.operations.memory_state import look
        from rtmem.operations.reindex import Reindex

        until_s = time.monotonic() + self._interval_ms / 1_000
        state = await self._driver.run(look(index))
        choice = await self._driver.run(choose(index, state))
        if choice.short_bytes and not self._has_warned:
            self._has_warned = True
            _logger.warning("the index of memory stays as it is: %s: %s", choice.why, choice.fix)
        if (state.algorithm, choice.algorithm) != ("flat", "hnsw"):
            return True
        work = Reindex(index, opened.scope.serde, algorithm="hnsw", yielding=True)
        progress = await self._driver.run(work.advance())
        if progress.phase == "catching up" and state.next_index is None:
            _logger.info("the index of memory is made a graph: %s", choice.why)
        while progress.phase == "catching up":
            progress = await self._driver.run(work.advance())
            if progress.phase == "catching up":
                if time.monotonic() > until_s:
                    break
                await anyio.sleep(_PAUSE_S)
        if progress.phase == "tidying":  # nothing is left over: its vectors are those of before
            _logger.info("the index of memory is a graph now (hnsw)")
        return True
