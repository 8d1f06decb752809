"""LangGraph's BaseStore as steps: put, get, search, delete and list, in batches.

`lua/memories_v1.lua` has the layout, `vector_index.py` the schema, `memory_search.py` the reading by search.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal

from langgraph.store.base import (
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchOp,
    validate_op_namespace,
)

from rtmem.errors import CommandError, EmbeddingError, FunctionMissingError, InvalidRequestError, QueryError
from rtmem.operations import memory_queries, memory_vectors, vector_index
from rtmem.operations.functions import calls
from rtmem.operations.memory_drafts import Draft, writes
from rtmem.operations.memory_items import (
    read_item,
    read_paths,
    texts_of,
    write_value,
)
from rtmem.operations.memory_ranking import hybrid
from rtmem.operations.memory_scope import MemoryScope
from rtmem.operations.memory_search import list_namespaces, search
from rtmem.steps import Batch, Command, Embed, Request, Steps

_TTL_MS_MAX: Final = 10**14  # three thousand years; Redis adds it to the time


def batch(scope: MemoryScope, asked: Sequence[Op]) -> Steps[list[Result]]:
    """Answer operations as InMemoryStore does: reads see what was there before, of two puts of one key the last counts.

    Raises:
        InvalidNamespaceError (LangGraph's), InvalidRequestError, TooLargeError, QueryError: nothing was done.
        EmbeddingError: a query has no vector; nothing was done. An item that has none is stored, and marked.

    Redis: 1 round trip for reads or for writes, 1 for gets with writes, 2 for searches with writes; see
        memory_search.search for what may add some. Before it, an embedding of all queries and one of all texts.
    """
    puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
    gets: dict[int, GetOp] = {}
    finds: dict[int, SearchOp | ListNamespacesOp] = {}
    for n, op in enumerate(asked):
        validate_op_namespace(op)
        if isinstance(op, PutOp):
            puts[op.namespace, op.key] = op
        elif isinstance(op, GetOp):
            gets[n] = op
        elif isinstance(op, SearchOp | ListNamespacesOp):
            finds[n] = op
            if isinstance(op, SearchOp) and not isinstance(op.query, str | None):
                raise QueryError(f"query is a {type(op.query).__name__}: a string")
        else:
            raise InvalidRequestError(f"a batch takes LangGraph's operations, not {type(op).__name__}")
    drafts = [_draft(scope, op) for op in puts.values()]
    query_vectors = yield from _embed_queries(scope, finds.values())
    yield from _embed_drafts(scope, drafts)

    results: list[Result] = [None] * len(asked)
    if finds:
        yield from vector_index.ensure(scope.index)
        readers = {n: _finder(scope, op, query_vectors) for n, op in finds.items()}
        readers |= {n: _getter(scope, op) for n, op in gets.items()}
        for n, result in zip(readers, (yield from _together(list(readers.values()))), strict=True):
            results[n] = result
        gets = {}
    if drafts and not scope.index.state.known:
        yield from vector_index.setup(scope.index)  # without a query engine, items can be found by their keys
    written = writes(scope, drafts)
    replies = yield from calls([_get(scope, op) for op in gets.values()] + written)
    for (n, op), reply in zip(gets.items(), replies, strict=False):
        results[n] = _read(scope, op, reply)
    if scope.index.state.has_engine and any(type(reply) is list and reply[1] == 0 for reply in replies[len(gets) :]):
        # Somebody flushed the database, and the index with it: what was just written is not in the new one for sure.
        yield from vector_index.setup(scope.index)
        yield from calls(written)
    return results


def _finder(scope: MemoryScope, op: SearchOp | ListNamespacesOp, vectors: Mapping[str, bytes]) -> Callable[[], Any]:
    if isinstance(op, ListNamespacesOp):
        return lambda: list_namespaces(scope, op)
    find = hybrid if scope.settings.ranking == "hybrid" and op.query else search
    return lambda: find(scope, op, vectors.get(op.query or ""))


def _together(makers: Sequence[Callable[[], Steps[Any]]]) -> Steps[list[Any]]:
    """The results of several reads, whose round trips are made together."""
    if len(makers) == 1:
        return [(yield from makers[0]())]
    running = [maker() for maker in makers]
    try:
        return (yield from _in_step(running))
    except (FunctionMissingError, CommandError):
        # Which of them it concerns is not known, so each has to deal with it alone.
        results = []
        for maker in makers:
            results.append((yield from maker()))
        return results
    finally:
        for steps in running:
            steps.close()


def _in_step(running: Sequence[Generator[Request, list[Any], Any]]) -> Steps[list[Any]]:
    results: list[Any] = [None] * len(running)
    answers: dict[int, list[Any] | None] = dict.fromkeys(range(len(running)))
    while answers:
        asked: dict[int, Batch] = {}
        for n, answer in answers.items():
            try:
                request = next(running[n]) if answer is None else running[n].send(answer)
            except StopIteration as stop:
                results[n] = stop.value
            else:
                assert isinstance(request, Batch), f"a read asked for {request!r}"
                asked[n] = request
        ends = list(accumulate((len(each.commands) for each in asked.values()), initial=0))
        replies: list[Any] = []
        if asked:
            replies = yield Batch(tuple(command for each in asked.values() for command in each.commands))
        answers = {n: replies[start:end] for n, start, end in zip(asked, ends, ends[1:], strict=False)}
    return results


# Reading by key ------------------------------------------------------------------------------------------------------


def _get(scope: MemoryScope, op: GetOp) -> Command:
    key = scope.keys.memory(scope.principal, op.namespace, op.key)
    if op.refresh_ttl:
        return ("FCALL", "rtmem_v1_memories_get", 1, key, 1)
    return ("HMGET", key, "v", "created", "u")


def _getter(scope: MemoryScope, op: GetOp) -> Callable[[], Steps[Item | None]]:
    def get() -> Steps[Item | None]:
        (reply,) = yield from calls([_get(scope, op)])
        return _read(scope, op, reply)

    return get


def _read(scope: MemoryScope, op: GetOp, reply: list[bytes | None] | None) -> Item | None:
    if reply is None or reply[0] is None:
        return None
    return read_item(scope.serde, tuple(op.namespace), op.key, [each or b"" for each in reply])


# Writing -------------------------------------------------------------------------------------------------------------


def _draft(scope: MemoryScope, op: PutOp) -> Draft:
    if op.value is None:
        return Draft(op, None, 0, [], [])
    value = write_value(scope.serde, op.value, scope.settings.value_bytes_max)
    has_texts = scope.embedder is not None or scope.settings.ranking == "hybrid"
    texts = texts_of(op.value, paths_of(scope, op.index)) if has_texts else []
    return Draft(op, value, _ttl_ms(op.ttl), texts, [])


def paths_of(scope: MemoryScope, index: Literal[False] | Sequence[str] | None) -> Sequence[str]:
    """What of a value is embedded. Raises InvalidRequestError."""
    if index is None:
        return scope.fields
    if index is False:
        return ()
    if not isinstance(index, list | tuple) or not all(isinstance(path, str) for path in index):
        raise InvalidRequestError(f"index is {index!r:.100}: a list of paths, False for none, None for the store's")
    return index


def _ttl_ms(minutes: float | None) -> int:
    if minutes is None:
        return 0
    if not isinstance(minutes, int | float) or not minutes > 0:
        raise InvalidRequestError(f"ttl is {minutes!r}: minutes above 0, or None for an item that stays")
    return min(max(1, round(min(minutes, 1e12) * 60_000)), _TTL_MS_MAX)


def _embed_queries(scope: MemoryScope, ops: Iterable[SearchOp | ListNamespacesOp]) -> Steps[dict[str, bytes]]:
    texts = tuple(dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query))
    if not texts or scope.embedder is None:
        return {}
    try:
        vectors = yield Embed(texts, "query")
    except EmbeddingError:
        if scope.settings.ranking == "hybrid":
            return {}  # words find something too
        raise
    return {text: vector.tobytes() for text, vector in zip(texts, vectors, strict=True)}


def _embed_drafts(scope: MemoryScope, drafts: Sequence[Draft]) -> Steps[None]:
    texts = drafts[0].texts if len(drafts) == 1 else dict.fromkeys(text for draft in drafts for text in draft.texts)
    if not texts or scope.embedder is None:
        return
    try:
        vectors = dict(zip(texts, (yield Embed(tuple(texts))), strict=True))
    except EmbeddingError:
        for draft in drafts:
            draft.vectors = None if draft.texts else []
        return
    for draft in drafts:
        draft.vectors = memory_vectors.with_direction([vectors[text] for text in draft.texts])


# Vectors that failed to come -----------------------------------------------------------------------------------------


def reembed(scope: MemoryScope, limit: int = 1_000) -> Steps[int]:
    """Embed items whose embedding failed when they were written. Returns how many have their vectors now.

    An item that is written meanwhile keeps what that write gave it. Call it until it returns 0.

    Args:
        limit: how many items at most.

    Raises:
        EmbeddingError: nothing could be embedded. An item that cannot be, beside others, stays without.

    Redis: 2 round trips for each 64 items; nobody's ttl is refreshed.
    """
    if scope.embedder is None:
        raise InvalidRequestError("this store has no embedder: open it with index={'embed': ..., 'dims': ...}")
    return (
        yield from memory_vectors.reembed(
            scope.index,
            memory_queries.scope_clause(scope.principal, ()),
            limit,
            ("ix",),
            lambda row: texts_of(scope.serde.loads(row[2]), read_paths(row[5]) or scope.fields),
        )
    )
