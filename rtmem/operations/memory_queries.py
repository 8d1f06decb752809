"""Queries to the index of long-term memory, and how they are asked: each within a scope, each in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from redisvl.query import VectorQuery

from rtmem.errors import QueryLimitError
from rtmem.keys import scope_tag
from rtmem.operations import vector_index
from rtmem.operations.functions import call
from rtmem.operations.memory_items import SIDE, UNEMBEDDED
from rtmem.operations.text_query import TextQuery
from rtmem.operations.vector_index import Index
from rtmem.steps import Argument, Steps

RESULTS_MAX: Final = 1_000_000  # of one query; the engine refuses more


def scope_clause(principal: str, path: Sequence[str]) -> str:
    """The clause that no query goes without."""
    return f"@scope:{{{scope_tag(principal, path)}}}"


@dataclass(frozen=True, slots=True)
class Query:
    """A query as rtmem_v1_memories_find runs it."""

    most: int  # it brings at most so many documents
    words: tuple[Argument, ...]

    @property
    def args(self) -> tuple[Argument, ...]:
        """As the function takes it."""
        return (self.most, len(self.words), *self.words)


def _checked(most: int) -> int:
    if most > RESULTS_MAX:
        raise QueryLimitError(
            f"a search would have to look at {most} documents, at most {RESULTS_MAX} are possible: search in a longer "
            "namespace prefix, or with a filter"
        )
    return most


def in_order(index: Index, clauses: str, most: int, *, sides: bool = False) -> Query:
    """The oldest `most` items that fit, by the time when they were first written."""
    text = clauses if sides else f"{clauses} -@mark:{{{SIDE}}}"
    words = ("SORTBY", "created", "ASC", "NOCONTENT", "LIMIT", 0, _checked(most), "DIALECT", 2, "TIMEOUT", 0)
    return Query(most, (index.alias, text, *words))


def nearest(index: Index, clauses: str, vector: bytes, most: int) -> Query:
    """The `most` documents whose vectors are nearest, side documents included.

    vector: float32, shape (dims,), in this machine's order of bytes.
    """
    words = _nearest_words(clauses, index.vector_field, _checked(most))
    # Without TIMEOUT 0 the engine answers after half a second with what it has until then, and does not say so.
    return Query(most, (index.alias, *words, "TIMEOUT", 0, "PARAMS", 2, "vector", vector))


@lru_cache(maxsize=1024)
def _nearest_words(clauses: str, vector_field: str, most: int) -> tuple[Argument, ...]:
    # RedisVL takes 16 us for this, half of what such a query takes the server; most searches are alike.
    query = VectorQuery(b"", vector_field, return_fields=[], filter_expression=clauses, num_results=most)
    return tuple(query.get_args())


def find(
    index: Index,
    queries: Sequence[Query],
    *,
    skip: int,
    take: int,
    enough: int,
    refresh: bool,
    with_vectors: bool,
    fields: Sequence[str] = ("ns", "k"),
) -> Steps[Found]:
    """The items that queries lead to, one query after the other until there are `enough`, each item once.

    Of a query by a vector that brings as many as it may, the last is left out, and all that are as near: which of these
    the engine brings depends on how many it may. If there are not enough then, the function asks for more.

    Redis: 1 round trip, FCALL rtmem_v1_memories_find; ttls included. 2 more when the index has been lost.
    """

    def ask() -> Steps[list[Any]]:
        due = index.state.is_due()
        args: list[Argument] = [int(refresh), index.fingerprint if with_vectors else "", int(due), skip, take, enough]
        args += [len(fields), *fields]
        for query in queries:
            args += query.args
        found: list[Any] = yield from call("rtmem_v1_memories_find", [index.alias], args)
        vector_index.note_ready(index, due, found[1])
        return found

    reply = yield from vector_index.with_index(index, ask)
    return Found(bool(reply[0]), int(reply[2]), reply[3:])


@dataclass(frozen=True, slots=True)
class Found:
    """What `find` brings."""

    has_more: bool
    looked_at: int
    rows: list[list[bytes]]  # id, score or b"", v, created, u, fields...


def namespaces(index: Index, clauses: str) -> Steps[list[bytes]]:
    """The namespaces of all items that fit, as they are stored, in no order.

    Redis: 1 round trip, FCALL rtmem_v1_memories_namespaces; looks at every item that fits.
    """
    args = [index.alias, f"{clauses} -@mark:{{{SIDE}}}"]
    found: list[bytes] = yield from vector_index.with_index(
        index, lambda: call("rtmem_v1_memories_namespaces", [], args)
    )
    return found


@dataclass(frozen=True, slots=True)
class Lists:
    """What a search by words and one by a vector lead to, each with scores of its own, best first."""

    texts: list[tuple[bytes, float]]  # id and BM25
    vectors: list[tuple[bytes, float]]  # id and cosine
    rows: dict[bytes, Sequence[bytes]]  # id -> v, created, u, ns, k, id; of those that `most` asks for, and that live
    has_more: bool  # either was cut at the window


def side_by_side(
    index: Index, words: TextQuery | None, vector: tuple[str, bytes] | None, window: int, most: int
) -> Steps[Lists]:
    """The best of two queries: of one by words, and of one by a vector below some clauses; either may be None.

    Args:
        window: ids and scores of so many of each.
        most: and the rows of what can be among so many, in whatever ranking of all.

    Redis: 1 round trip, FCALL rtmem_v1_memories_side_by_side. Nobody's ttl is refreshed.
    """
    asked: list[Argument] = []
    if words is not None:
        params: list[Argument] = [part for name_and_word in words.params for part in name_and_word]
        head = (index.alias, words.query, "NOCONTENT", "WITHSCORES", "SCORER", "BM25STD", "VERBATIM")
        query = (*head, "LIMIT", 0, _checked(window), "DIALECT", 2, "TIMEOUT", 0, "PARAMS", len(params), *params)
        asked += ["words", len(query), *query]
    if vector is not None:
        near = nearest(index, *vector, window).words
        asked += ["vectors", len(near), *near]

    def ask() -> Steps[list[Any]]:
        due = index.state.is_due()
        args: list[Argument] = [index.fingerprint if vector is not None else "", int(due), window, most, *asked]
        found: list[Any] = yield from call("rtmem_v1_memories_side_by_side", [index.alias], args)
        vector_index.note_ready(index, due, found[0])
        return found

    _, more, lists, rows = yield from vector_index.with_index(index, ask)
    texts, vectors = [] if words is None else _pairs(lists[0]), [] if vector is None else _pairs(lists[-1])
    if words is not None:
        texts = [(key, words.bm25(score)) for key, score in texts]
    return Lists(texts, [(key, 1.0 - distance) for key, distance in vectors], {row[5]: row for row in rows}, bool(more))


def _pairs(reply: Sequence[bytes]) -> list[tuple[bytes, float]]:
    return list(zip(reply[::2], map(float, reply[1::2]), strict=True))


def unembedded(index: Index, clauses: str, most: int) -> Query:
    """Items that should have vectors and have none."""
    return in_order(index, f"{clauses} @mark:{{{UNEMBEDDED}}}", most, sides=True)
