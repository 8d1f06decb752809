"""One test body for both colours of the cache: awaiting ones are driven from outside their loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rtmem import settings as all_settings
from rtmem.cache import AsyncSemanticCache, CacheScope, SemanticCache
from tests.callers import Caller
from tests.checkpoint.colours import Loop
from tests.embedders import Words

SCOPE = CacheScope(model="gpt-test", parameters={"temperature": 0})
FRANCE = "What is the capital of France?"
LIKE_FRANCE = "What is the capital city of France?"
PATIENT = {"lookup_deadline_ms": 60_000, "update_deadline_ms": 60_000}
"""Nothing in a test may depend on how fast a machine is; tests of deadlines say so."""


def settings(**changes: Any) -> all_settings.Cache:
    """Of a cache whose embedder is `Words`."""
    return all_settings.Cache(**{"thresholds": {"words": 0.3}, **PATIENT, **changes})


@dataclass(slots=True)
class World:
    """Makes caches of one colour at one server."""

    url: str
    client: Any  # redis.Redis, raw: bytes
    loop: Loop
    awaiting: bool
    protocol: int

    @contextmanager
    def open(
        self, *, url: str | None = None, embedder: Any = None, guard: Any = False, retries_max: int = 2, **options: Any
    ) -> Iterator[Any]:
        """A cache; with keywords that are settings of it."""
        known = {name: options.pop(name) for name in list(options) if name in all_settings.Cache.__struct_fields__}
        redis = all_settings.Redis(protocol=2 if self.protocol == 2 else 3, retries_max=retries_max, deadline_ms=60_000)
        options = {"principal": "ann", "settings": settings(**known), **options}
        embedder = Words() if embedder is None else embedder or None
        if self.awaiting:
            awaiting = AsyncSemanticCache(url or self.url, embedder=embedder, guard=guard, redis=redis, **options)
            try:
                yield Caller(awaiting, self.loop)
            finally:
                self.loop.wait(awaiting.aclose())
        else:
            with SemanticCache(url or self.url, embedder=embedder, guard=guard, redis=redis, **options) as blocking:
                yield Caller(blocking, self.loop)
