"""The index of long-term memory: its schema, how it comes to be, and the words of a query to it.

One index serves all tenants. Every query names a scope, a hash over (principal, prefix of a namespace), and there is
no way here to write one without. An index per tenant would have to be made and dropped with its tenant, every write
would be matched against the prefixes of all of them, and nothing could be searched across tenants; while a KNN within
a scope looks at the documents of that scope only, however many there are besides.

The vectors' field carries the fingerprint of its embedder in its name: vectors of two embedders cannot be compared by
accident, and a reindex can write the new ones beside the old. Programs find the index by an alias; whoever makes a
better one switches it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from redisvl.query import VectorQuery
from redisvl.schema import IndexSchema

from rtmem import settings as all_settings
from rtmem.errors import CommandError, ModuleMissingError, QueryLimitError
from rtmem.keys import Keys, scope_tag
from rtmem.operations.functions import call
from rtmem.operations.memory_filters import as_path, number_field
from rtmem.operations.memory_items import SEPARATOR, SIDE, UNEMBEDDED
from rtmem.operations.text_query import TextQuery
from rtmem.steps import Argument, Batch, Embedder, R, Steps

RESULTS_MAX: Final = 1_000_000  # of one query; the engine refuses more
LOOK_AGAIN_S: Final = 1.0
_LOOKS_MAX: Final = 50
_PAUSE_S: Final = 0.01

NO_ENGINE: Final = (
    "searching and listing needs the query engine, which this Redis lacks: use Redis 8, load the modules of Redis "
    "Stack, or let `rtmem up` run a Redis that has them (pip install 'rtmem[local]'); get, put and delete work without"
)


@dataclass(slots=True)
class IndexState:
    """What a store remembers of the index; shared by all that are bound to other principals."""

    known: bool = False
    has_engine: bool = True
    is_ready: bool = False
    looked_s: float = -1e9
    clock: Callable[[], float] = time.monotonic

    def is_due(self) -> bool:
        """Whether to ask again if the index is whole: after a restart it is built anew, in the background."""
        return not self.is_ready or self.clock() - self.looked_s > LOOK_AGAIN_S


@dataclass(frozen=True, slots=True)
class Index:
    """The index, seen with the eyes of one store."""

    keys: Keys
    settings: all_settings.Store
    embedder: Embedder | None
    state: IndexState = field(default_factory=IndexState)

    @property
    def alias(self) -> str:
        """By this name all queries find it."""
        return self.keys.memory_index

    @property
    def fingerprint(self) -> str:
        """Whose vectors it holds; '' for a store without an embedder."""
        return "" if self.embedder is None else short(self.embedder.fingerprint)

    @property
    def dims(self) -> int:
        """How many numbers a vector has."""
        return 0 if self.embedder is None else self.embedder.dims

    @property
    def vector_field(self) -> str:
        """Where the vectors of this store's embedder are."""
        return f"vector_{self.fingerprint}"


