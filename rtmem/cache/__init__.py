"""Answers of language models, kept for who asks the same again: exactly first, then by meaning.

    with SemanticCache.from_conn_string(url, principal="ann", embedder=embedder) as cache:
        scope = CacheScope(model="gpt-5-mini", parameters={"temperature": 0}, system="You are brief.")
        hit = cache.lookup("What is the capital of France?", scope)           # Hit or None
        cache.update("What is the capital of France?", "Paris.", scope, tags=["geography"], took_ms=800)
        cache.lookup("what's the capital of France", scope).answer            # "Paris."
        cache.get_or_compute("And of Italy?", scope, ask_model).answer        # once for all who ask now
        cache.invalidate(tag="geography")

`AsyncSemanticCache` has the same verbs, awaited.

    verb                                                     answers         round trips
    lookup(prompt, scope)                                    Hit or None     exact 1; else 1 more after the embedding
    update(prompt, answer, scope, *, tags, ttl_ms,           Written         1
           took_ms, allow)
    get_or_compute(prompt, scope, compute, *, tags,          Outcome         those of lookup; 2 to compute
                   ttl_ms, allow)
    invalidate(*, key, entry_id, tag, scope, model,          how many        1 per 1,000 entries
               older_than_ms, everything)
    report(hit_id, correct)                                  bool            1
    explain(prompt, scope)                                   Explanation     2
    stats()                                                  CacheStats      1
    entries(*, tag, scope, model, limit, continuation)       CachePage       1
    entry(entry_id)                                          CacheEntry      1

The first look-up by meaning makes the index: 1 round trip more. Who asks is bound in the object (`cache.bind("bob")`),
and until then all verbs raise ConfigError; a scope names the model and all that changes its answers, and a missing one
is an error. lookup, update and get_or_compute raise nothing of Redis or the embedder: a cache must not stand between a
question and its answer.
`cache.counts` says what happened.

Errors: InvalidRequestError (a call that is wrong), ConfigError, and for all other verbs those of Redis.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rtmem.operations.cache_answers import Unwanted, unwanted
from rtmem.operations.cache_prompts import CacheScope, Prompt
from rtmem.operations.cache_records import (
    CacheDraft,
    CacheEntry,
    CachePage,
    CachePolicy,
    CacheStats,
    Candidate,
    Explanation,
    Guard,
    Hit,
    Judge,
    Outcome,
    Written,
)

if TYPE_CHECKING:
    from rtmem.cache.aio import AsyncSemanticCache
    from rtmem.cache.sync import SemanticCache

__all__ = [
    "AsyncSemanticCache",
    "CacheDraft",
    "CacheEntry",
    "CachePage",
    "CachePolicy",
    "CacheScope",
    "CacheStats",
    "Candidate",
    "Explanation",
    "Guard",
    "Hit",
    "Judge",
    "Outcome",
    "Prompt",
    "SemanticCache",
    "Unwanted",
    "Written",
    "unwanted",
]

_HOME = {"AsyncSemanticCache": "rtmem.cache.aio", "SemanticCache": "rtmem.cache.sync"}


def __getattr__(name: str) -> Any:
    # The names that need what searches by meaning; rtmem.cache.nodes does without.
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
