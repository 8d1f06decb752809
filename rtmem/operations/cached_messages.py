"""A model's message as it is kept in the cache, and as it is given out of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, message_chunk_to_message
from langchain_core.messages.ai import UsageMetadata

from rtmem.operations.cache_records import Hit

M = TypeVar("M", bound=BaseMessage)

CACHED: Final = "rtmem_cache"
"""Name in `response_metadata` of what is known of a hit: kind, distance, saved_ms, hit_id (for `report`), usage."""

_SPENT: Final = ("token_usage", "usage")  # where providers tell in response_metadata what an answer cost


def kept(message: BaseMessage, ending: Mapping[str, Any] | None = None) -> BaseMessage:
    """`message` for the cache: whole, with all that is known of its `ending`, and without its id.

    LangGraph replaces a message by another one of the same id: an answer that is given twice in a thread needs two.
    """
    whole = message_chunk_to_message(message) if isinstance(message, AIMessageChunk) else message
    metadata = {**(ending or {}), **whole.response_metadata}
    return whole.model_copy(update={"id": None, "response_metadata": metadata})


def replayed(message: M, hit: Hit | None) -> M:
    """`message` as it is given out of the cache.

    Its usage is zero: whoever adds up what answers cost must not count this one again. What it cost when it was
    computed stands in `response_metadata["rtmem_cache"]["usage"]`, beside kind, distance, saved_ms and hit_id; alone,
    without a hit, if it was computed for somebody who asked the same at the same time.
    """
    if not isinstance(message, AIMessage):
        return message
    metadata = {name: value for name, value in message.response_metadata.items() if name not in _SPENT}
    metadata[CACHED] = {**(facts(hit) if hit else {}), "usage": message.usage_metadata}
    usage = UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0)
    return message.model_copy(update={"usage_metadata": usage, "response_metadata": metadata})


def facts(hit: Hit) -> dict[str, Any]:
    """What is told of a hit to those who see its answer."""
    return {"kind": hit.kind, "distance": hit.distance, "saved_ms": hit.saved_ms, "hit_id": hit.hit_id}
