"""What the cache of answers takes and gives, as structs. No behaviour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

HitKind: TypeAlias = Literal["exact", "semantic"]


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An answer out of the cache."""

    answer: Any
    kind: HitKind
    distance: float  # cosine distance of the two questions; 0 for an exact hit
    prompt: str  # the question that was answered
    saved_ms: int  # what the answer took when it was computed
    created_ms: int  # when it was stored, Unix time
    tags: tuple[str, ...]
    entry_id: str
    hit_id: str  # for `report`


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an answer that was to be stored.

    reason, where it was not: error, refusal, truncated, tool_calls or empty (the answer is one nobody else should
    get; see `allow`), policy, too_large, unserialisable, invalidated (while it was computed) or unavailable (Redis).
    """

    stored: bool
    entry_id: str
    reason: str = ""
    detail: str = ""  # for people; of a stored one, that it has no vector


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What `get_or_compute` gives: the answer, and where it is from."""

    answer: Any
    hit: Hit | None = None  # None: it was computed
    written: Written | None = None  # what became of it then; None: it was computed for another caller, without Redis
    waited_ms: int = 0  # for somebody else who was computing it


class Refused(Protocol):
    """Why a guard refuses a question: as operations/lexical_guard.py says it."""

    @property
    def reason(self) -> str:
        """One word: number, negation, name..."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A question near to the one that was asked."""

    entry_id: str
    prompt: str
    distance: float
    threshold: float  # up to which this entry may be taken
    refusal: Any = None  # of the guard: a lexical_guard.Refusal; None: it lets this pass
    judged: bool | None = None  # what the judge said; None: it was not asked
    taken: bool = False


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a question hits, or does not."""

    entry_id: str  # of the question itself
    scope: str  # the hash of all that must be the same for a hit
    exact: bool  # an answer to this very question is stored
    threshold: float | None  # None: this embedder has none, or there is no embedder
    why_exact_only: str  # empty if the question is compared by meaning
    candidates: tuple[Candidate, ...]


class CacheDraft(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be stored, as a write policy sees it. It returns it, changed or not, or raises WriteRefusedError."""

    prompt: str  # is embedded and shown; what the entry is found by does not change with it
    answer: Any
    tags: tuple[str, ...]
    ttl_ms: int
    model: str
    principal: str


class CacheEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry, for people."""

    entry_id: str
    prompt: str
    model: str
    created_ms: int
    took_ms: int
    tags: tuple[str, ...]
    scope: str  # the hash of all that must be the same for a hit
    threshold: float | None  # learned from reports
    expires_in_ms: int | None  # None: it stays
    hits: int  # that Redis was told of
    bytes: int
    answer: Any = None  # of `entry` only


class CachePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries, and where the next page begins."""

    entries: tuple[CacheEntry, ...]
    continuation: str  # empty: there are no more


class CacheStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a tenant has in the cache, and what it was good for."""

    entries: int
    entries_max: int
    bytes: int
    bytes_max: int
    hits: int
    saved_ms: int
    exact: int  # of the hits
    semantic: int
    misses: int
    refused: dict[str, int]  # by reason: near questions whose answers were not taken
    evicted: int
    unembedded: int  # stored without a vector, as the embedder failed: they hit exactly only
    mended: int  # of those, how many a later update has embedded
    reported_right: int
    reported_wrong: int
    index: str  # of this cache's embedder; empty without one
    has_index: bool
    stale_indexes: tuple[str, ...]  # of other embedders


Guard: TypeAlias = Callable[[str, str], Refused | None]
"""Compares a question with one that was answered: None if the answer may serve both."""

Judge: TypeAlias = Callable[[str, str, Any], bool | Awaitable[bool]]
"""Asked with (question, cached question, its answer) before a semantic hit is given: whether the answer serves."""

CachePolicy: TypeAlias = Callable[[CacheDraft], CacheDraft]
