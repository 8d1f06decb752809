"""RedisStore: one line per verb, the algorithms are in `rtmem.operations`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import IndexConfig, Op, Result, TTLConfig

from rtmem import settings as all_settings
from rtmem.drivers import SyncDriver
from rtmem.errors import ConfigError
from rtmem.operations import memories, vector_index
from rtmem.settings import Ack
from rtmem.steps import Embedder, R, Steps
from rtmem.store.base import Store


class RedisStore(Store):
    """Long-term memory in Redis: LangGraph's BaseStore. Blocking; its async verbs run in threads.

    Args:
        redis_url: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster:// (there, by key only).
        redis_client: a redis.Redis to connect like, instead of a URL.
        driver: a SyncDriver to share, instead of a URL.
        connection_args: fields of settings.Redis, with a URL.
        index: LangGraph's {"embed": ..., "dims": ..., "fields": [...]}, or an embedder of rtmem. Without, a search has
            no ranking.
        ttl: LangGraph's {"default_ttl": minutes, "refresh_on_read": bool}.
        principal: whose items; nothing in a namespace can change it.
        serde: how values are written; LangGraph's JsonPlusSerializer.
        settings: section [store].
        ranking: of a search by a query: "vector", as InMemoryStore ranks, or "hybrid", by words besides.
        retrieval: section [retrieval], of ranking "hybrid".
        ack, replicas: what every write waits for.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: Any = None,
        driver: SyncDriver | None = None,
        connection_args: Mapping[str, Any] | None = None,
        index: IndexConfig | Embedder | None = None,
        ttl: TTLConfig | None = None,
        principal: str = "",
        serde: SerializerProtocol | None = None,
        settings: all_settings.Store | None = None,
        ranking: Literal["vector", "hybrid"] | None = None,
        retrieval: all_settings.Retrieval | None = None,
        ack: Ack | None = None,
        replicas: int | None = None,
    ) -> None:
        super().__init__(
            index=index,
            ttl=ttl,
            principal=principal,
            serde=serde,
            settings=settings,
            ranking=ranking,
            retrieval=retrieval,
            ack=ack,
            replicas=replicas,
        )
        self._owns_driver = driver is None
        self._driver = driver or _driver(redis_url, redis_client, connection_args)

    @classmethod
    @contextmanager
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Iterator[Self]:
        """A store for the length of a with block; options as for the class."""
        store = cls(redis_url, **options)
        try:
            yield store
        finally:
            store.close()

    def setup(self) -> None:
        """Make the index. Optional: the first search or write does it too.

        Raises ModuleMissingError, EmbedderMismatchError. See operations.vector_index.setup.
        """
        self.run(vector_index.ensure(self.scope.index))

    def close(self) -> None:
        """Close the connections, unless the driver was given."""
        if self._owns_driver:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, steps: Steps[R]) -> R:
        """Run steps of your own over the same connections: `store.run(operation(store.scope, ...))`."""
        return self._driver.run(steps, self.scope.embedder)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """See operations.memories.batch."""
        asked = list(ops)
        with self._counted(asked):
            return self.run(self._batch(asked))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same in a thread, as LangGraph's own blocking stores do it."""
        return await asyncio.get_running_loop().run_in_executor(None, self.batch, list(ops))

    def reembed(self, limit: int = 1_000) -> int:
        """See operations.memory_vectors.reembed."""
        return self.run(memories.reembed(self.scope, limit))


def redis_settings(connection_args: Mapping[str, Any] | None) -> all_settings.Redis:
    """Connection settings by the names of settings.Redis. Raises ConfigError for others."""
    try:
        return all_settings.Redis(**dict(connection_args or {}))
    except TypeError as exc:
        known = ", ".join(all_settings.Redis.__struct_fields__)
        raise ConfigError(f"connection_args: {exc}: put it into the URL, or use one of {known}") from exc


def _driver(url: str | None, client: Any, connection_args: Mapping[str, Any] | None) -> SyncDriver:
    settings = redis_settings(connection_args)
    if client is not None:
        return SyncDriver.of_client(client, settings)
    if not url:
        raise ConfigError(
            "give redis_url, redis_client or driver; `rtmem up --redis-only` runs an embedded Redis and prints its URL"
        )
    return SyncDriver.lazy(url, settings)
