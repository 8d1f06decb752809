"""The commands that a perfect client would send: the measure for all caches on Redis.

They go to the same server and the same index, with everything made beforehand but the vector of the question: keys, the
query, its words, the bytes of an answer. Nobody checks a threshold, a guard or what came back.
"""

from __future__ import annotations

from typing import Any

from loadtest.cache.questions import Embedding, Question
from rtmem.cache import AsyncSemanticCache, CacheScope
from rtmem.cli.cache.comparing import EMBEDDED_AS
from rtmem.steps import Argument

_CANDIDATES: int = 4


class Raw:
    """Raw commands beside a cache whose entries they read."""

    def __init__(self, connection: Any, cache: AsyncSemanticCache, embedding: Embedding) -> None:
        self._redis = connection
        self._cache = cache
        self._embedding = embedding
        self._head: tuple[Argument, ...] = ()
        self._scope = ""
        self._template: list[Argument] = []
        self._written = 0

    async def learn(self, question: Question, scope: CacheScope) -> None:
        """Take an entry that the cache has written as a pattern, and its answer for GET."""
        index = self._cache.context.index
        assert index is not None, "the cache of a benchmark has an embedder"
        explained = await self._cache.explain(question.text, scope)
        self._scope = explained.scope
        query = f"@scope:{{$scope}}=>[KNN {_CANDIDATES} @{index.vector_field} $vector AS distance]"
        words = ("RETURN", 3, "prompt", "answer", "distance", "SORTBY", "distance", "LIMIT", 0, _CANDIDATES)
        self._head = ("FT.SEARCH", index.name, query, *words, "DIALECT", 2, "PARAMS", 4, "scope", self._scope, "vector")
        key = self._cache.context.keys.entry(explained.entry_id)
        stored = await self._redis.execute_command("HGETALL", key)
        assert stored, f"the cache has not written {key}"
        pairs = list(stored.items()) if isinstance(stored, dict) else list(zip(stored[::2], stored[1::2], strict=True))
        self._template = [
            part for name, value in pairs if name != index.vector_field.encode() for part in (name, value)
        ]
        self._template += [index.vector_field]
        await self._redis.execute_command("SET", "raw:answer", dict(pairs)[b"answer"])

    async def get(self, _given: object = None) -> object:
        """GET of an answer's bytes."""
        return await self._redis.execute_command("GET", "raw:answer")

    async def search(self, text: str) -> object:
        """The embedding, and one FT.SEARCH that brings questions and answers."""
        vector = (await self._embedding.aembed([text], EMBEDDED_AS))[0].tobytes()
        return await self._redis.execute_command(*self._head, vector)

    async def write(self, question: Question) -> object:
        """The embedding, and one HSET of the fields that the cache writes."""
        vector = (await self._embedding.aembed([question.text], EMBEDDED_AS))[0].tobytes()
        self._written += 1
        key = f"{self._cache.context.keys.entries}raw{self._written}"
        return await self._redis.execute_command("HSET", key, *self._template, vector)