@lru_cache(maxsize=64)
def short(fingerprint: str) -> str:
    """A fingerprint as letters and digits, at most 16 of them, so that it can be part of a name."""
    if len(fingerprint) <= 16 and fingerprint.isascii() and fingerprint.isalnum():
        return fingerprint
    return blake2b(fingerprint.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# The schema ----------------------------------------------------------------------------------------------------------


def schema(index: Index, name: str) -> IndexSchema:
    """What of a memory is indexed, and how."""
    tag = {"separator": SEPARATOR, "case_sensitive": True}  # RediSearch folds case unless it is told not to
    fields: list[dict[str, Any]] = [
        {"name": "scope", "type": "tag", "attrs": tag},
        {"name": "mark", "type": "tag", "attrs": tag},
        {"name": "eq", "type": "tag", "attrs": tag},
        {"name": "created", "type": "numeric", "attrs": {"sortable": True}},
        # Stemmed by the client, in the language of the text; the server must not stem again.
        {"name": "s", "type": "text", "attrs": {"no_stem": True}},
        # Of facts only.
        {"name": "tags", "type": "tag", "attrs": tag},
        *({"name": name, "type": "numeric"} for name in ("importance", "valid_from", "valid_to")),
    ]
    numbers = dict.fromkeys(number_field(as_path(path)) for path in index.settings.numbers)
    fields += [{"name": number, "type": "numeric"} for number in numbers]
    if index.embedder is not None:
        fields.append({"name": index.vector_field, "type": "vector", "attrs": _vector_attributes(index)})
    # No stopwords: RediSearch 2.10 crashes on an OR of three terms that begins with two of them.
    head = {"name": name, "prefix": index.keys.memories, "storage_type": "hash", "stopwords": []}
    return IndexSchema.from_dict({"index": head, "fields": fields})


def _vector_attributes(index: Index) -> dict[str, Any]:
    attributes: dict[str, Any] = {"dims": index.dims, "distance_metric": "cosine", "datatype": "float32"}
    if index.settings.vectors == "flat":
        return {**attributes, "algorithm": "flat"}
    return {
        **attributes,
        "algorithm": "hnsw",
        "m": index.settings.hnsw_links,
        "ef_construction": index.settings.hnsw_building,
        "ef_runtime": index.settings.hnsw_searching,
    }


def _field_words(made: IndexSchema) -> list[tuple[str, list[Argument]]]:
    """Each field of a schema: its name, and what FT.CREATE and FT.ALTER call it."""
    return [
        (name, [str(getattr(word, "value", word)) for word in each.as_redis_field().redis_args()])
        for name, each in made.fields.items()
    ]


def _create_words(index: Index, fields: Sequence[tuple[str, list[Argument]]]) -> list[Argument]:
    words: list[Argument] = ["ON", "HASH", "PREFIX", 1, index.keys.memories, "STOPWORDS", 0, "SCHEMA"]
    for _, each in fields:
        words += each
    return words


def create_words(index: Index, beside: Iterable[tuple[str, str, str]]) -> list[Argument]:
    """What follows the name in FT.CREATE.

    Args:
        beside: name, type and algorithm of fields that another index has: numbers that other stores ask for are taken
            over.
    """
    fields = _field_words(schema(index, index.alias))
    known = {name for name, _ in fields}
    fields += [(name, [name, "NUMERIC"]) for name, kind, _ in beside if kind == "NUMERIC" and name not in known]
    return _create_words(index, fields)


def setup(index: Index) -> Steps[bool]:
    """Make the index if there is none, add what it lacks for this store, and learn whether it is ready.

    Returns:
        False where there is no query engine.

    Raises:
        EmbedderMismatchError: its vectors are another embedder's.

    Redis: 1 round trip, FCALL rtmem_v1_memories_setup; the first time that a store searches or writes. Where that
        makes or changes the index, some more over half a second at most, until the engine has read what is there.
    """
    name = f"{index.alias}:1"
    made = schema(index, name)
    fields = _field_words(made)
    create = _create_words(index, fields)
    args: list[Argument] = [name, index.fingerprint, index.dims, len(create), *create]
    for field_name, words in fields:
        args += [field_name, len(words), *words]
    state = index.state
    for _ in range(_LOOKS_MAX):
        reply = yield from call("rtmem_v1_memories_setup", [index.alias], args)
        state.known, state.has_engine = True, bool(reply)
        if not reply:
            return False
        state.is_ready, state.looked_s = reply[0] == b"1", state.clock()
        if state.is_ready:
            break
        # An engine reads what is there in the background, also where that is nothing. Nobody pushes to this key.
        yield Batch((("BLPOP", f"{index.alias}:pause", _PAUSE_S),), lane="blocking")
    return True


def ensure(index: Index) -> Steps[None]:
    """The index is there. Raises ModuleMissingError, EmbedderMismatchError. Redis: none once it is known."""
    state = index.state
    if not (state.known and state.has_engine) and not (yield from setup(index)):
        raise ModuleMissingError(NO_ENGINE)


def with_index(index: Index, ask: Callable[[], Steps[R]]) -> Steps[R]:
    """What `ask` finds; asked again where the index had been lost. Raises ModuleMissingError, EmbedderMismatchError."""
    yield from ensure(index)
    try:
        return (yield from ask())
    except CommandError as exc:
        if not _is_lost(exc):
            raise
        yield from _again(index)
        return (yield from ask())


# Queries -------------------------------------------------------------------------------------------------------------


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

    Redis: 1 round trip, FCALL rtmem_v1_memories_find; ttls included. 2 more when the index has been lost.
    """

    def ask() -> Steps[list[Any]]:
        due = index.state.is_due()
        args: list[Argument] = [int(refresh), index.fingerprint if with_vectors else "", int(due), skip, take, enough]
        args += [len(fields), *fields]
        for query in queries:
            args += query.args
        found: list[Any] = yield from call("rtmem_v1_memories_find", [index.alias], args)
        _note(index, due, found[1])
        return found

    reply = yield from with_index(index, ask)
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
    found: list[bytes] = yield from with_index(index, lambda: call("rtmem_v1_memories_namespaces", [], args))
    return found


@dataclass(frozen=True, slots=True)
class Lists:
    """What several queries lead to, each with its own scores."""

    scores: list[list[tuple[bytes, float]]]  # of each query: id, and what the engine gave it, best first
    rows: dict[bytes, list[bytes]]  # id -> v, created, u, ns, k


def side_by_side(index: Index, words: TextQuery | None, vector: tuple[str, bytes] | None, window: int) -> Steps[Lists]:
    """The best of two queries: of one by words, and of one by a vector below some clauses; either may be None.

    Redis: 1 round trip, FCALL rtmem_v1_memories_rank. Nobody's ttl is refreshed.
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
        args: list[Argument] = [index.fingerprint if vector is not None else "", int(due), *asked]
        found: list[Any] = yield from call("rtmem_v1_memories_rank", [index.alias], args)
        _note(index, due, found[0])
        return found

    _, lists, rows = yield from with_index(index, ask)
    scores = [[(each[n], float(each[n + 1])) for n in range(0, len(each), 2)] for each in lists]
    return Lists(scores, {row[0]: row[1:] for row in rows})


def _note(index: Index, due: bool, ready: bytes) -> None:
    if due:
        index.state.is_ready, index.state.looked_s = ready == b"1", index.state.clock()


def unembedded(index: Index, clauses: str, most: int) -> Query:
    """Items that should have vectors and have none."""
    return in_order(index, f"{clauses} @mark:{{{UNEMBEDDED}}}", most, sides=True)


def _is_lost(exc: CommandError) -> bool:
    text = str(exc).lower()
    return "no such index" in text or "unknown index" in text or "index_not_found" in text


def _again(index: Index) -> Steps[None]:
    # FLUSHALL takes indexes along.
    index.state.known = False
    yield from ensure(index)
