"""Which kind of index long-term memory should have: exact while it is small, a graph where it has grown.

A search in a FLAT index compares every vector of the scope it asks in, so the largest scope decides, not the index. It
is found by a sample: to count all scopes, the server would answer nobody for 36 ms per 20,000 documents. A scan meets
keys in the order of their hashes, so the scope that most of a thousand documents have in common is the largest, or
about as large; how many vectors it has, the index counts in a millisecond.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from rtmem.operations.aof_watch import fields_of
from rtmem.operations.functions import call
from rtmem.operations.memory_items import BARE, SEPARATOR
from rtmem.operations.memory_state import MemoryState, function_keys
from rtmem.operations.vector_index import Index
from rtmem.steps import Batch, Steps

Algorithm: TypeAlias = Literal["flat", "hnsw"]

_SAMPLE: Final = 1_000  # documents
_SCANNED: Final = 1_000  # keys of the database per round trip
_PAGES_MAX: Final = 20
_CANDIDATES: Final = 3
_ROOM: Final = 1.5  # of an index, for one with a graph beside it: 1.35 were measured
_MB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """What the index should be."""

    algorithm: Algorithm
    why: str
    fix: str = ""  # what to do where that is not good
    short_bytes: int = 0  # memory that Redis lacks for a switch


def choose(index: Index, state: MemoryState) -> Steps[Choice]:
    """What the index should be, as `vectors` and `flat_items_max` of [store] say.

    A graph is never given up again by itself: memory that grows and shrinks about the limit would be indexed time and
    again.

    Redis: none for an index with up to `flat_items_max` documents, or where nothing is to be chosen. Else one that
        counts and one for INFO, and at most 20 pairs of a SCAN over 1,000 keys and what of them is looked at.
    """
    now, wanted, most = state.algorithm, index.settings.vectors, index.settings.flat_items_max
    documents = 0 if state.index is None else state.index.documents
    if (begun := _under_way(index, state)) is not None:
        return Choice(begun, "a reindex to it is under way")
    if wanted != "auto":
        why = f'vectors = "{wanted}" in [store]'
        if now and now != wanted:
            return Choice(wanted, f"{why}, and the index is {now}", "`rtmem memory reindex`, or change the setting")
        if wanted == "hnsw" or documents <= most:
            return Choice(wanted, why)
        slow = f"{why}, with more than {most:,} documents: a search reads all of whoever asks"
        return Choice(wanted, slow, 'vectors = "auto" if searches are slow; a restart takes longer then')
    if now == "hnsw":
        return Choice("hnsw", "a graph stays one, until `rtmem memory reindex --algorithm flat`")
    if documents <= most or not now:
        return Choice("flat", f"exact, as there are no more than {most:,} documents")
    largest = yield from _largest_scope(index)
    if largest <= most:
        return Choice("flat", f"exact, as nobody has more than {most:,} of the {documents:,} documents")
    why = f"flat, and {largest:,} documents are of one owner, more than {most:,}: a search of all reads every vector"
    if short_bytes := (yield from _short_bytes(state)):
        lacking = f"{why}; there is no room for one with a graph beside it"
        return Choice("flat", lacking, f"give Redis {short_bytes / _MB:,.0f} MB more (maxmemory)", short_bytes)
    return Choice("hnsw", why, "a gateway does it within minutes; `rtmem memory reindex` does it now")


def _under_way(index: Index, state: MemoryState) -> Algorithm | None:
    if state.next_index is None or state.next_fingerprint != index.fingerprint:
        return None
    return "hnsw" if state.next_index.algorithm(index.vector_field) == "hnsw" else "flat"


def _largest_scope(index: Index) -> Steps[int]:
    scopes: Counter[bytes] = Counter()
    cursor, looked = b"0", 0
    pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", index.keys.memories) + "*"
    for _ in range(_PAGES_MAX):
        ((cursor, keys),) = yield Batch((("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED, "TYPE", "hash"),))
        for found in (yield Batch(tuple(("HGET", key, "scope") for key in keys))) if keys else ():
            scopes.update(set(found.split(SEPARATOR.encode())) if found else ())
        looked += len(keys)
        if cursor == b"0" or looked >= _SAMPLE:
            break
    # Documents without a vector are not compared.
    queries = [f"@scope:{{{tag.decode()}}} -@mark:{{{BARE}}}" for tag, _ in scopes.most_common(_CANDIDATES)]
    if not queries:
        return 0
    counts: list[int]
    counts, _, _ = yield from call("rtmem_v1_reindex_counts", function_keys(index), [0, *queries])
    return max(counts)


def _short_bytes(state: MemoryState) -> Steps[int]:
    """Memory that is missing for another index of about the same size beside this one; 0 where that is not known."""
    (info,) = yield Batch((("INFO", "memory"),))
    told = fields_of(info)
    limit = int(told.get("maxmemory", 0)) or int(told.get("total_system_memory", 0))
    assert state.index is not None
    needed = round(_ROOM * (state.index.vector_bytes + state.index.other_bytes))
    return max(0, int(told.get("used_memory", 0)) + needed - limit) if limit else 0
