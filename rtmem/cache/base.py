"""What both colours share: whose answers they are, how they are kept, who compares questions."""

from __future__ import annotations

import copy
import logging
from dataclasses import replace
from typing import Any, Final, Self

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem import settings as all_settings
from rtmem.embedding.extras import imported
from rtmem.errors import ConfigError, UnsupportedError
from rtmem.keys import Keys, check_id
from rtmem.operations import lexical_guard

imported("redisvl.schema", "memory")  # says which extra is missing, where it is

from rtmem.operations.cache_index import CacheIndex  # noqa: E402
from rtmem.operations.cache_records import CachePolicy, Guard, Judge  # noqa: E402
from rtmem.operations.cache_state import CacheContext, CacheState, Waiting, accept_all  # noqa: E402
from rtmem.operations.serde import Serde  # noqa: E402
from rtmem.steps import Embedder  # noqa: E402

_logger: Final = logging.getLogger(__name__)


class AnswerCache:
    """Common part of the caches. It holds no connection: the driver does."""

    def __init__(
        self,
        *,
        embedder: Embedder | None,
        principal: str,
        guard: Guard | bool,
        judge: Judge | None,
        policy: CachePolicy | None,
        serde: SerializerProtocol | None,
        settings: all_settings.Cache | None,
        wait: Waiting,
    ) -> None:
        if embedder is not None and not (hasattr(embedder, "fingerprint") and hasattr(embedder, "aembed")):
            raise ConfigError(
                f"embedder is a {type(embedder).__name__}, which tells nobody what makes its vectors different from "
                "others: use rtmem.embedding.from_settings(), or LangChainEmbedder around LangChain's Embeddings"
            )
        kept = settings or all_settings.Cache()
        keys = Keys(kept.prefix)
        self.context = CacheContext(
            principal=check_id(principal, "principal"),
            all_keys=keys,
            serde=Serde(serde or JsonPlusSerializer(), kept.compress_bytes_min),
            settings=kept,
            index=None if embedder is None else CacheIndex(keys, kept, embedder),
            guard=_guard_of(guard),
            judge=judge,
            policy=policy or accept_all,
            state=CacheState(kept),
            wait=wait,
        )
        if embedder is not None and self.context.threshold is None:
            assert self.context.index is not None, "with an embedder there is an index"
            _logger.warning(
                "the cache gives exact hits only: [cache] thresholds has no distance for embedder %r; "
                "`rtmem cache calibrate pairs.csv` finds one",
                self.context.index.embedder_name,
            )
        elif embedder is not None and self.context.guard is lexical_guard.compare:
            lexical_guard.prepare()  # the first question would hold the event loop for it

    @property
    def principal(self) -> str:
        """Whose answers these are."""
        return self.context.principal

    @property
    def embedder(self) -> Embedder | None:
        """Who turns questions into vectors."""
        return None if self.context.index is None else self.context.index.embedder

    @property
    def settings(self) -> all_settings.Cache:
        """Section [cache]."""
        return self.context.settings

    @property
    def counts(self) -> dict[str, int]:
        """How often what happened in this process, all that are bound to other principals included.

        exact, semantic, miss: how look-ups ended. paused, unavailable, loading, deadline, full, failed: why Redis did
        not answer one. too_late, embedding_failed, no_engine: why questions were not compared. refused_<reason>,
        refused_judge, guard_failed, judge_failed: why a near question's answer was not taken. stored,
        unstored_<reason>, computed: what became of answers. unembedded, mended: stored without a vector, and embedded
        by a later update.
        """
        return self.context.state.counts.read()

    def bind(self, principal: str) -> Self:
        """This cache for another principal: same connections, other answers. Raises IdTooLongError."""
        clone = copy.copy(self)
        clone.context = self.context.bound(principal)
        clone._owns_driver = False
        return clone

    def with_policy(self, policy: CachePolicy) -> Self:
        """This cache, whose entries `policy` looks at before they are stored: same connections, same answers."""
        clone = copy.copy(self)
        clone.context = replace(self.context, policy=policy)
        clone._owns_driver = False
        return clone

    _owns_driver: bool

    def __getattr__(self, name: str) -> Any:
        # What LangGraph and LangChain ask of a cache of theirs, and would be refused without a word about why.
        other = _DOORS.get(name)
        hint = "" if other is None else f": give {other}, which is the cache for this door"
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")


_NODES: Final = "rtmem.cache.nodes.NodeCache(url) to builder.compile(cache=...)"
_MODELS: Final = "rtmem.cache.langchain.LangChainCache(cache) to set_llm_cache(...) or a model's cache=..."
_DOORS: Final = {
    **dict.fromkeys(("get", "aget", "set", "aset"), _NODES),
    **dict.fromkeys(("alookup", "aupdate"), _MODELS),
}


def _guard_of(guard: Guard | bool) -> Guard | None:
    if callable(guard):
        return guard
    if guard is True:
        return lexical_guard.compare
    if guard is False:
        return None
    raise ConfigError(f"guard is {guard!r:.100}: True, False, or a function of two questions")


def checked_url(redis_url: str | None) -> str:
    """The address of a Redis that can keep answers. Raises ConfigError, UnsupportedError."""
    if not redis_url:
        raise ConfigError("give redis_url or driver; `rtmem up --redis-only` runs an embedded Redis")
    if redis_url.startswith("redis+cluster:"):
        raise UnsupportedError(
            "answers cannot be kept in a Redis Cluster, whose query engine sees one node only: give a standalone "
            "Redis, or one behind Sentinel"
        )
    return redis_url
