"""AsyncRedisStore: one line per verb, the algorithms are in `rtmem.operations`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, Self

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import IndexConfig, Op, Result, TTLConfig

from rtmem import settings as all_settings
from rtmem.drivers import AsyncDriver
from rtmem.errors import ConfigError, WrongColourError
from rtmem.operations import memories, vector_index
from rtmem.settings import Ack
from rtmem.steps import Embedder, R, Steps
from rtmem.store.base import Store
from rtmem.store.sync import redis_settings


class InLoopError(WrongColourError, asyncio.InvalidStateError):
    """Also LangGraph's word for it, which its own awaiting stores raise."""


class AsyncRedisStore(Store):
    """Long-term memory in Redis: LangGraph's BaseStore. Awaiting.

    Arguments as for RedisStore; `driver` is an AsyncDriver, `redis_client` a redis.asyncio.Redis. The sync verbs work
    from other threads than that of the event loop; inside the loop they raise WrongColourError.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: Any = None,
        driver: AsyncDriver | None = None,
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
        self.loop = asyncio._get_running_loop()

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> AsyncIterator[Self]:
        """A store for the length of an async with block; options as for the class."""
        store = cls(redis_url, **options)
        try:
            yield store
        finally:
            await store.aclose()

    async def setup(self) -> None:
        """Make the index. Optional: the first search or write does it too.

        Raises ModuleMissingError, EmbedderMismatchError. See operations.vector_index.setup.
        """
        self.loop = asyncio.get_running_loop()
        await self.run(vector_index.ensure(self.scope.index))

    async def aclose(self) -> None:
        """Close the connections, unless the driver was given."""
        if self._owns_driver:
            await self._driver.aclose()

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def run(self, steps: Steps[R]) -> R:
        """Run steps of your own over the same connections: `store.run(operation(store.scope, ...))`."""
        return await self._driver.run(steps, self.scope.embedder)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See operations.memories.batch."""
        asked = list(ops)
        with self._counted(asked):
            return await self.run(self._batch(asked))

    async def reembed(self, limit: int = 1_000) -> int:
        """See operations.memory_vectors.reembed."""
        return await self.run(memories.reembed(self.scope, limit))

    # The sync verbs, for code that runs in another thread than the event loop ---------------------------------------

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """abatch, for another thread than that of the event loop. Raises WrongColourError."""
        if self.loop is None or asyncio._get_running_loop() is not None or not self.loop.is_running():
            raise InLoopError(
                "get(), put() and the like of AsyncRedisStore block their thread until the store's event loop has done "
                "the work, and there is no such loop in another thread: await aget(), aput(), or use RedisStore"
            )
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self.loop).result()


def _driver(url: str | None, client: Any, connection_args: Mapping[str, Any] | None) -> AsyncDriver:
    settings = redis_settings(connection_args)
    if client is not None:
        return AsyncDriver.of_client(client, settings)
    if not url:
        raise ConfigError(
            "give redis_url, redis_client or driver; `rtmem up --redis-only` runs an embedded Redis and prints its URL"
        )
    return AsyncDriver.lazy(url, settings)
