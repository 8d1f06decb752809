"""RedisVL's SemanticCache on the same pairs: its real class on a real Redis, asked as its documentation asks it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from loadtest.cache_quality.sets import PairSet
from loadtest.vectorizers import redisvl_vectorizer
from rtmem.cli.cache.comparing import EMBEDDED_AS
from rtmem.steps import Embedder

DEFAULT_DISTANCE: Final = 0.1
"""Its own default, read from its class by a test."""


class RedisVL:
    """One cache with an index of its own. Every pair has a value of the filter field to itself, so that the second text
    can only meet the first: what else is stored says nothing about the pair."""

    def __init__(self, url: str, name: str, embedder: Embedder) -> None:
        from redisvl.extensions.cache.llm import SemanticCache

        self._cache = SemanticCache(
            name=name,
            redis_url=url,
            vectorizer=redisvl_vectorizer(embedder, EMBEDDED_AS),
            filterable_fields=[{"name": "pair", "type": "tag"}],
        )

    @property
    def default_distance(self) -> float:
        """What it was made with."""
        found: float = self._cache.distance_threshold
        return found

    def fill(self, pairs: PairSet, on_pair: Callable[[], object]) -> None:
        """Store the first text of each pair."""
        for number, pair in enumerate(pairs.pairs):
            self._cache.store(pair.first, "an answer", filters={"pair": str(number)})
            on_pair()

    def hits(self, pairs: PairSet, distance: float | None, on_pair: Callable[[], object]) -> list[bool]:
        """Whether the second text of each pair is answered; `distance` None: at the default."""
        from redisvl.query.filter import Tag

        found = []
        for number, pair in enumerate(pairs.pairs):
            options: dict[str, Any] = {} if distance is None else {"distance_threshold": distance}
            hits = self._cache.check(pair.second, filter_expression=Tag("pair") == str(number), **options)
            found.append(bool(hits))
            on_pair()
        return found

    def close(self) -> None:
        """Forget everything, and disconnect."""
        self._cache.delete()
        self._cache.disconnect()
