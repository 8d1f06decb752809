"""The least that any saver on Redis must do, as the measure for all of them.

`floor` is one pipelined round trip of redis-py that carries bytes which were serialised beforehand. `floor+serde` is
the same with LangGraph's JsonPlusSerializer at work in the measured time. Neither shares, compresses, checks, indexes
beyond one sorted set, or is atomic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis.asyncio
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from loadtest.checkpoint.states import Put

Encoded = tuple[str, str, list[bytes], list[tuple[str, bytes]]]
"""thread_id, checkpoint_id, [record, metadata], [(channel, value)]"""

CONNECTIONS_MAX = 32


def client(url: str) -> redis.asyncio.Redis:
    """A client whose callers wait for a free connection instead of failing, as in any serious program."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS_MAX, timeout=30)
    return redis.asyncio.Redis(connection_pool=pool)


class Floor:
    """The floor's three operations, with pre-serialised payloads or with the serializer's work included."""

    def __init__(self, connection: redis.asyncio.Redis, prefix: str = "floor") -> None:
        self._redis = connection
        self._prefix = prefix
        self._serde = JsonPlusSerializer()

    def encode(self, put: Put) -> Encoded:
        """One put, serialised."""
        record = {key: value for key, value in put.checkpoint.items() if key != "channel_values"}
        values = put.checkpoint["channel_values"]
        return (
            put.config["configurable"]["thread_id"],
            put.checkpoint["id"],
            [self._serde.dumps_typed(record)[1], self._serde.dumps_typed(put.metadata)[1]],
            [(channel, self._serde.dumps_typed(values[channel])[1]) for channel in put.new_versions],
        )

    async def put(self, encoded: Encoded) -> None:
        """One pipelined round trip: the record, each new channel value, the index."""
        thread_id, checkpoint_id, (record, metadata), values = encoded
        base = f"{self._prefix}:{thread_id}"
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(f"{base}:c:{checkpoint_id}", mapping={"record": record, "metadata": metadata})
        for channel, value in values:
            pipe.set(f"{base}:v:{channel}", value)
        pipe.zadd(f"{base}:i", {checkpoint_id: 0})
        await pipe.execute()

    async def put_with_serde(self, put: Put) -> None:
        await self.put(self.encode(put))

    def encode_writes(self, writes: Sequence[tuple[str, Any]]) -> list[tuple[str, bytes]]:
        return [(channel, self._serde.dumps_typed(value)[1]) for channel, value in writes]

    async def put_writes(self, config: RunnableConfig, encoded: list[tuple[str, bytes]], task_id: str) -> None:
        """One pipelined round trip: one hash of all writes of a checkpoint."""
        key = f"{self._prefix}:{config['configurable']['thread_id']}:w:{config['configurable']['checkpoint_id']}"
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(key, mapping={f"{task_id}:{place}:{channel}": data for place, (channel, data) in enumerate(encoded)})
        await pipe.execute()

    async def put_writes_with_serde(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str
    ) -> None:
        await self.put_writes(config, self.encode_writes(writes), task_id)

    async def get(self, thread_id: str, checkpoint_id: str, channels: Sequence[str]) -> list[Any]:
        """One pipelined round trip to a checkpoint whose id is known: record, channel values, pending writes."""
        base = f"{self._prefix}:{thread_id}"
        pipe = self._redis.pipeline(transaction=False)
        pipe.hgetall(f"{base}:c:{checkpoint_id}")
        for channel in channels:
            pipe.get(f"{base}:v:{channel}")
        pipe.hgetall(f"{base}:w:{checkpoint_id}")
        found: list[Any] = await pipe.execute()
        return found

    async def get_with_serde(self, thread_id: str, checkpoint_id: str, channels: Sequence[str]) -> dict[str, Any]:
        record, *values, writes = await self.get(thread_id, checkpoint_id, channels)
        load = self._serde.loads_typed
        checkpoint = load(("msgpack", record[b"record"]))
        load(("msgpack", record[b"metadata"]))
        checkpoint["channel_values"] = {
            channel: load(("msgpack", value)) for channel, value in zip(channels, values, strict=True)
        }
        checkpoint["writes"] = [load(("msgpack", value)) for value in writes.values()]
        found: dict[str, Any] = checkpoint
        return found


class FloorSaver(InMemorySaver):
    """InMemorySaver that also makes the floor's round trip with the bytes it has just stored, or is about to load.

    What a graph over this saver takes longer than over InMemorySaver is the price of Redis and nothing else.
    """

    def __init__(self, connection: redis.asyncio.Redis) -> None:
        super().__init__()
        self._redis = connection

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        thread_id, ns = stored["configurable"]["thread_id"], stored["configurable"]["checkpoint_ns"]
        (_, record), (_, described), _parent = self.storage[thread_id][ns][checkpoint["id"]]
        pipe = self._redis.pipeline(transaction=False)
        pipe.hset(f"graph:{thread_id}:c:{checkpoint['id']}", mapping={"record": record, "metadata": described})
        for channel, version in new_versions.items():
            pipe.set(f"graph:{thread_id}:v:{channel}", self.blobs[(thread_id, ns, channel, version)][1])
        pipe.zadd(f"graph:{thread_id}:i", {checkpoint["id"]: 0})
        await pipe.execute()
        return stored

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await super().aput_writes(config, writes, task_id, task_path)
        place = config["configurable"]
        stored = self.writes[(place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"])]
        mine: dict[Any, Any] = {f"{key[0]}:{key[1]}": entry[2][1] for key, entry in stored.items() if key[0] == task_id}
        if mine:
            pipe = self._redis.pipeline(transaction=False)
            pipe.hset(f"graph:{place['thread_id']}:w:{place['checkpoint_id']}", mapping=mine)
            await pipe.execute()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await super().aget_tuple(config)
        thread_id = config["configurable"]["thread_id"]
        checkpoint_id = found.checkpoint["id"] if found else "none"
        pipe = self._redis.pipeline(transaction=False)
        pipe.hgetall(f"graph:{thread_id}:c:{checkpoint_id}")
        for channel in found.checkpoint["channel_values"] if found else ():
            pipe.get(f"graph:{thread_id}:v:{channel}")
        pipe.hgetall(f"graph:{thread_id}:w:{checkpoint_id}")
        await pipe.execute()
        return found
