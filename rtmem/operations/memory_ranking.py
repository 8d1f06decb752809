"""Search by words and by meaning at once, for stores with ranking="hybrid": BM25 and cosine, fused by retrieval.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from langgraph.store.base import SearchItem, SearchOp
from msgspec.structs import replace

from rtmem.operations import retrieval, text_query
from rtmem.operations.functions import calls
from rtmem.operations.memory_filters import as_path, at_path, narrow
from rtmem.operations.memory_items import ttl_ms, write_namespace
from rtmem.operations.memory_queries import Lists, in_order, scope_clause, side_by_side
from rtmem.operations.memory_scope import MemoryScope
from rtmem.operations.memory_search import Pages, SearchResults, Wanted, fitting, search
from rtmem.operations.retrieval import Candidate
from rtmem.settings import Retrieval
from rtmem.steps import Steps

_GROWTH: Final = 4

_Fits: TypeAlias = Callable[[Sequence[bytes]], SearchItem | None]


def hybrid(scope: MemoryScope, op: SearchOp, vector: bytes | None) -> Steps[SearchResults]:
    """Items below a prefix, those first that share words with the query or are near to it; the others follow, oldest
    first and without a score, as in a search by vector.

    Args:
        vector: float32, shape (dims,); of `op.query`; None without an embedder, or where it failed.

    Raises as memory_search.search. The score is that of `retrieval.rank`, 0..1, by relevance alone.

    Redis: 1 round trip, FCALL rtmem_v1_memories_side_by_side. 1 more to begin ttls anew, where items have one, and 1
        where one expires meanwhile; and more where more items are asked for than are found within the window, which is
        then 4 times as large, or where the server cannot decide a filter.
    """
    wanted = Wanted(op.offset, op.limit)
    needed = op.offset + op.limit
    narrowed = narrow(op.filter, scope.settings.numbers)
    clauses = f"{scope_clause(scope.principal, op.namespace_prefix)} {narrowed.query}".rstrip()
    words = text_query.query(op.query or "", clauses, words_max=scope.retrieval.words_max)
    if not wanted.limit or (words is None and vector is None):
        return (yield from search(scope, op, vector))
    fits = fitting(scope, op)
    # A page must not depend on how much is asked for: what only a larger window finds stands behind what a smaller did.
    window = scope.retrieval.window
    # Where values tell what fits, or who stands beside whom, all of them are needed before anything can be ranked.
    most = needed if narrowed.whole and not _has_places(scope) else window
    hits: dict[bytes, float] = {}
    known: dict[bytes, tuple[SearchItem, bytes]] = {}  # the item, and `u`
    while True:
        found = yield from side_by_side(scope.index, words, None if vector is None else (clauses, vector), window, most)
        settings = replace(scope.retrieval, window=window)
        if most < window:
            ranked = retrieval.rank_scores(found.texts, found.vectors, settings, hits_max=needed)
            items = _items(fits, found, [key for key, _ in ranked])
            if len(items) < len(ranked):  # the time of one is over, and the index does not know yet
                most = window
                continue
        else:
            items = _items(fits, found, found.rows)
            ranked = _ranked(scope, found, items, settings)
        least = min(hits.values(), default=1.0)
        hits |= {key: min(score, least) for key, score in ranked if key not in hits}
        known |= {key: (item, found.rows[key][2]) for key, item in items.items() if key not in known}
        if len(hits) >= needed or not found.has_more:
            break
        window *= _GROWTH
        most = window
    results = SearchResults()
    lasting: list[bytes] = []
    for key, score in list(hits.items())[op.offset : needed]:
        item, u = known[key]
        item.score = score
        results.append(item)
        if ttl_ms(u):
            lasting.append(key)
    if op.refresh_ttl:
        yield from calls([("FCALL", "rtmem_v1_memories_touch", 1, key) for key in lasting])
    if len(hits) < needed:
        others = Pages(
            scope,
            lambda most: [in_order(scope.index, clauses, most)],
            _unlike(fits, set(hits)),
            Wanted(max(op.offset - len(hits), 0), op.limit - len(results)),
            with_vectors=False,
        )
        results += yield from others.collect(False, op.refresh_ttl)
    results.index_ready = scope.index.state.is_ready
    return results


def _items(fits: _Fits, found: Lists, keys: Iterable[bytes]) -> dict[bytes, SearchItem]:
    """The items under these keys that are there and fit."""
    items = {}
    for key in keys:
        row = found.rows.get(key)
        item = None if row is None else fits((key, b"", *row))
        if item is not None:
            items[key] = item
    return items


def _ranked(
    scope: MemoryScope, found: Lists, items: Mapping[bytes, SearchItem], settings: Retrieval
) -> list[tuple[bytes, float]]:
    """Keys and scores of `items`, which may stand beside each other, best first."""
    settings = replace(settings, relevance_weight=1.0, recency_weight=0.0, importance_weight=0.0)
    candidates = {key: _candidate(scope, key, item) for key, item in items.items()}
    texts, vectors = (
        [(candidates[key], score) for key, score in scores if key in candidates]
        for scores in (found.texts, found.vectors)
    )
    hits = retrieval.rank(texts, vectors, 0, settings)
    return [(hit.candidate.id.encode(), hit.score) for hit in hits]


def _has_places(scope: MemoryScope) -> bool:
    """Whether values tell who stands beside whom."""
    return bool(scope.settings.thread and scope.settings.position)


def _candidate(scope: MemoryScope, key: bytes, item: SearchItem) -> Candidate:
    """An item as ranking sees it, with its place in a thread where the settings say where that is told."""
    if _has_places(scope):
        wanted = (scope.settings.thread, scope.settings.position)
        thread, position = (at_path(item.value, as_path(path)) for path in wanted)
        if isinstance(thread, str) and type(position) is int:
            # The same thread in another namespace is another one.
            return Candidate(key.decode(), "", thread=write_namespace(thread, item.namespace), position=position)
    return Candidate(key.decode(), "")


def _unlike(fits: _Fits, found: set[bytes]) -> _Fits:
    return lambda row: None if row[0] in found else fits(row)
