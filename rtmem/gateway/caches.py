"""The answers that a gateway gives again: one cache over its own connections, bound to whoever is authenticated.

Opened at the start, if a graph's owner has opted in. Until it is open, and where it cannot be opened, graphs run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.cache.base import BaseCache

from rtmem import settings as settings_
from rtmem.agent.served import CACHED_TURNS
from rtmem.agent.turn import Graph
from rtmem.drivers import AsyncDriver
from rtmem.keys import check_id
from rtmem.served import SHARED
from rtmem.steps import Embedder

if TYPE_CHECKING:
    from rtmem.agent.cache.turn_cache import TurnCache
    from rtmem.cache import AsyncSemanticCache

_logger: Final = logging.getLogger(__name__)
_TOLD_EVERY_S: Final = 10
_WARMED_BY: Final = "What is the capital of France?"


class Caches:
    """What answers turns of graphs whose owners have opted in.

    Args:
        embedder: gives the gateway's; questions are compared by it.
        graphs: by their assistant ids.

    Raises IdTooLongError: of an assistant whose answers are shared.
    """

    def __init__(
        self,
        driver: AsyncDriver,
        settings: settings_.Settings,
        embedder: Callable[[], Embedder | None],
        graphs: Mapping[str, Graph],
    ) -> None:
        self._driver = driver
        self._settings = settings.cache
        self._embedder = embedder
        policies = {name: _policy_of(graph) for name, graph in graphs.items()}
        self._expected = any(policy is not None for policy in policies.values())
        for name, policy in policies.items():
            if policy is not None and policy.shared:
                check_id(SHARED + name, "principal of shared answers")
        _warn_of_others(graphs)
        self._cache: AsyncSemanticCache | None = None
        self.awake = asyncio.Event()
        """The cache is open, or cannot be opened, or no graph needs it."""

    @property
    def counts(self) -> dict[str, int]:
        """See AsyncSemanticCache.counts; of all principals, since this process started."""
        return {} if self._cache is None else self._cache.counts

    async def wake(self) -> None:
        """Open the cache and load the embedder's model. Raises nothing."""
        try:
            if self._expected:
                # In a thread: a second or two, and others are answered meanwhile.
                await anyio.to_thread.run_sync(_import_cache)
                from rtmem.cache import AsyncSemanticCache

                embedder = self._embedder()
                cache = AsyncSemanticCache(driver=self._driver, embedder=embedder, settings=self._settings)
                self._cache = cache
                if cache.context.guard is not None:
                    await anyio.to_thread.run_sync(cache.context.guard, _WARMED_BY, _WARMED_BY.lower())
                if embedder is not None:
                    await embedder.aembed((_WARMED_BY,), "query")
        except Exception as exc:  # noqa: BLE001 - whatever a model's or an engine's package raises
            missing = "exact hits only" if self._cache is not None else "graphs run without it"
            _logger.warning("the cache is not loaded; %s: %s: %s", missing, type(exc).__name__, exc)
        finally:
            self.awake.set()

    def of_turn(
        self, principal: str, graph: Graph, turn_input: Any, config: RunnableConfig, assistant_id: str
    ) -> TurnCache | None:
        """The cache for one turn; None for a graph that has not opted in, or a turn that asks nothing new."""
        policy = _policy_of(graph)
        if policy is None or self._cache is None:
            return None
        from rtmem.agent.cache.turn_cache import of_turn

        owner = SHARED + assistant_id if policy.shared else principal
        return of_turn(policy, self._cache.bind(owner), graph, turn_input, config, assistant_id)

    @staticmethod
    def nodes_for(graph: Graph, principal: str) -> BaseCache[Any] | None:
        """The cache of a principal's nodes: the graph's own, bound to him if it can be and is not for everybody."""
        bind = None if getattr(graph.cache, "shared", False) else getattr(graph.cache, "bind", None)
        return graph.cache if bind is None else bind(principal)

    async def tell_usage(self) -> None:
        """Tell Redis of hits now and then, for whoever looks. Runs until it is cancelled."""
        await self.awake.wait()
        if self._cache is None:
            return
        from rtmem.operations.semantic_cache import tell_all_usage

        while True:
            await anyio.sleep(_TOLD_EVERY_S)
            await self._cache.run(tell_all_usage(self._cache.context))

    async def aclose(self) -> None:
        """Tell Redis of hits it does not know of. The driver is not ours."""
        if self._cache is not None:
            await self._cache.aclose()


def _warn_of_others(graphs: Mapping[str, Graph]) -> None:
    """Tell the owner of a graph whose nodes give one user's values to another."""
    for name, graph in graphs.items():
        caches = [getattr(each, "cache", None) for each in (graph, *dict(graph.get_subgraphs(recurse=True)).values())]
        for kind in {type(cache) for cache in caches if cache is not None}:
            if not hasattr(kind, "bind"):
                _logger.warning(
                    "assistant %r: its nodes are cached by %s, which cannot tell users apart: all get what was "
                    "computed for one; rtmem.cache.nodes.NodeCache can",
                    name,
                    kind.__name__,
                )


def _policy_of(graph: Graph) -> Any:
    return ((graph.config or {}).get("configurable") or {}).get(CACHED_TURNS)


def _import_cache() -> None:
    import rtmem.agent.cache.turn_cache  # noqa: F401
