"""Long-term memory for the graphs that are served: each gets the store of whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langgraph.pregel import Pregel

from rtmem.drivers import AsyncDriver
from rtmem.settings import Store

if TYPE_CHECKING:
    from rtmem.store import AsyncRedisStore


def stores_of(
    graphs: Mapping[str, Pregel[Any, Any, Any, Any]], driver: AsyncDriver, settings: Store
) -> dict[str, AsyncRedisStore]:
    """A store in Redis for each graph that was compiled with a store, whatever that is: to be bound to a principal.

    What the graph's own store embeds, and with what, holds for this one too. Raises ConfigError.
    """
    wanted = {name: graph.store for name, graph in graphs.items() if graph.store is not None}
    if not wanted:
        return {}
    from rtmem.store import AsyncRedisStore  # with RedisVL, which takes a second to import

    return {
        name: AsyncRedisStore(driver=driver, settings=settings, index=_index(theirs)) for name, theirs in wanted.items()
    }


def _index(store: Any) -> Any:
    config = getattr(store, "index_config", None)
    if not config:
        return None
    # LangGraph's stores keep notes of their own in it.
    return {name: config[name] for name in ("embed", "dims", "fields") if config.get(name) is not None}
