"""The history a delta channel is rebuilt from: the writes along the parent chain, and the value they start from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import DeltaChannelHistory

from rtmem.errors import CorruptRecordError
from rtmem.operations.functions import call
from rtmem.operations.offloading import fetch, gone, is_reference, references_of_writes, with_values
from rtmem.operations.places import Place, Scope, place_of
from rtmem.operations.restore import sorted_writes, value_of
from rtmem.operations.sharing import numbers_of
from rtmem.steps import Batch, Compute, Steps


def get_delta_channel_history(
    scope: Scope, config: RunnableConfig, channels: Sequence[str]
) -> Steps[Mapping[str, DeltaChannelHistory]]:
    """What each channel gathered since the nearest ancestor that stores a value of it.

    Args:
        config: the target checkpoint; its own writes are not part of the history.

    Returns:
        For each channel `writes`, oldest first and in `writes_sort_key` order within a checkpoint, and `seed`, the
        stored value, unless the walk reached the root without one.

    Redis: 1 round trip at any length of the history, FCALL rtmem_v2_checkpoint_delta_history; 1 more for a channel
        whose seed has values of 64 KB or more; for values at pointers those of `offloading.fetch`.
    Source: BaseCheckpointSaver.get_delta_channel_history (langgraph-checkpoint 4.3).
    """
    if not channels:
        return {}
    place = place_of(scope, config)
    member = place.member(place.checkpoint_id) if place.checkpoint_id else b""
    wanted = list(dict.fromkeys(channels))
    reply = yield from call(
        "rtmem_v2_checkpoint_delta_history", place.function_keys, (member, place.head_field, *wanted)
    )
    history: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in wanted}
    yield from fetch_seeds(place, reply[-1])
    reply = yield from _with_values(scope, place, reply)
    yield Compute(_fill(scope, reply, history))
    return history


def fetch_seeds(place: Place, seeds: list[Any]) -> Steps[None]:
    """Put the large pieces into `seeds`, which the function left out."""
    for at in range(0, len(seeds), 4):
        kind, data, pieces = seeds[at + 1 : at + 4]
        if None in pieces:
            numbers = numbers_of(data) if kind == b"l" else [int(data)]
            missing = [number for number, piece in zip(numbers, pieces, strict=True) if piece is None]
            (found,) = yield Batch((("HMGET", place.keys.checkpoints, *missing),), lane="large")
            if None in found:
                raise CorruptRecordError(
                    f"thread {place.thread_id!r}: the value a delta channel starts from is gone; was it pruned "
                    "meanwhile? read again, or run `rtmem doctor threads`"
                )
            large = iter(found)
            pieces[:] = [next(large) if piece is None else piece for piece in pieces]


def _with_values(scope: Scope, place: Place, reply: list[Any]) -> Steps[list[Any]]:
    """The reply with what lies at pointers. Raises CorruptRecordError where that is gone."""
    *ancestors, seeds = reply
    wanted = {reference: what for flat in ancestors for reference, what in references_of_writes(flat).items()}
    for at in range(0, len(seeds), 4):
        what = f"what delta channel {seeds[at].decode()!r} starts from"
        wanted.update({piece: what for piece in seeds[at + 3] if is_reference(piece)})
    found = yield from fetch(scope, place, wanted)
    for reference, what in wanted.items():
        if reference not in found:
            raise gone(place, what, reference)
    for at in range(0, len(seeds), 4):
        seeds[at + 3][:] = [found.get(piece, piece) for piece in seeds[at + 3]]
    return [*(with_values(flat, found) for flat in ancestors), seeds]


def _fill(scope: Scope, reply: list[Any], history: dict[str, DeltaChannelHistory]) -> Iterator[None]:
    *ancestors, seeds = reply
    for flat in reversed(ancestors):
        for write in sorted_writes(scope.serde, flat):
            history[write[1]]["writes"].append(write)
        yield
    for at in range(0, len(seeds), 4):
        channel, kind, data, pieces = seeds[at : at + 4]
        history[channel.decode()]["seed"] = value_of(scope.serde, kind, data, pieces)
        yield
