"""The commands that a perfect client would send: the measure for all stores on Redis.

They go to the same index and write the same fields as rtmem's store. One round trip of redis-py each, with everything
made beforehand: keys, fields, bytes, the words of the query. A search names the items that it will find, and fetches
their values in the same pipeline, which no client can know: nobody can be faster with these commands. `raw+serde`
encodes and decodes the values, too. Neither checks anything, is atomic, or replaces what an item had before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis.asyncio

from loadtest.memory.notes import Note, Question
from rtmem.keys import scope_tags
from rtmem.operations import memory_queries, text_query
from rtmem.operations.memory_filters import narrow
from rtmem.operations.memory_items import SEPARATOR, encode_key, write_namespace
from rtmem.operations.memory_scope import MemoryScope
from rtmem.steps import Argument

CONNECTIONS_MAX = 32
LIMIT = 10
Words = tuple[Argument, ...]


class Asked(NamedTuple):
    """A search, ready to be sent."""

    queries: list[Words]
    ids: list[bytes]


def client(url: str) -> Any:
    """redis-py, whose callers wait for a free connection. RESP2: its replies to a search are cheaper to read."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS_MAX, timeout=30, protocol=2)
    return redis.asyncio.Redis(connection_pool=pool)


class Raw:
    """Raw commands beside a store of rtmem whose items they look like."""

    def __init__(self, connection: Any, scope: MemoryScope) -> None:
        self._redis = connection
        self._scope = scope
        self._template: list[tuple[bytes, bytes]] = []

    async def learn(self, note: Note) -> None:
        """Take the fields of an item that the store wrote as a pattern for others."""
        stored = await self._redis.execute_command("HGETALL", self._key(note))
        assert stored, f"the store has not written {note.key}"
        pairs = stored.items() if isinstance(stored, dict) else zip(stored[::2], stored[1::2], strict=True)
        own = {b"ns", b"k", b"v", b"scope", self._scope.index.vector_field.encode()}
        self._template = [(name, value) for name, value in pairs if name not in own]

    def _key(self, note: Note) -> str:
        return self._scope.keys.memory(self._scope.principal, note.namespace, note.key)

    # Writing

    def encoded(self, note: Note) -> bytes:
        """A value as bytes."""
        return self._scope.serde.dumps(note.value)

    def put_words(self, note: Note, vector: bytes, value: bytes) -> Words:
        """HSET of all fields that the store writes, with a value and a vector of its own."""
        fields: list[Argument] = [part for pair in self._template for part in pair]
        fields += ["scope", SEPARATOR.join(scope_tags(self._scope.principal, note.namespace))]
        fields += ["ns", write_namespace(self._scope.principal, note.namespace), "k", encode_key(note.key)]
        return ("HSET", self._key(note), *fields, "v", value, self._scope.index.vector_field, vector)

    async def send(self, words: Words) -> Any:
        """One command."""
        return await self._redis.execute_command(*words)

    async def send_all(self, commands: Sequence[Words]) -> list[Any]:
        """Several in one pipeline."""
        pipe = self._redis.pipeline(transaction=False)
        for words in commands:
            pipe.execute_command(*words)
        replies: list[Any] = await pipe.execute()
        return replies

    # Reading

    def get_words(self, note: Note) -> Words:
        return ("HMGET", self._key(note), "v", "created", "u")

    async def get_with_serde(self, words: Words) -> Any:
        return self._scope.serde.loads((await self.send(words))[0])

    async def prepare(self, question: Question, vector: bytes, *, hybrid: bool = False) -> Asked:
        """A search whose answer is known."""
        return await self._asked(self.queries(question, vector, hybrid=hybrid))

    def queries(self, question: Question, vector: bytes, *, hybrid: bool = False) -> list[Words]:
        """The queries that the store would run."""
        index, settings = self._scope.index, self._scope.retrieval
        narrowed = narrow(question.filter, ())
        assert narrowed.whole, "the server does not decide this filter"
        scope = memory_queries.scope_clause(self._scope.principal, (question.tenant,))
        clauses = f"{scope} {narrowed.query}".rstrip()
        most = settings.window if hybrid else LIMIT
        queries: list[Words] = [("FT.SEARCH", *memory_queries.nearest(index, clauses, vector, most).words)]
        words = text_query.query(question.text, clauses, words_max=settings.words_max) if hybrid else None
        if words is not None:
            params = [part for pair in words.params for part in pair]
            head = ("FT.SEARCH", index.alias, words.query, "NOCONTENT", "WITHSCORES", "SCORER", "BM25STD", "VERBATIM")
            queries.append((*head, "LIMIT", 0, most, "DIALECT", 2, "PARAMS", len(params), *params))
        return queries

    async def _asked(self, queries: list[Words]) -> Asked:
        found = (await self.send(queries[0]))[1::2]
        return Asked(queries, [key for key in found if isinstance(key, bytes)][:LIMIT])

    async def search(self, asked: Asked) -> list[Any]:
        """The queries and the values of what they will find, in one pipeline."""
        fetched = [("HMGET", key, "v", "created", "u", "ns", "k") for key in asked.ids]
        return (await self.send_all([*asked.queries, *fetched]))[len(asked.queries) :]

    async def search_with_serde(self, asked: Asked) -> list[Any]:
        return [self._scope.serde.loads(row[0]) for row in await self.search(asked)]

    def list_words(self, tenant: str) -> Words:
        """All namespaces of a tenant."""
        clause = memory_queries.scope_clause(self._scope.principal, (tenant,))
        group = ("LOAD", 1, "@ns", "GROUPBY", 1, "@ns", "DIALECT", 2)
        return ("FT.AGGREGATE", self._scope.index.alias, clause, *group)
