"""The cache of a graph's nodes: `builder.compile(cache=NodeCache(url))`; a node says `CachePolicy(ttl=...)`.

Exact only: a node is skipped if it is given the very same input. Any Redis from 7.0 will do, Cluster too, and one round
trip is enough for all nodes of a step.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from langgraph.cache.base import BaseCache, FullKey, Namespace
from langgraph.checkpoint.serde.base import SerializerProtocol

from rtmem import settings as all_settings
from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.errors import ConfigError
from rtmem.keys import Keys, check_id
from rtmem.operations import node_cache
from rtmem.operations.cache_state import CacheState
from rtmem.operations.node_cache import NodeContext
from rtmem.operations.serde import Serde
from rtmem.served import check_shared, principal_of_run


class NodeCache(BaseCache[Any]):
    """What nodes returned, for one principal.

        graph = builder.compile(cache=NodeCache("redis://localhost:6379"))

    LangGraph calls get, set and clear of one object in `invoke`, and aget, aset and aclear in `ainvoke`: so it has a
    driver of either colour, and each connects when it is first used. (Threads around the blocking one would do too, and
    cost each step of an `ainvoke` a hop.) The awaiting verbs belong to one event loop at a time.

    get and set raise nothing of Redis: a node that is not found there runs. `counts` says what happened.

    Args:
        redis_url: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://.
        principal: whose values; whoever runs the graph gets them. Behind `rtmem serve`: of whoever is authenticated.
        shared: there, too, the values are those of `principal`, "shared:...": for everybody.
        serde: how values are written; LangGraph's JsonPlusSerializer, without pickle.
        settings: section [cache]: prefix, deadlines, pause_ms, compress_bytes_min. Values live as long as the node's
            CachePolicy says.
        redis: connections.
    """

    def __init__(
        self,
        redis_url: str,
        *,
        principal: str = "",
        shared: bool = False,
        serde: SerializerProtocol | None = None,
        settings: all_settings.Cache | None = None,
        redis: all_settings.Redis | None = None,
    ) -> None:
        super().__init__(serde=serde)
        if not redis_url:
            raise ConfigError("give redis_url; `rtmem up --redis-only` runs an embedded Redis")
        kept = settings or all_settings.Cache()
        self.context = NodeContext(
            principal=check_id(principal, "principal"),
            all_keys=Keys(kept.prefix),
            serde=Serde(self.serde, kept.compress_bytes_min),
            settings=kept,
            state=CacheState(kept),
        )
        self.shared = shared
        if shared:
            check_shared(principal)
        self._driver = SyncDriver.lazy(redis_url, redis)
        self._adriver = AsyncDriver.lazy(redis_url, redis)
        self._owns_drivers = True

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, redis_url: str, **options: Any) -> AsyncIterator[Self]:
        """A cache for the length of an async with block; options as for the class."""
        cache = cls(redis_url, **options)
        try:
            yield cache
        finally:
            await cache.aclose()

    @property
    def principal(self) -> str:
        """Whose values these are."""
        return self.context.principal

    @property
    def counts(self) -> dict[str, int]:
        """How often what happened in this process.

        exact, miss, stored, unreadable, unstored_unserialisable; and why Redis did not do it: unavailable, deadline,
        loading, full, failed.
        """
        return self.context.state.counts.read()

    def bind(self, principal: str) -> Self:
        """This cache for another principal: same connections, other values. Raises IdTooLongError."""
        if self.shared:
            check_shared(principal)
        clone = copy.copy(self)
        clone.context = self.context.bound(principal)
        clone._owns_drivers = False
        return clone

    def close(self) -> None:
        """Close the blocking connections; `aclose` closes all."""
        if self._owns_drivers:
            self._driver.close()

    async def aclose(self) -> None:
        """Close all connections."""
        if self._owns_drivers:
            self._driver.close()
            await self._adriver.aclose()

    def _whose(self) -> NodeContext:
        # For a graph within a node; that of the run itself is bound by the gateway, for no run is at work around it.
        principal = None if self.shared else principal_of_run()
        return self.context if principal in (None, self.principal) else self.context.bound(str(principal))

    def get(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """See operations.node_cache.get."""
        return self._driver.run(node_cache.get(self._whose(), keys))

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, Any]:
        """See operations.node_cache.get."""
        return await self._adriver.run(node_cache.get(self._whose(), keys))

    def set(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """See operations.node_cache.put."""
        self._driver.run(node_cache.put(self._whose(), pairs))

    async def aset(self, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> None:
        """See operations.node_cache.put."""
        await self._adriver.run(node_cache.put(self._whose(), pairs))

    def clear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """See operations.node_cache.clear."""
        self._driver.run(node_cache.clear(self._whose(), namespaces))

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """See operations.node_cache.clear."""
        await self._adriver.run(node_cache.clear(self._whose(), namespaces))
