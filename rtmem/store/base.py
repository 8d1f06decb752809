"""What both colours of the store share: construction in the manner of LangGraph's stores, tenants, ttls."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import msgspec
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import BaseStore, GetOp, IndexConfig, Op, PutOp, Result, SearchOp, TTLConfig

from rtmem import settings as all_settings
from rtmem.counts import Counter, Tally, VerbCounts
from rtmem.errors import ConfigError
from rtmem.keys import Keys, check_id
from rtmem.operations import durability, memories
from rtmem.operations.durability_proof import Promise
from rtmem.operations.memory_items import WHOLE
from rtmem.operations.memory_scope import MemoryScope
from rtmem.operations.serde import Serde
from rtmem.operations.vector_index import Index
from rtmem.settings import Ack
from rtmem.steps import Embedder, Steps
from rtmem.store.embedders import embedder_of


class Store(BaseStore):
    """Common part of the stores. It holds no connection: the driver does."""

    supports_ttl = True

    def __init__(
        self,
        *,
        index: IndexConfig | Embedder | None,
        ttl: TTLConfig | None,
        principal: str,
        serde: SerializerProtocol | None,
        settings: all_settings.Store | None,
        ranking: Literal["vector", "hybrid"] | None,
        retrieval: all_settings.Retrieval | None,
        ack: Ack | None,
        replicas: int | None,
    ) -> None:
        self.settings = store_settings(settings, ttl, ack, replicas, ranking)
        embedder, fields = read_index(index)
        # LangGraph's own stores have these two, and programs look at them.
        self.index_config: IndexConfig | None = _index_config(index, embedder, fields)
        self.embeddings: Any = None if self.index_config is None else self.index_config["embed"]
        keys = Keys(self.settings.prefix)
        self.scope = MemoryScope(
            principal=check_id(principal, "principal"),
            settings=self.settings,
            keys=keys,
            serde=Serde(serde or JsonPlusSerializer(), self.settings.compress_bytes_min),
            index=Index(keys, self.settings, embedder),
            retrieval=retrieval or all_settings.Retrieval(),
            fields=fields,
        )
        self.ttl_config: TTLConfig | None = {
            "refresh_on_read": self.settings.refresh_on_read,
            "default_ttl": self.settings.ttl_ms / 60_000 if self.settings.ttl_ms else None,
        }
        self._promise = Promise(
            self.settings.ack, self.settings.ack_replicas, self.settings.ack_timeout_ms, keys.barrier
        )
        self._counter = Counter()

    @property
    def principal(self) -> str:
        """Whose memory this is."""
        return self.scope.principal

    @property
    def embedder(self) -> Embedder | None:
        """Who turns texts into vectors."""
        return self.scope.embedder

    @property
    def index_ready(self) -> bool:
        """Whether the last search saw all there is; False before the first one."""
        return self.scope.index.state.is_ready

    @property
    def counts(self) -> dict[str, VerbCounts]:
        """What each verb did: `get`, `put`, `delete`, `search`, `list_namespaces`, or `batch` of several."""
        return self._counter.counts

    def bind(self, principal: str) -> Self:
        """This store for another principal: same connections, other items. Raises IdTooLongError."""
        clone = copy.copy(self)
        clone.scope = self.scope.bound(principal)
        return clone

    def _counted(self, asked: Sequence[Op]) -> Tally:
        return self._counter.call(_verb_of(asked[0]) if len(asked) == 1 else "batch")

    def _batch(self, asked: Sequence[Op]) -> Steps[list[Result]]:
        steps = memories.batch(self.scope, asked)
        if self._promise.ack == "memory":
            return steps
        if any(isinstance(op, PutOp) for op in asked):
            return durability.durably(steps, self._promise)
        return steps


def _verb_of(op: Op) -> str:
    if isinstance(op, PutOp):
        return "put" if op.value is not None else "delete"
    return "get" if isinstance(op, GetOp) else "search" if isinstance(op, SearchOp) else "list_namespaces"


def read_index(index: IndexConfig | Embedder | None) -> tuple[Embedder | None, tuple[str, ...]]:
    """The embedder, and what of a value it gets. Raises ConfigError."""
    if index is None:
        return None, (WHOLE,)
    if not isinstance(index, Mapping):
        return embedder_of(index, None), (WHOLE,)
    unknown = set(index) - {"dims", "embed", "fields"}
    if unknown or "embed" not in index:
        raise ConfigError(f"index has the keys {sorted(index)}: use embed, dims and fields")
    fields: Any = index.get("fields")
    if fields is not None and not (
        isinstance(fields, Sequence)
        and not isinstance(fields, str)
        and all(isinstance(path, str) and path for path in fields)
    ):
        raise ConfigError(f"index['fields'] is {fields!r}: a list of paths such as 'text' or 'chapters[*].title'")
    return embedder_of(index["embed"], index.get("dims")), tuple(fields or (WHOLE,))


def _index_config(index: Any, embedder: Embedder | None, fields: tuple[str, ...]) -> IndexConfig | None:
    if embedder is None:
        return None
    embed = index["embed"] if isinstance(index, Mapping) else index
    return {"dims": embedder.dims, "embed": embed, "fields": list(fields)}


def store_settings(
    settings: all_settings.Store | None,
    ttl: Mapping[str, Any] | None,
    ack: Ack | None,
    replicas: int | None,
    ranking: str | None,
) -> all_settings.Store:
    """`settings` with the constructor conventions of LangGraph's stores on top.

    Args:
        ttl: {"default_ttl": minutes, "refresh_on_read": bool}. `sweep_interval_minutes` and `omit_expired` are taken
            and have no effect: Redis ends items by itself, and nobody sees one that is over.
        ack: what every write waits for; default "memory".
        replicas: how many replicas ack "replica" asks for; default 1.
    """
    settings = settings or all_settings.Store()
    changes: dict[str, Any] = {}
    if ttl is not None and not isinstance(ttl, Mapping):
        raise ConfigError(f'ttl is {ttl!r}: write ttl={{"default_ttl": minutes}}')
    if ttl:
        unknown = set(ttl) - set(TTLConfig.__annotations__)
        if unknown:
            raise ConfigError(f"ttl has unknown keys {sorted(unknown)}: use default_ttl (minutes) and refresh_on_read")
        minutes = ttl.get("default_ttl")
        if minutes is not None and not (isinstance(minutes, int | float) and minutes > 0):
            raise ConfigError(f"ttl['default_ttl'] is {minutes!r}: minutes above 0, or None for items that stay")
        changes["ttl_ms"] = max(1, round(minutes * 60_000)) if minutes else 0
        changes["refresh_on_read"] = bool(ttl.get("refresh_on_read", True))
    if ranking not in (None, "vector", "hybrid"):
        raise ConfigError(f"ranking is {ranking!r}: vector or hybrid")
    if ranking is not None:
        changes["ranking"] = ranking
    if ack is not None:
        changes["ack"] = ack
    if replicas is not None:
        changes["ack_replicas"] = replicas
    return msgspec.structs.replace(settings, **changes)
