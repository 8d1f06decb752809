"""What nodes of a graph returned, kept by LangGraph's (namespace, key): get, put, clear.

`lua/nodes_v1.lua` has the layout. Nobody's node may fail because its cache does: what Redis cannot give is not there,
and what it cannot take is not kept. Only `clear` raises, for who clears must know what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from langgraph.cache.base import FullKey, Namespace

from rtmem import settings as all_settings
from rtmem.errors import RtmemError
from rtmem.keys import Keys, NodeKeys
from rtmem.operations.cache_state import CacheState
from rtmem.operations.functions import call
from rtmem.operations.serde import Serde
from rtmem.steps import Argument, Batch, Steps

_AT_ONCE: Final = 1_000  # values that one call of the function frees
_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The cache of nodes with the eyes of one principal."""

    principal: str
    all_keys: Keys
    serde: Serde
    settings: all_settings.Cache
    state: CacheState
    keys: NodeKeys = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self.all_keys.nodes(self.principal))

    def bound(self, principal: str) -> NodeContext:
        """The same cache with the eyes of another principal. Raises IdTooLongError."""
        return replace(self, principal=principal)


def get(cache: NodeContext, keys: Sequence[FullKey]) -> Steps[dict[FullKey, Any]]:
    """What is kept for these keys; nothing where Redis does not answer within `lookup_deadline_ms`.

    Redis: 1 round trip, MGET; none without keys, or while Redis is left alone.
    """
    if not keys or cache.state.redis_pause.is_on:
        return {}
    names = [cache.keys.values + cache.keys.value_id(namespace, key) for namespace, key in keys]
    try:
        (rows,) = yield Batch((("MGET", *names),), timeout_ms=cache.settings.lookup_deadline_ms)
    except RtmemError as exc:
        cache.state.note(exc)
        return {}
    found = {}
    for key, stored in zip(keys, rows, strict=True):
        if stored is None:
            cache.state.counts.add("miss")
            continue
        try:
            found[key] = cache.serde.loads(stored)
        except Exception as exc:  # noqa: BLE001 - a type that this program has no more, a serialiser that was changed
            cache.state.counts.add("unreadable")
            _logger.warning("what node %r returned cannot be read and is computed again: %s", key[0], exc)
        else:
            cache.state.counts.add("exact")
    return found


def put(cache: NodeContext, pairs: Mapping[FullKey, tuple[Any, int | None]]) -> Steps[None]:
    """Keep values, each for so many seconds, or for ever. One that cannot be written down is left out.

    Redis: 1 round trip, FCALL rtmem_v1_nodes_put; none without pairs, or while Redis is left alone.
    """
    if cache.state.redis_pause.is_on:
        return
    args: list[Argument] = []
    for (namespace, key), (value, ttl_s) in pairs.items():
        try:
            data = cache.serde.dumps(value)
        except Exception as exc:  # noqa: BLE001 - what serialisers raise is not agreed upon
            cache.state.counts.add("unstored_unserialisable")
            _logger.warning("what node %r returned cannot be written down and is not kept: %s", namespace, exc)
            continue
        ttl_ms: Argument = "" if ttl_s is None else round(ttl_s * 1_000)
        args += (cache.keys.value_id(namespace, key), ttl_ms, data)
    if not args:
        return
    try:
        yield from call("rtmem_v1_nodes_put", cache.keys.all, args, timeout_ms=cache.settings.update_deadline_ms)
    except RtmemError as exc:
        cache.state.note(exc)
    else:
        cache.state.counts.add("stored")


def clear(cache: NodeContext, namespaces: Sequence[Namespace] | None) -> Steps[int]:
    """Drop all values of these namespaces, or of all. A namespace that begins so is another one.

    Returns:
        How many are gone; those that had ended before may be counted too.

    Raises errors of Redis: some may be left then.

    Redis: 1 round trip for each 1,000 values, FCALL rtmem_v1_nodes_clear.
    """
    if namespaces is not None and not namespaces:
        return 0
    hashed = [] if namespaces is None else [cache.keys.namespace_id(namespace) for namespace in namespaces]
    gone = 0
    while True:
        freed: int = yield from call(
            "rtmem_v1_nodes_clear", cache.keys.all, [_AT_ONCE, *hashed], timeout_ms=cache.settings.update_deadline_ms
        )
        gone += freed
        if freed < _AT_ONCE:
            return gone
