"""What both colours share: whose facts they are, how they are kept, and what is counted."""

from __future__ import annotations

import copy
from typing import Any, Self

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem import settings as all_settings
from rtmem.counts import Counter, Tally, VerbCounts
from rtmem.errors import ConfigError, UnsupportedError
from rtmem.keys import Keys
from rtmem.operations import durability
from rtmem.operations.durability_proof import Promise
from rtmem.operations.fact_scope import FactScope, WritePolicy, accept_all, as_principal
from rtmem.operations.fact_search import RetrievedFacts
from rtmem.operations.serde import Serde
from rtmem.operations.vector_index import Index
from rtmem.records import Principal
from rtmem.steps import Embedder, R, Steps


class FactMemory:
    """Common part of the memories. It holds no connection: the driver does."""

    def __init__(
        self,
        *,
        principal: str | Principal,
        embedder: Embedder | None,
        policy: WritePolicy | None,
        serde: SerializerProtocol | None,
        settings: all_settings.Memory | None,
        store: all_settings.Store | None,
        retrieval: all_settings.Retrieval | None,
    ) -> None:
        if embedder is not None and not (hasattr(embedder, "fingerprint") and hasattr(embedder, "aembed")):
            raise ConfigError(
                f"embedder is a {type(embedder).__name__}, which tells nobody what makes its vectors different from "
                "others: use rtmem.embedding.from_settings(), or LangChainEmbedder around LangChain's Embeddings"
            )
        kept = store or all_settings.Store()
        keys = Keys(kept.prefix)
        self.scope = FactScope(
            principal=as_principal(principal),
            keys=keys,
            serde=Serde(serde or JsonPlusSerializer(), kept.compress_bytes_min),
            index=Index(keys, kept, embedder),
            settings=settings or all_settings.Memory(),
            retrieval=retrieval or all_settings.Retrieval(),
            policy=policy or accept_all,
        )
        self._counter = Counter()
        self._promise = Promise(kept.ack, kept.ack_replicas, kept.ack_timeout_ms, keys.barrier)

    @property
    def principal(self) -> Principal:
        """Whose eyes these are."""
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
        """What each verb did, by its name."""
        return self._counter.counts

    def bind(self, principal: str | Principal) -> Self:
        """The same connections with the eyes of another principal.

        Raises InvalidRequestError, IdTooLongError.
        """
        clone = copy.copy(self)
        clone.scope = self.scope.bound(principal)
        return clone

    def _durably(self, steps: Steps[R]) -> Steps[R]:
        return durability.durably(steps, self._promise)


def checked_url(redis_url: str | None) -> str:
    """The address of a Redis that can keep facts. Raises ConfigError, UnsupportedError."""
    if not redis_url:
        raise ConfigError("give redis_url or driver; `rtmem up --redis-only` runs an embedded Redis")
    if redis_url.startswith("redis+cluster:"):
        raise UnsupportedError(
            "facts cannot be kept in a Redis Cluster, for those of one chain lie in several slots: give a standalone "
            "Redis, or one behind Sentinel"
        )
    return redis_url


def note(result: Any, tally: Tally) -> None:
    """Count what a call gave."""
    if isinstance(result, RetrievedFacts):
        tally.abstained, tally.tokens = int(result.abstained), result.tokens
