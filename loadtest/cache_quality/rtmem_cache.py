"""rtmem's own cache on the pairs, as an application asks it: `update` with the first text, `lookup` with the second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loadtest.cache_quality.sets import PairSet
from rtmem import settings
from rtmem.cache import CacheScope, SemanticCache
from rtmem.steps import Embedder

_PATIENCE_MS: Final = 120_000
"""What comes too late is a miss, which would say something of this machine and nothing of the pair."""


def hits(url: str, embedder: Embedder, pairs: PairSet, threshold: float, on_pair: Callable[[], object]) -> list[bool]:
    """Whether the second text of each pair is answered. Each pair has a scope of its own, so it meets no other."""
    kept = settings.Cache(
        thresholds={getattr(embedder, "setting", ""): threshold},
        lookup_deadline_ms=_PATIENCE_MS,
        update_deadline_ms=_PATIENCE_MS,
    )
    found = []
    with SemanticCache(url, embedder=embedder, principal=f"{pairs.part} {pairs.name}", settings=kept) as cache:
        for number, pair in enumerate(pairs.pairs):
            written = cache.update(pair.first, "an answer", _scope(number))
            assert written.stored, f"{pairs.name}, pair {number}: {written.reason}"
            on_pair()
        for number, pair in enumerate(pairs.pairs):
            found.append(cache.lookup(pair.second, _scope(number)) is not None)
            on_pair()
    return found


def _scope(number: int) -> CacheScope:
    return CacheScope(model=f"pair {number}", parameters={})
