"""RedisSaver and ShallowRedisSaver: one line per verb, the algorithms are in `rtmem.operations`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Self

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
from rtmem.drivers import SyncDriver
from rtmem.errors import ConfigError, WrongColourError
from rtmem.operations import checkpoints, copies, delta_channels, histories
from rtmem.operations.functions import library_of
from rtmem.operations.places import as_thread_id
from rtmem.settings import Ack
from rtmem.steps import Batch, R, Steps


class RedisSaver(Saver):
    """Keeps every checkpoint of every thread in Redis: time travel, forks, human in the loop. Blocking.

    Args:
        redis_url: redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://.
        redis_client: a redis.Redis instead of a URL; its connection settings are taken over, not its pool.
        driver: a SyncDriver to share between savers.
        connection_args: ignored names are an error; `protocol` (2 or 3) is known.
        ttl: {"default_ttl": minutes, "refresh_on_read": bool}; every write renews the expiry of its whole thread.
        checkpoint_prefix: first part of every key.
        checkpoint_write_prefix: accepted for langgraph-checkpoint-redis; writes live in the hash of their thread.
        principal: the tenant; a stored thread is (principal, thread_id).
        serde: LangGraph serialiser; JsonPlusSerializer by default.
        ack: what every write waits for: "memory" (Redis has it), "fsync" (on this server's disk), "replica" (see
            operations.durability). LangGraph's `durability` says when a checkpoint is written, `ack` how safe:
            "sync" + "fsync" has each step on disk before the next one starts; "async" + "fsync" lets the next step run
            meanwhile, and all are on disk when invoke() returns; "exit" + "fsync" is one such write at the end.
            NotDurableError: written and readable, but not proved within settings.ack_timeout_ms.
        replicas: how many replicas ack "replica" asks for.
        offload_bytes_min: a value, message or pending write from this size on is moved out of its thread and comes
            back with it (operations.offloading); 0, the default, moves nothing.
        pointers: limits and lifetimes of what is moved out.
        allow_in_loop: let calls inside a running event loop block it (notebooks).
    """

    shallow: ClassVar[bool] = False

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        redis_client: Any = None,
        driver: SyncDriver | None = None,
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
        allow_in_loop: bool = False,
    ) -> None:
        super().__init__(
            serde=serde,
            settings=checkpoint_settings(settings, ttl, checkpoint_prefix, ack, replicas, offload_bytes_min),
            principal=principal,
            pointers=pointers,
        )
        self._owns_driver = driver is None
        self._driver = driver or _driver(redis_url, redis_client, connection_args)
        self._allow_in_loop = allow_in_loop

    @classmethod
    @contextmanager
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Iterator[Self]:
        """A saver for the length of a with block; options as for the class."""
        saver = cls(redis_url, **options)
        try:
            yield saver
        finally:
            saver.close()

    def setup(self) -> None:
        """Connect, and load the function library if the server lacks it. Optional: the first write does it too."""
        self._driver.answer(Batch((("FUNCTION", "LOAD", "REPLACE", library_of("rtmem_v2_checkpoint_put")),)))

    def close(self) -> None:
        """Close the connections, unless the driver was given."""
        if self._owns_driver:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _run(self, verb: str, steps: Steps[R]) -> R:
        if not self._allow_in_loop and asyncio._get_running_loop() is not None:
            steps.close()
            raise WrongColourError(
                f"{type(self).__name__}.{verb}() was called inside a running event loop and would block it: use "
                f"Async{type(self).__name__}.a{verb}() with ainvoke/astream, or pass allow_in_loop=True in a notebook"
            )
        return self._driver.run(steps)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """See operations.checkpoints.put."""
        return self._run("put", self._durably(checkpoints.put(self.scope, config, checkpoint, metadata, new_versions)))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """See operations.checkpoints.put_writes."""
        self._run("put_writes", self._durably(checkpoints.put_writes(self.scope, config, writes, task_id, task_path)))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """See operations.checkpoints.get_tuple."""
        return self._run("get_tuple", checkpoints.get_tuple(self.scope, config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first; without config those of all threads, thread by thread.

        See operations.histories.list_page: 1 round trip per page of `page_size`.
        """
        query, left = histories.query_of(config, filter, before), limit
        for thread_id in self._thread_ids(config):
            cursor = b""
            while left is None or left > 0:
                size = self.settings.page_size if left is None else min(left, self.settings.page_size)
                page = self._run("list", histories.list_page(self.scope, thread_id, query, cursor, size))
                tuples = page.tuples if left is None else page.tuples[:left]
                yield from tuples
                left = None if left is None else left - len(tuples)
                cursor = page.cursor
                if not cursor:
                    break

    def _thread_ids(self, config: RunnableConfig | None) -> Iterator[str]:
        if config is not None and "thread_id" in config.get("configurable", {}):
            yield as_thread_id(config["configurable"]["thread_id"])
            return
        cursor = b""
        while True:
            names, cursor = self._run("list", histories.threads_page(self.scope, cursor))
            yield from names
            if not cursor:
                return

    def delete_thread(self, thread_id: str) -> None:
        """See operations.histories.delete_thread."""
        self._run("delete_thread", self._durably(histories.delete_thread(self.scope, thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See operations.histories.delete_for_runs."""
        self._run("delete_for_runs", self._durably(histories.delete_for_runs(self.scope, run_ids)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See operations.copies.copy_thread."""
        self._run("copy_thread", self._durably(copies.copy_thread(self.scope, source_thread_id, target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See operations.histories.prune."""
        for thread_id in histories.several(thread_ids):
            self._run("prune", self._durably(histories.prune(self.scope, thread_id, strategy)))

    def rebuild_index(self) -> int:
        """See operations.histories.rebuild_index."""
        return self._run("rebuild_index", histories.rebuild_index(self.scope))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """See operations.delta_channels.get_delta_channel_history."""
        return self._run(
            "get_delta_channel_history", delta_channels.get_delta_channel_history(self.scope, config, channels)
        )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Not here: AsyncRedisSaver awaits."""
        raise self._no_async("aget_tuple")

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Not here: AsyncRedisSaver awaits."""
        raise self._no_async("aput")

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Not here: AsyncRedisSaver awaits."""
        raise self._no_async("aput_writes")

    def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Not here: AsyncRedisSaver awaits."""
        raise self._no_async("alist")

    def _no_async(self, verb: str) -> Exception:
        return unsupported(
            self, verb, f"this saver blocks; compile the graph with Async{type(self).__name__} for ainvoke and astream"
        )


class ShallowRedisSaver(RedisSaver):
    """Keeps only the latest checkpoint of each (thread, namespace), and the writes that belong to it. Blocking.

    Asking for any other checkpoint_id answers None. Delta channels need history and are refused.
    """

    shallow: ClassVar[bool] = True

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Not here: a delta channel is rebuilt from ancestors, which this saver does not keep."""
        if not channels:
            return {}
        raise unsupported(self, "get_delta_channel_history", NO_HISTORY)


NO_HISTORY = (
    "delta channels are rebuilt from older checkpoints, and a shallow saver keeps only the latest: use "
    "RedisSaver / AsyncRedisSaver for graphs with a DeltaChannel"
)


def _driver(url: str | None, client: Any, connection_args: Mapping[str, Any] | None) -> SyncDriver:
    settings = redis_settings(connection_args)
    if client is not None:
        return SyncDriver.of_client(client, settings)
    if not url:
        raise ConfigError(
            "give redis_url, redis_client or driver; `rtmem up --redis-only` runs an embedded Redis and prints its URL"
        )
    return SyncDriver.lazy(url, settings)


def redis_settings(connection_args: Mapping[str, Any] | None) -> all_settings.Redis:
    """Connection settings by the names of settings.Redis. Raises ConfigError for others."""
    try:
        return all_settings.Redis(**dict(connection_args or {}))
    except TypeError as exc:
        known = ", ".join(all_settings.Redis.__struct_fields__)
        raise ConfigError(f"connection_args: {exc}: put it into the URL, or use one of {known}") from exc
