"""Graph states of known size, and the checkpoints that a graph would put for them.

Text is random words: neither zeros that a compressor reduces to nothing, nor noise that no conversation is made of.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, ChannelVersions, Checkpoint, CheckpointMetadata
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

MESSAGE_BYTES = 320  # as JsonPlusSerializer encodes it

_TEXT_BYTES = 8_000_000  # slices of a few hundred bytes hardly ever overlap


@cache
def _long_text() -> str:
    source = random.Random(20)
    words = ["".join(source.choices("aeioubcdfghklmnprst", k=source.randint(2, 9))) for _ in range(3_000)]
    return " ".join(source.choices(words, k=_TEXT_BYTES // 6))[:_TEXT_BYTES]


class Put(NamedTuple):
    """The arguments of one `aput`."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions


def text(size_bytes: int, source: random.Random) -> str:
    """`size_bytes` of words that were hardly ever returned before."""
    long_text = _long_text()
    start = source.randrange(len(long_text) - size_bytes)
    return long_text[start : start + size_bytes]


def _envelope_bytes() -> int:
    return len(JsonPlusSerializer().dumps_typed(HumanMessage("", id=str(uuid6())))[1])


ENVELOPE_BYTES = _envelope_bytes()


def message(number: int, source: random.Random, size_bytes: int = MESSAGE_BYTES) -> AnyMessage:
    """A message that is about `size_bytes` when encoded; people and models take turns."""
    kind = AIMessage if number % 2 else HumanMessage
    return kind(text(max(8, size_bytes - ENVELOPE_BYTES), source), id=str(uuid6()))


def messages(count: int, source: random.Random) -> list[AnyMessage]:
    """`count` new messages."""
    return [message(number, source) for number in range(count)]


SIZES: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "2 KB": lambda source: {"messages": messages(6, source), "step": source.randrange(10**6)},
    "50 KB": lambda source: {"messages": messages(156, source), "step": source.randrange(10**6)},
    "1 MB list": lambda source: {"messages": messages(2_500, source), "step": source.randrange(10**6)},
    "1 MB string": lambda source: {"document": text(1_000_000, source), "step": source.randrange(10**6)},
}


@dataclass(slots=True)
class _Head:
    checkpoint_id: str | None = None
    step: int = 0
    versions: dict[str, Any] = field(default_factory=dict)


class Threads:
    """Makes successive checkpoints of threads, as the Pregel loop would hand them to `saver`."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        self._saver = saver
        self._heads: defaultdict[str, _Head] = defaultdict(_Head)

    def config(self, thread_id: str) -> RunnableConfig:
        """Of the latest checkpoint made for this thread."""
        configurable = {
            "thread_id": thread_id,
            "checkpoint_ns": "",
            "checkpoint_id": self._heads[thread_id].checkpoint_id,
        }
        return {"configurable": configurable}

    def next(self, thread_id: str, values: dict[str, Any], changed: Sequence[str]) -> Put:
        """The checkpoint after the latest one, in which only the channels of `changed` are new."""
        head = self._heads[thread_id]
        configurable = {"thread_id": thread_id, "checkpoint_ns": ""}
        if head.checkpoint_id is not None:
            configurable["checkpoint_id"] = head.checkpoint_id
        new_versions = {channel: self._saver.get_next_version(head.versions.get(channel), None) for channel in changed}
        head.versions = {**head.versions, **new_versions}
        head.checkpoint_id = str(uuid6(clock_seq=head.step))
        head.step += 1
        checkpoint = Checkpoint(
            v=4,
            id=head.checkpoint_id,
            ts=datetime.now(UTC).isoformat(),
            channel_values=values,
            channel_versions=dict(head.versions),
            versions_seen={"agent": dict(head.versions), "__input__": {}},
            updated_channels=list(changed),
        )
        metadata: CheckpointMetadata = {"source": "loop", "step": head.step, "parents": {}}
        return Put({"configurable": configurable}, checkpoint, metadata, new_versions)
