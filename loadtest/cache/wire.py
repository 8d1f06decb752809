"""Round trips of each verb, counted on the wire: these are the same in every run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from loadtest.cache.contenders import OURS, SCOPE, cache_settings
from loadtest.cache.questions import Embedding, Question, Questions
from loadtest.memory.verbs import Bench
from loadtest.tap import Tap, tapped
from rtmem.cache import AsyncSemanticCache
from rtmem.loadtest import Experiment, Measured
from rtmem.steps import TextKind

NAME: Final = "on the wire"
COUNTED, AFTER = "round trips", "after the embedding"
TARGETS: Final = {
    "exact hit, known": (1, 0),
    "exact hit, new to the process": (1, 0),
    "hit by meaning": (2, 1),
    "miss": (2, 1),
    "update": (1, 1),
    "get_or_compute, hit": (1, 0),
}
"""Verb -> at most so many, and so many of them after the embedding."""

_REPLY_S: Final = 0.05


class Watched:
    """An embedder that takes its time, so that what was sent before is answered, and notes how much that was."""

    def __init__(self, embedding: Embedding, tap: Tap) -> None:
        self._embedding, self._tap = embedding, tap
        self.name, self.setting = embedding.name, embedding.setting
        self.fingerprint, self.dims = embedding.fingerprint, embedding.dims
        self.before: int | None = None

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        return self._embedding.embed(texts, what)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        vectors = self._embedding.embed(texts, what)
        await asyncio.sleep(_REPLY_S)
        self.before = self._tap.round_trips
        return vectors


async def round_trips(bench: Bench, url: str, embedding: Embedding, asked: Questions) -> Experiment:
    """Each verb once, on a cache that has been used before."""
    bench.bar.describe(NAME)
    bench.bar.announce(len(TARGETS))
    rows = []
    async with tapped(url) as tap:
        embedder = Watched(embedding, tap)
        options: dict[str, Any] = {"embedder": embedder, "principal": "wire", "settings": cache_settings("wire")}
        async with AsyncSemanticCache(tap.url, **options) as cache, AsyncSemanticCache(tap.url, **options) as other:
            for question in asked.stored[:2]:
                await cache.update(question.text, question.answer, SCOPE)
            for each in (cache, other):  # both know the index and the functions
                await each.lookup(asked.strange[0], SCOPE)
            for name, verb in _verbs(cache, other, asked).items():
                tap.reset()
                embedder.before = None
                await verb()
                counted = tap.round_trips
                after = 0 if embedder.before is None else counted - embedder.before
                most, most_after = TARGETS[name]
                facts = {COUNTED: counted, "at most": most, AFTER: after, f"{AFTER}, at most": most_after}
                rows.append(
                    Measured(contender=f"{OURS} {name}", facts={key: float(fact) for key, fact in facts.items()})
                )
                bench.bar.step()
    return Experiment(name=NAME, baseline="", concurrency=1, rounds=1, operations=1, rows=rows)


def _verbs(
    cache: AsyncSemanticCache, other: AsyncSemanticCache, asked: Questions
) -> dict[str, Callable[[], Awaitable[object]]]:
    stored, new = asked.stored[0].text, Question(asked.strange[2], "an answer")
    return {
        "exact hit, known": lambda: cache.lookup(stored, SCOPE),
        "exact hit, new to the process": lambda: other.lookup(stored, SCOPE),
        "hit by meaning": lambda: cache.lookup(asked.asked[0], SCOPE),
        "miss": lambda: cache.lookup(asked.strange[1], SCOPE),
        "update": lambda: cache.update(new.text, new.answer, SCOPE),
        "get_or_compute, hit": lambda: cache.get_or_compute(stored, SCOPE, _never),
    }


def _never() -> str:
    raise AssertionError("the answer is stored")
