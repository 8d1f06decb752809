"""What there is of long-term memory: its index as the engine tells of it, and what a principal has in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rtmem.keys import scope_tag
from rtmem.operations import vector_index
from rtmem.operations.fact_drafts import KINDS
from rtmem.operations.fact_items import index_tag
from rtmem.operations.fact_scope import FactScope
from rtmem.operations.functions import call
from rtmem.operations.memory_items import SIDE, UNEMBEDDED
from rtmem.operations.vector_index import Index
from rtmem.steps import Steps

_SAMPLE: Final = 64


@dataclass(frozen=True, slots=True)
class IndexReport:
    """One index, as the engine tells of it."""

    documents: int
    ready: bool  # False: the engine still reads what there is
    indexed_share: float  # 0..1
    vector_bytes: int
    other_bytes: int
    fields: tuple[tuple[str, str, str], ...]  # name, type, algorithm of vectors or ""

    def algorithm(self, vector_field: str) -> str:
        """flat or hnsw; empty if it has no such vectors."""
        return next((each[2] for each in self.fields if each[0] == vector_field), "")


@dataclass(frozen=True, slots=True)
class MemoryState:
    """What is known of the index of all of long-term memory."""

    fingerprint: str  # short; empty: there are no vectors
    dims: int
    name: str
    index: IndexReport | None  # None: not made yet, or there is no engine
    next_fingerprint: str  # of a reindex that is under way, or was broken off
    next_index: IndexReport | None
    has_leftovers: bool  # vectors of an embedder of before
    again: int  # documents that were written during a reindex
    embedder: str = ""  # name of the one with `fingerprint`; empty for data of before names were kept
    next_embedder: str = ""

    @property
    def algorithm(self) -> str:
        """flat or hnsw; empty without vectors."""
        return "" if self.index is None else self.index.algorithm(f"vector_{self.fingerprint}")


def look(index: Index) -> Steps[MemoryState]:
    """What is known of the index of all of long-term memory. Redis: 1 round trip, FCALL rtmem_v1_reindex_state."""
    reply = yield from call("rtmem_v1_reindex_state", function_keys(index), ())
    fingerprint, dims, name, _, next_fingerprint, leftovers = (each.decode() for each in reply[:6])
    return MemoryState(
        fingerprint, int(dims or 0), name, _report(reply[7]), next_fingerprint, _report(reply[8]), bool(leftovers),
        reply[6], reply[9].decode(), reply[10].decode(),
    )  # fmt: skip


def _report(reply: Sequence[Any]) -> IndexReport | None:
    if not reply:
        return None
    documents, ready, share, vectors_mb, others_mb, fields = reply
    return IndexReport(
        documents=int(documents),
        ready=ready == b"1",
        indexed_share=float(share),
        vector_bytes=round(float(vectors_mb) * 1024 * 1024),
        other_bytes=round(float(others_mb) * 1024 * 1024),
        fields=tuple(tuple(part.decode() for part in each) for each in fields),
    )


def function_keys(index: Index) -> tuple[str, str]:
    return (index.alias, index.keys.memories)


@dataclass(frozen=True, slots=True)
class MemoryCounts:
    """What a principal has, and what all have together."""

    facts: dict[str, int]  # by kind, believed now
    ended: int  # facts that were superseded, invalidated, or were true until a time that is over
    items: int  # of the store
    unembedded: int  # of both: their embedding failed
    everybody: int  # facts and items of all principals
    everybody_unembedded: int
    bytes_each: int  # what a fact or item takes as it lies in Redis, its vectors included; mean of some of everybody's


def count(scope: FactScope) -> Steps[MemoryCounts]:
    """What there is, counted by the index.

    Raises ModuleMissingError, EmbedderMismatchError. Redis: 1 round trip, FCALL rtmem_v1_reindex_counts; 1 more the
    first time.
    """
    facts = f"@scope:{{{'|'.join(scope.labels) or 'none'}}}"
    # The store knows users only, one of whom may be nobody: a store that was opened without a principal.
    own = f"@scope:{{{scope_tag(scope.principal.user, ())}}} -@mark:{{{SIDE}}}"
    believed = f"@valid_to:[({time.time_ns() // 1_000_000} +inf]"
    unembedded = f"@mark:{{{UNEMBEDDED}}}"
    kinds = [f"{facts} {believed} @eq:{{{index_tag('kind', kind)}}}" for kind in KINDS]
    queries = [f"-@mark:{{{SIDE}}}", unembedded, facts, own, f"{facts} {unembedded}", f"{own} {unembedded}", *kinds]

    def ask() -> Steps[Any]:
        return (yield from call("rtmem_v1_reindex_counts", function_keys(scope.index), [_SAMPLE, *queries]))

    found, looked, size = yield from vector_index.with_index(scope.index, ask)
    everybody, all_unembedded, all_facts, items, unembedded_facts, unembedded_items, *by_kind = found
    return MemoryCounts(
        facts=dict(zip(KINDS, by_kind, strict=True)),
        ended=all_facts - sum(by_kind),
        items=items,
        unembedded=unembedded_facts + unembedded_items,
        everybody=everybody,
        everybody_unembedded=all_unembedded,
        bytes_each=round(size / looked) if looked else 0,
    )
