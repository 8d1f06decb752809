"""Search by words and by meaning at once, for stores with ranking="hybrid": BM25 and cosine, fused by retrieval.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from langgraph.store.base import SearchItem, SearchOp

from rtmem.operations import retrieval, text_query
from rtmem.operations.functions import calls
from rtmem.operations.memory_filters import as_path, at_path, narrow
from rtmem.operations.memory_items import ttl_ms, write_namespace
from rtmem.operations.memory_queries import in_order, scope_clause, side_by_side
from rtmem.operations.memory_scope import MemoryScope
from rtmem.operations.memory_search import Pages, SearchResults, Wanted, fitting, search
from rtmem.operations.retrieval import Candidate
from rtmem.steps import Steps

_GROWTH: Final = 4


def hybrid(scope: MemoryScope, op: SearchOp, vector: bytes | None) -> Steps[SearchResults]:
    """Items below a prefix, those first that share words with the query or are near to it; the others follow, oldest
    first and without a score, as in a search by vector.

    Args:
        vector: float32, shape (dims,); of `op.query`; None without an embedder, or where it failed.

    Raises as memory_search.search. The score is that of `retrieval.rank`, 0..1, by relevance alone.

    Redis: 1 round trip, FCALL rtmem_v1_memories_rank. 1 more to begin ttls anew, where items have one; and more where
        more items are asked for than either search finds, or where the server cannot decide a filter.
    """
    wanted = Wanted(op.offset, op.limit)
    needed = op.offset + op.limit
    narrowed = narrow(op.filter, scope.settings.numbers)
    clauses = f"{scope_clause(scope.principal, op.namespace_prefix)} {narrowed.query}".rstrip()
    settings = msgspec.structs.replace(scope.retrieval, relevance_weight=1.0, recency_weight=0.0, importance_weight=0.0)
    words = text_query.query(op.query or "", clauses, words_max=settings.words_max)
    if not wanted.limit or (words is None and vector is None):
        return (yield from search(scope, op, vector))
    fits = fitting(scope, op)
    window = max(settings.window, needed)
    while True:
        lists = yield from side_by_side(scope.index, words, None if vector is None else (clauses, vector), window)
        items = {key: item for key, row in lists.rows.items() if (item := fits([key, b"", *row])) is not None}
        scores = [
            [(_candidate(scope, key, items[key]), each) for key, each in found if key in items]
            for found in lists.scores
        ]
        texts = [] if words is None else [(each, words.bm25(score)) for each, score in scores.pop(0)]
        vectors = [(each, 1.0 - distance) for each, distance in scores.pop(0)] if scores else []
        sized = msgspec.structs.replace(settings, window=window)
        hits = retrieval.rank(texts, vectors, 0, sized, hits_max=needed)
        if narrowed.whole or len(hits) >= needed or all(len(found) < window for found in lists.scores):
            break
        window *= _GROWTH
    results = SearchResults()
    for hit in hits[op.offset :]:
        item = items[hit.candidate.id.encode()]
        item.score = hit.score
        results.append(item)
    if op.refresh_ttl:
        keys = [hit.candidate.id.encode() for hit in hits[op.offset :]]
        yield from calls([("FCALL", "rtmem_v1_memories_touch", 1, key) for key in keys if ttl_ms(lists.rows[key][2])])
    if len(hits) < needed:
        others = Pages(
            scope,
            lambda most: [in_order(scope.index, clauses, most)],
            _unlike(fits, {hit.candidate.id.encode() for hit in hits}),
            Wanted(max(op.offset - len(hits), 0), op.limit - len(results)),
            with_vectors=False,
        )
        results += yield from others.collect(False, op.refresh_ttl)
    results.index_ready = scope.index.state.is_ready
    return results


def _candidate(scope: MemoryScope, key: bytes, item: SearchItem) -> Candidate:
    """An item as ranking sees it, with its place in a thread where the settings say where that is told."""
    wanted = scope.settings
    if wanted.thread and wanted.position:
        thread, position = (at_path(item.value, as_path(path)) for path in (wanted.thread, wanted.position))
        if isinstance(thread, str) and type(position) is int:
            # The same thread in another namespace is another one.
            return Candidate(key.decode(), "", thread=write_namespace(thread, item.namespace), position=position)
    return Candidate(key.decode(), "")


def _unlike(
    fits: Callable[[Sequence[bytes]], SearchItem | None], found: set[bytes]
) -> Callable[[Sequence[bytes]], SearchItem | None]:
    return lambda row: None if row[0] in found else fits(row)
