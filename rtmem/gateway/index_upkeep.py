"""Gives vectors to what could not be embedded when it was written, and makes the index of long-term memory a graph when
it has grown large, in the background of a gateway; of several on one Redis, one at a time."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING, Final

import anyio

from rtmem.drivers import AsyncDriver
from rtmem.errors import EmbeddingError, RtmemError
from rtmem.gateway.memory import Memories
from rtmem.operations.leases import take_lease

if TYPE_CHECKING:
    from rtmem.operations.serde import Serde
    from rtmem.operations.vector_index import Index
    from rtmem.steps import Embedder

_logger: Final = logging.getLogger(__name__)
_PAUSE_S: Final = 0.5
_EMBEDDED_MAX: Final = 1_000  # in one interval


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
        if opened is None or opened.embedder is None:
            return False
        index = opened.scope.index
        if not await self._driver.run(take_lease(index.keys.memory_upkeep, self._name, self._interval_ms)):
            return False
        if index.state.has_engine:
            await self._give_vectors(index, opened.scope.serde, opened.embedder)
        if index.settings.vectors == "auto":
            await self._choose_kind(index, opened.scope.serde)
        return True

    async def _give_vectors(self, index: Index, serde: Serde, embedder: Embedder) -> None:
        from rtmem.operations.memory_vectors import reembed_all

        try:
            done = await self._driver.run(reembed_all(index, serde, _EMBEDDED_MAX), embedder)
        except EmbeddingError as exc:
            _logger.info("what is without a vector has to wait: %s", exc)
        else:
            if done:
                _logger.info("%d memories have the vectors now that failed to come when they were written", done)

    async def _choose_kind(self, index: Index, serde: Serde) -> None:
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
            return
        work = Reindex(index, serde, algorithm="hnsw", yielding=True)
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
