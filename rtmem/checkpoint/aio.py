"""AsyncRedisSaver and AsyncShallowRedisSaver: one line per verb, the algorithms are in `rtmem.operations`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from rtmem import settings as all_settings
from rtmem.checkpoint.base import Saver, checkpoint_settings, unsupported
from rtmem.checkpoint.sync import NO_HISTORY, redis_settings
from rtmem.drivers import AsyncDriver
from rtmem.errors import ConfigError, ServerError, WrongColourError
from rtmem.operations import checkpoints, copies, delta_channels, durability, durability_proof, histories
from rtmem.operations.durability import Mark
from rtmem.operations.functions import library_of
from rtmem.operations.places import as_thread_id
from rtmem.settings import Ack
from rtmem.steps import Batch

T = TypeVar("T")

WATCH_INTERVAL_S = 0.2
"""Often enough that a stall of the loop does not make what was written unprovable; seldom enough to cost nothing."""


class AsyncRedisSaver(Saver):
    """Keeps every checkpoint of every thread in Redis: time travel, forks, human in the loop. Awaiting.

    Arguments as for RedisSaver; `driver` is an AsyncDriver, `redis_client` a redis.asyncio.Redis. The sync verbs work
    from other threads than that of the event loop; inside the loop they raise WrongColourError.
    """

    shallow: ClassVar[bool] = False

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: Any = None,
        driver: AsyncDriver | None = None,
        connection_args: Mapping[str, Any] | None = None,
        ttl: Mapping[str, Any] | None = None,
        checkpoint_prefix: str | None = None,
        checkpoint_write_prefix: str | None = None,
        principal: str = "",
        serde: SerializerProtocol | None = None,
        settings: all_settings.Checkpoint | None = None,
        ack: Ack | None = None,
        replicas: int | None = None,
        offload_bytes_min: int | None = None,
        pointers: all_settings.Pointers | None = None,
    ) -> None:
        super().__init__(
            serde=serde,
            settings=checkpoint_settings(settings, ttl, checkpoint_prefix, ack, replicas, offload_bytes_min),
            principal=principal,
            pointers=pointers,
        )
        self._owns_driver = driver is None
        self._driver = driver or _driver(redis_url, redis_client, connection_args)
        self.loop = asyncio._get_running_loop()

    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> AsyncIterator[Self]:
        """A saver for the length of an async with block; options as for the class."""
        saver = cls(redis_url, **options)
        try:
            yield saver
        finally:
            await saver.aclose()

    async def asetup(self) -> None:
        """Connect, and load the function library if the server lacks it. Optional: the first write does it too."""
        self.loop = asyncio.get_running_loop()
        await self._driver.answer(Batch((("FUNCTION", "LOAD", "REPLACE", library_of("rtmem_v2_checkpoint_put")),)))

    async def setup(self) -> None:
        """The name langgraph-checkpoint-postgres gives to asetup."""
        await self.asetup()

    async def aclose(self) -> None:
        """Close the connections, unless the driver was given."""
        if self._owns_driver:
            await self._driver.aclose()

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See operations.checkpoints.put."""
        return await self._driver.run(
            self._durably(checkpoints.put(self.scope, config, checkpoint, metadata, new_versions))
        )

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See operations.checkpoints.put_writes."""
        await self._driver.run(self._durably(checkpoints.put_writes(self.scope, config, writes, task_id, task_path)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See operations.checkpoints.get_tuple."""
        return await self._driver.run(checkpoints.get_tuple(self.scope, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first; without config those of all threads, thread by thread.

        See operations.histories.list_page: 1 round trip per page of `page_size`.
        """
        query, left = histories.query_of(config, filter, before), limit
        async for thread_id in self._thread_ids(config):
            cursor = b""
            while left is None or left > 0:
                size = self.settings.page_size if left is None else min(left, self.settings.page_size)
                page = await self._driver.run(histories.list_page(self.scope, thread_id, query, cursor, size))
                tuples = page.tuples if left is None else page.tuples[:left]
                for found in tuples:
                    yield found
                left = None if left is None else left - len(tuples)
                cursor = page.cursor
                if not cursor:
                    break

    async def _thread_ids(self, config: RunnableConfig | None) -> AsyncIterator[str]:
        if config is not None and "thread_id" in config.get("configurable", {}):
            yield as_thread_id(config["configurable"]["thread_id"])
            return
        cursor = b""
        while True:
            names, cursor = await self._driver.run(histories.threads_page(self.scope, cursor))
            for name in names:
                yield name
            if not cursor:
                return

    async def amark(self, ack: Ack) -> Mark:
        """Begin a series of writes that `aprove` will prove with one wait; `awatch` has to run until then.

        Raises ConfigError if the server can prove nothing of the kind. See operations.durability.mark.
        """
        return await self._driver.run(durability.mark(self.promise(ack)))

    async def awatch(self, ack: Ack) -> NoReturn:
        """Look after the server's disk until cancelled: a failed fsync is told for a second only."""
        while True:
            # A server that does not answer was not looked at: then `aprove` will refuse.
            with suppress(ServerError):
                await self._driver.run(durability_proof.look(self.promise(ack)))
            await asyncio.sleep(WATCH_INTERVAL_S)

    async def aprove(self, ack: Ack, since: Mark) -> None:
        """Return once all that was written since the mark, by anybody, is as durable as `ack`. Raises NotDurableError.

        See operations.durability.barrier.
        """
        await self._driver.run(durability.barrier(self.promise(ack), since))

    async def adelete_thread(self, thread_id: str) -> None:
        """See operations.histories.delete_thread."""
        await self._driver.run(self._durably(histories.delete_thread(self.scope, thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See operations.histories.delete_for_runs."""
        await self._driver.run(self._durably(histories.delete_for_runs(self.scope, run_ids)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See operations.copies.copy_thread."""
        await self._driver.run(self._durably(copies.copy_thread(self.scope, source_thread_id, target_thread_id)))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See operations.histories.prune."""
        for thread_id in histories.several(thread_ids):
            await self._driver.run(self._durably(histories.prune(self.scope, thread_id, strategy)))

    async def arebuild_index(self) -> int:
        """See operations.histories.rebuild_index."""
        return await self._driver.run(histories.rebuild_index(self.scope))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See operations.delta_channels.get_delta_channel_history."""
        return await self._driver.run(delta_channels.get_delta_channel_history(self.scope, config, channels))

    # The sync verbs, for code that runs in another thread than the event loop ---------------------------------------

    def _wait(self, verb: str, work: Coroutine[Any, Any, T]) -> T:
        if self.loop is None or asyncio._get_running_loop() is not None or not self.loop.is_running():
            work.close()
            raise WrongColourError(
                f"{type(self).__name__}.{verb}() blocks its thread until the saver's event loop has done the work, and "
                f"there is no such loop in another thread: await a{verb}() (ainvoke, astream), or compile the graph "
                f"with {type(self).__name__.removeprefix('Async')}"
            )
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See aput."""
        return self._wait("put", self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See aput_writes."""
        self._wait("put_writes", self.aput_writes(config, writes, task_id, task_path))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See aget_tuple."""
        return self._wait("get_tuple", self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """See alist."""
        found = self.alist(config, filter=filter, before=before, limit=limit)
        while True:
            try:
                yield self._wait("list", _next(found))
            except StopAsyncIteration:
                return

    def delete_thread(self, thread_id: str) -> None:
        """See adelete_thread."""
        self._wait("delete_thread", self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See adelete_for_runs."""
        self._wait("delete_for_runs", self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See acopy_thread."""
        self._wait("copy_thread", self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See aprune."""
        self._wait("prune", self.aprune(thread_ids, strategy=strategy))

    def rebuild_index(self) -> int:
        """See arebuild_index."""
        return self._wait("rebuild_index", self.arebuild_index())

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See aget_delta_channel_history."""
        return self._wait(
            "get_delta_channel_history", self.aget_delta_channel_history(config=config, channels=channels)
        )


class AsyncShallowRedisSaver(AsyncRedisSaver):
    """Keeps only the latest checkpoint of each (thread, namespace), and the writes that belong to it. Awaiting.

    Asking for any other checkpoint_id answers None. Delta channels need history and are refused.
    """

    shallow: ClassVar[bool] = True

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Not here: a delta channel is rebuilt from ancestors, which this saver does not keep."""
        if not channels:
            return {}
        raise unsupported(self, "aget_delta_channel_history", NO_HISTORY)


async def _next(found: AsyncIterator[CheckpointTuple]) -> CheckpointTuple:
    return await anext(found)


def _driver(url: str | None, client: Any, connection_args: Mapping[str, Any] | None) -> AsyncDriver:
    settings = redis_settings(connection_args)
    if client is not None:
        return AsyncDriver.of_client(client, settings)
    if not url:
        raise ConfigError(
            "give redis_url, redis_client or driver; `rtmem up --redis-only` runs an embedded Redis and prints its URL"
        )
    return AsyncDriver.lazy(url, settings)
