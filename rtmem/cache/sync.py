"""The cache of answers, blocking: one line per verb, the algorithms are in `rtmem.operations`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

from langgraph.checkpoint.serde.base import SerializerProtocol

from rtmem import settings as all_settings
from rtmem.cache.base import AnswerCache, checked_url
from rtmem.drivers import SyncDriver
from rtmem.operations import cache_flights, cache_upkeep, cache_writing, semantic_cache
from rtmem.operations.cache_answers import Unwanted
from rtmem.operations.cache_prompts import CacheScope, Prompt
from rtmem.operations.cache_records import (
    CacheEntry,
    CachePage,
    CachePolicy,
    CacheStats,
    Explanation,
    Guard,
    Hit,
    Judge,
    Outcome,
    Written,
)
from rtmem.steps import Embedder, R, Steps


class SemanticCache(AnswerCache):
    """Answers for one principal. Blocking; see `rtmem.cache` for all verbs.

    Safe to share between threads.

    Args:
        redis_url: redis://, rediss://, unix:// or redis+sentinel://; by meaning only with the query engine; no Cluster.
        driver: a SyncDriver to share, instead of a URL.
        embedder: who turns questions into vectors; without one, only the very same question hits.
        principal: whose answers; nothing in a message can change it. Without one, bind it: all verbs refuse until then.
        guard: compares a question with one that was answered, and refuses what differs in a number, a name, a
            negation...; True: rtmem's own (English and Russian), False: none.
        judge: asked last, with (question, cached question, answer), whether the answer serves.
        policy: looks at each entry before it is stored, and may change or refuse it (WriteRefusedError).
        serde: how answers are written; LangGraph's JsonPlusSerializer.
        settings: section [cache].
        redis: deadlines and connections, with a URL.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        driver: SyncDriver | None = None,
        embedder: Embedder | None = None,
        principal: str = "",
        guard: Guard | bool = True,
        judge: Judge | None = None,
        policy: CachePolicy | None = None,
        serde: SerializerProtocol | None = None,
        settings: all_settings.Cache | None = None,
        redis: all_settings.Redis | None = None,
    ) -> None:
        super().__init__(
            embedder=embedder,
            principal=principal,
            guard=guard,
            judge=judge,
            policy=policy,
            serde=serde,
            settings=settings,
            wait=_wait,
        )
        self._owns_driver = driver is None
        self._driver = driver or SyncDriver.lazy(checked_url(redis_url), redis)

    @classmethod
    @contextmanager
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Iterator[Self]:
        """A cache for the length of a with block; options as for the class."""
        cache = cls(redis_url, **options)
        try:
            yield cache
        finally:
            cache.close()

    @property
    def driver(self) -> SyncDriver:
        """The connections, to share."""
        return self._driver

    def close(self) -> None:
        """Tell Redis of hits it does not know of, and close the connections, unless the driver was given."""
        self.run(semantic_cache.tell_all_usage(self.context))
        if self._owns_driver:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, steps: Steps[R]) -> R:
        """Run steps of your own over the same connections: `cache.run(operation(cache.context, ...))`."""
        return self._driver.run(steps, self.embedder)

    def lookup(self, prompt: Prompt, scope: CacheScope) -> Hit | None:
        """The answer to this question, or to one that asks the same; None if there is none.

        None also where Redis or the embedder fail or need more than [cache] lookup_deadline_ms; `counts` says why.

        Args:
            prompt: a text or a list of messages.
            scope: model, parameters and whatever else changes an answer.

        Raises InvalidRequestError: no scope, or no prompt. ConfigError: the cache is bound to nobody.

        Redis: exact hit 1 round trip; else 1 more after the embedding.
        """
        return self.run(semantic_cache.lookup(self.context, prompt, scope))

    def explain(self, prompt: Prompt, scope: CacheScope) -> Explanation:
        """What is stored near a question, and why it is a hit or none. Counts as no use.

        Raises InvalidRequestError, ConfigError, EmbeddingError and errors of Redis.

        Redis: 2 round trips.
        """
        return self.run(semantic_cache.explain(self.context, prompt, scope))

    def update(
        self,
        prompt: Prompt,
        answer: Any,
        scope: CacheScope,
        *,
        tags: Collection[str] = (),
        ttl_ms: int | None = None,
        took_ms: int = 0,
        allow: Collection[Unwanted] = (),
    ) -> Written:
        """Store an answer, in place of the one that is stored for this very question.

        `Written` says whether it is stored, and why not: nothing of Redis or the embedder is raised. Errors, refusals,
        truncated and empty answers and calls of tools are not stored.

        Args:
            prompt, scope: as `lookup` is asked.
            tags: what `invalidate` will find it by.
            ttl_ms: how long it lives; None: as [cache] ttl_ms says; 0: it stays.
            took_ms: how long the answer took to compute: what a hit saves, and what an entry is worth.
            allow: what is to be stored all the same: error, refusal, truncated, tool_calls, empty.

        Raises InvalidRequestError: no scope, no prompt, tags or a ttl that are none. ConfigError: bound to nobody.

        Redis: 1 round trip.
        """
        return self.run(
            cache_writing.update(
                self.context, prompt, answer, scope, tags=tags, ttl_ms=ttl_ms, took_ms=took_ms, allow=allow
            )
        )

    def get_or_compute(
        self,
        prompt: Prompt,
        scope: CacheScope,
        compute: Callable[[], Any],
        *,
        tags: Collection[str] = (),
        ttl_ms: int | None = None,
        allow: Collection[Unwanted] = (),
    ) -> Outcome:
        """The answer to a question: out of the cache, or computed once for all who ask at the same time, and stored.

        Args:
            prompt, scope: as for `lookup`.
            compute: gives the answer. What it raises passes to its caller as it is, and one of those who wait tries in
                its turn.
            tags, ttl_ms, allow: as for `update`.

        Raises InvalidRequestError, ConfigError, and what `compute` raises. Nothing of Redis or the embedder.

        Redis: the round trips of `lookup`; 2 more to compute.
        """
        return self.run(
            cache_flights.get_or_compute(self.context, prompt, scope, compute, tags=tags, ttl_ms=ttl_ms, allow=allow)
        )

    def invalidate(
        self,
        *,
        key: tuple[Prompt, CacheScope] | None = None,
        entry_id: str | None = None,
        tag: str | None = None,
        scope: CacheScope | None = None,
        model: str | None = None,
        older_than_ms: int | None = None,
        everything: bool = False,
    ) -> int:
        """Drop answers, and say how many: one, those of a tag, a scope or a model, or all. Give exactly one of these.

        Nothing of them is served once this returns, and what was being computed when it began is not stored.

        Args:
            key: a prompt and its scope, as the answer was stored.
            entry_id: of a Hit, an entry or `Written`.
            tag: as `update` was given it.
            scope: as it was given; answers of all conversations in it.
            model: of all scopes with it.
            older_than_ms: only what was stored so long ago; alone, of all answers.
            everything: all answers of this principal.

        Raises InvalidRequestError, ConfigError, and errors of Redis: some may be left then.

        Redis: 1 round trip for each 1,000 entries.
        """
        return self.run(
            cache_upkeep.invalidate(
                self.context,
                key=key,
                entry_id=entry_id,
                tag=tag,
                scope=scope,
                model=model,
                older_than_ms=older_than_ms,
                everything=everything,
            )
        )

    def report(self, hit_id: str, correct: bool) -> bool:
        """Say whether a hit was right; False if its entry is not there any more, or holds another answer.

        After a wrong hit by meaning questions must be nearer to that entry; after a wrong exact one it is dropped.

        Args:
            hit_id: of a Hit.

        Raises InvalidRequestError, ConfigError, and errors of Redis.

        Redis: 1 round trip.
        """
        return self.run(cache_writing.report(self.context, hit_id, correct))

    def stats(self) -> CacheStats:
        """What this principal has in the cache, and what it was good for. Raises ConfigError and errors of Redis.

        Redis: 1 round trip, and 1 if there are hits that Redis was not told of.
        """
        return self.run(cache_upkeep.stats(self.context))

    def entries(
        self,
        *,
        tag: str | None = None,
        scope: CacheScope | None = None,
        model: str | None = None,
        limit: int = 20,
        continuation: str = "",
    ) -> CachePage:
        """A page of entries without their answers: newest first; in no order below a tag, scope or model.

        Args:
            tag, scope, model: only with it; at most one of them.
            limit: entries on a page, 1 to 1,000.
            continuation: of the page before; empty for the first one.

        Raises InvalidRequestError, ConfigError, and errors of Redis.

        Redis: 1 round trip.
        """
        return self.run(
            cache_upkeep.entries(
                self.context, tag=tag, scope=scope, model=model, limit=limit, continuation=continuation
            )
        )

    def entry(self, entry_id: str) -> CacheEntry | None:
        """One entry with its answer, or None. Raises InvalidRequestError, ConfigError, and errors of Redis.

        Redis: 1 round trip.
        """
        return self.run(cache_upkeep.entry(self.context, entry_id))


def _wait(flight: Future[Any], seconds: float) -> bool:
    try:
        flight.result(seconds)
    except TimeoutError:
        return False
    return True
