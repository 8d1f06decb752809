"""When memory is read and written, by kind. Explicit and deterministic: no model decides it.

always    the newest facts of the kind, whatever is said: preferences, which resemble no question
relevant  the facts that answer the user's message
question  the same, but only if the message asks something
never
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import regex

from rtmem.operations import text_query
from rtmem.operations.fact_drafts import KINDS
from rtmem.records import FactKind
from rtmem.settings import Recall

QUERY_CHARACTERS_MAX: Final = 4_000
"""Of a longer message its end is what memory is asked for: that is where its question is."""

_ENGLISH: Final = """
what which who whom whose when where why how do does did is are was were am can could would should will have has
tell remind remember recall
"""
_RUSSIAN: Final = """
что какой какая какое какие кто кого кому чей чья где куда откуда когда почему зачем как сколько ли
напомни напомните помнишь помните расскажи расскажите подскажи подскажите
"""
_ASKING: Final = frozenset((_ENGLISH + _RUSSIAN).split())
_MARKS: Final = regex.compile(r"[?\uff1f\u061f]")
_SENTENCE: Final = regex.compile(r"[.!;\n]+")
_FIRST_WORD: Final = regex.compile(r"\p{L}+")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read for one message."""

    query: str
    standing: tuple[FactKind, ...]  # the newest of these
    searched: tuple[FactKind, ...]  # of these what answers the message

    @property
    def is_empty(self) -> bool:
        """Nothing is to be read."""
        return not self.standing and not self.searched


def plan(settings: Recall, message: str) -> Plan:
    """What the policy reads for a message of the user."""
    query = message[-QUERY_CHARACTERS_MAX:].strip()
    asks = is_question(query)
    standing = tuple(kind for kind in KINDS if _reading(settings, kind) == "always")
    when = ("relevant", "question") if asks else ("relevant",)
    searched = tuple(kind for kind in KINDS if _reading(settings, kind) in when) if query else ()
    return Plan(query, standing, searched)


def is_question(text: str) -> bool:
    """Whether a message asks something: by its marks, and by the first word of its sentences."""
    if _MARKS.search(text):
        return True
    firsts = (_FIRST_WORD.search(sentence) for sentence in _SENTENCE.split(text))
    return any(first is not None and first[0].casefold() in _ASKING for first in firsts)


def bounds(settings: Recall, kind: FactKind) -> tuple[int, int]:
    """items_max and tokens_max of a kind."""
    return getattr(settings, f"{kind}_items_max"), getattr(settings, f"{kind}_tokens_max")


def writable(settings: Recall) -> tuple[FactKind, ...]:
    """The kinds that a model may write and forget through its tools."""
    return tuple(kind for kind in KINDS if getattr(settings, f"{kind}_write") != "never")


def words_of(query: str, words_max: int) -> frozenset[str]:
    """What two queries are compared by."""
    return frozenset(text_query.stems(query, words_max))


def likeness(words: Collection[str], others: Collection[str]) -> float:
    """The share of words that both have, 0..1 (Jaccard)."""
    mine, theirs = set(words), set(others)
    return len(mine & theirs) / len(mine | theirs) if mine or theirs else 0.0


def _reading(settings: Recall, kind: FactKind) -> str:
    reading: str = getattr(settings, f"{kind}_read")
    return reading
