"""The long-term memory of those a gateway serves: a store and a Recall for each principal, over its own connections.

Made when a graph first needs it, or at the start if one is known to: the query engine's packages take a second to
import, and most graphs have no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from langgraph.store.base import BaseStore, Op, PutOp, Result, TTLConfig

from rtmem import embedding
from rtmem import settings as settings_
from rtmem.agent.served import memory_was_read
from rtmem.agent.turn import Graph
from rtmem.drivers import AsyncDriver
from rtmem.errors import RtmemError, WrongColourError
from rtmem.steps import Embedder

if TYPE_CHECKING:
    from rtmem.agent.recall import Recall
    from rtmem.memory import AsyncMemory, Memory
    from rtmem.store import AsyncRedisStore

_logger: Final = logging.getLogger(__name__)
_NOBODY: Final = "rtmem"  # for whom memory is woken: of his facts none is read


class Memories:
    """What graphs remember with. Who asks is who was authenticated.

    Args:
        expected: a graph will need it: `wake` does something.

    Raises ConfigError: [embedding] names no model.
    """

    def __init__(self, driver: AsyncDriver, settings: settings_.Settings, *, expected: bool = False) -> None:
        self._driver = driver
        self._expected = expected
        self.awake = asyncio.Event()
        """What the first recall would wait for is there, or cannot be had, or is not expected to be needed."""
        self._settings = settings
        self._extra = embedding.missing(settings.embedding)
        self._embedder: Embedder | None = None
        self._embedder_is_known = False
        self._recall: Recall | None = None
        self._store: AsyncRedisStore | None = None

    def recall(self, principal: str) -> Recall:
        """The memory of a principal."""
        if self._recall is None:
            from rtmem.agent.recall import Recall
            from rtmem.memory import AsyncMemory

            given = self._settings
            memory = AsyncMemory(
                driver=self._driver,
                embedder=self.embedder(),
                settings=given.memory,
                store=given.store,
                retrieval=given.retrieval,
            )
            self._recall = Recall(memory, given.recall)
        return self._recall.bind(principal)

    async def wake(self) -> None:
        """Load what the first recall would wait for: packages, connections, the index, the embedder's model.

        When the gateway starts, beside what it does then. Raises nothing: graphs are served without memory, too.
        """
        try:
            if self._expected:
                # In a thread: a second or two, and others are answered meanwhile.
                await anyio.to_thread.run_sync(_import_recall)
                from rtmem.agent.recall.reading import warmed_up

                work: Any = self.recall(_NOBODY).begin(warmed_up())
                await asyncio.wait({work})
                if not work.cancelled() and isinstance(failure := work.result(), RtmemError):
                    raise failure
        except Exception as exc:  # noqa: BLE001 - whatever a model's or an engine's package raises
            _logger.warning("memory is not loaded; turns go on without it: %s: %s", type(exc).__name__, exc)
        finally:
            self.awake.set()

    def prefetch(self, principal: str, thread_id: str, text: str = "") -> bool:
        """A client of this principal has come, or has heard so much of its next message. Returns at once.

        Whether something is recalled for `text`; without memory, without words or by the policy nothing is.
        """
        return self._recall is not None and self.recall(principal).prefetch(text, thread_id=thread_id)

    def cancel_prefetch(self, principal: str, thread_id: str) -> None:
        """The client has gone, and its message will not come."""
        if self._recall is not None:
            self.recall(principal).cancel_prefetch(thread_id=thread_id)

    def store_for(self, graph: Graph, principal: str) -> BaseStore | None:
        """The store of a principal's runs: the graph's own, bound to him if it can be; or the gateway's."""
        if graph.store is None:
            return BoundStore(self, principal)
        bind = getattr(graph.store, "bind", None)
        return graph.store if bind is None else bind(principal)

    @property
    def ttl_config(self) -> TTLConfig:
        """What [store] says of items that are given no ttl, in LangGraph's words."""
        given = self._settings.store
        return {
            "refresh_on_read": given.refresh_on_read,
            "default_ttl": given.ttl_ms / 60_000 if given.ttl_ms else None,
        }

    async def store(self) -> AsyncRedisStore:
        """Everybody's; to be bound."""
        if self._store is None:
            # In a thread: other runs go on meanwhile.
            await anyio.to_thread.run_sync(_import_store)
        if self._store is None:
            from rtmem.store import AsyncRedisStore

            options: dict[str, Any] = {"driver": self._driver, "settings": self._settings.store}
            self._store = AsyncRedisStore(**options, index=self.embedder())
        return self._store

    def embedder(self) -> Embedder | None:
        """The one of this gateway; cached answers are found by it, too. None: its packages are missing."""
        if not self._embedder_is_known:
            self._embedder_is_known = True
            if self._extra:
                _logger.warning(
                    "memory compares words only, and the cache knows only the very same question: "
                    "pip install 'rtmem[%s]' for meaning",
                    self._extra,
                )
            else:
                self._embedder = embedding.from_settings(self._settings.embedding)
        return self._embedder

    @property
    def opened(self) -> AsyncRedisStore | Memory | AsyncMemory | None:
        """What a graph remembers with; None until one does."""
        return self._store if self._recall is None else self._recall.memory

    async def aclose(self) -> None:
        """End what is under way. The driver is not ours."""
        if self._recall is not None:
            await self._recall.aclose()
        close = getattr(self._embedder, "aclose", None)
        if close is not None:
            await close()


class BoundStore(BaseStore):
    """The gateway's store with the eyes of one principal. Opened when it is first used."""

    supports_ttl = True

    def __init__(self, memories: Memories, principal: str) -> None:
        self._memories = memories
        self._principal = principal
        self.ttl_config = memories.ttl_config
        self._loop = asyncio.get_running_loop()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See AsyncRedisStore.abatch."""
        store = await self._memories.store()
        asked = list(ops)
        results = await store.bind(self._principal).abatch(asked)
        if any(found and not isinstance(op, PutOp) for op, found in zip(asked, results, strict=True)):
            memory_was_read()
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """The same for a node that blocks, which LangGraph runs in a thread. Raises WrongColourError."""
        if asyncio._get_running_loop() is not None:
            raise WrongColourError(
                "store.get(), put() and the like would hold the gateway's event loop: in an async node await "
                "store.aget(), aput()"
            )
        return asyncio.run_coroutine_threadsafe(self.abatch(list(ops)), self._loop).result()


def _import_store() -> None:
    import rtmem.store  # noqa: F401


def _import_recall() -> None:
    import rtmem.agent.recall  # noqa: F401
