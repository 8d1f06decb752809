"""A text -> what the lexical guard compares of it: its items in order, with their roles, what it asks and denies."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rtmem.operations.guard_lexicon import Kind, Word, words_of
from rtmem.operations.guard_tokens import AUXILIARIES, Token, plain, tokens

_TEXTS_MAX: Final = 2_048
_ITEMS_MAX: Final = 16_384

_QUOTED: Final = re.compile(r'"([^"]{1,200})"|«([^»]{1,200})»|“([^”]{1,200})”|„([^“”]{1,200})[“”]|`([^`]{1,200})`')
_MARKS: Final = frozenset('"«“„`')
_ARTICLES: Final = frozenset(("a", "an", "the"))
_AGO: Final = frozenset(("ago", "назад", "тому"))
_COUNTED: Final = frozenset((Kind.UNIT, Kind.NUMBER))
_PASSED_OVER: Final = frozenset((Kind.FILLER, Kind.PRONOUN))  # "before they were" leaves the role to what follows
# They ask nothing in "the day when", "people who".
_RELATIVE: Final = frozenset(("when", "where", "who", "which", "whom", "когда", "где", "кто", "куда"))
# Russian says "никогда не": these count only where no other negation does.
_EMPHATIC: Final = words_of(
    """never none nobody nothing neither nor hardly barely ни никогда никто ничего ничто никак никого нигде никакой
    никакие"""
)


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A word, phrase or quantity that the other text should have too."""

    word: Word
    role: str = ""
    is_name: bool = False
    is_joined: bool = False  # "and", "or" or "versus" stands before it
    is_apart: bool = False  # an article or auxiliary stands before it

    @property
    def kind(self) -> Kind:
        return self.word.kind

    @property
    def surface(self) -> str:
        return self.word.surface


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    text: str
    items: tuple[Item, ...]
    senses: frozenset[str]  # of all items
    question: str  # who, when, where, why, how, many, what ...; or empty
    negations: int
    quoted: tuple[str, ...]
    numbers: tuple[str, ...]  # sorted


@lru_cache(maxsize=_TEXTS_MAX)
def features(text: str) -> Features:
    """What is compared of `text`, remembered."""
    text = plain(text)
    quoted: tuple[str, ...] = ()
    if not _MARKS.isdisjoint(text):
        quoted = tuple(next(filter(None, match)) for match in _QUOTED.findall(text))
    found = tokens(text)
    reading = _Reading(any("а" <= token.word.surface[:1] <= "я" for token in found))
    for token in found:
        reading.read(token)
    negations = reading.negations or min(reading.emphatic, 1)
    if negations and _is_polar(found):
        negations -= 1
    items = tuple(reading.items)
    senses = frozenset[str]().union(*[item.word.senses for item in items])
    numbers = tuple(sorted([item.word.stem for item in items if item.kind is Kind.NUMBER]))
    return Features(text, items, senses, reading.question, negations, quoted, numbers)


# Items are shared between texts: making one takes longer than finding it.
_item = lru_cache(maxsize=_ITEMS_MAX)(Item)


class _Reading:
    """What has been read so far, and what stands before the next item."""

    def __init__(self, is_russian: bool) -> None:
        self.is_russian = is_russian
        self.items: list[Item] = []
        self.question = ""
        self.negations = 0
        self.emphatic = 0
        self.role = ""
        self.is_joined = self.is_apart = self.is_after_pause = self.is_after_item = False

    def read(self, token: Token) -> None:
        word = token.word
        kind = word.kind
        count = len(self.items)
        if kind is Kind.FUNCTION:
            if self._is_letter(token):
                self._add(_letter(word.surface), token)
            elif word.surface in AUXILIARIES or word.surface in _ARTICLES:
                self.is_apart = True
        elif kind is Kind.MARKER:
            self.role = f"{self.role} {word.name}" if self.role == "than" else word.name
        elif kind is Kind.QUESTION:
            if not self._is_relative(word):
                self.question, self.role = self.question or word.name, ""
        elif kind is Kind.JOIN:
            self.is_joined = True
        elif kind is Kind.NEGATOR:
            if word.surface in _EMPHATIC:
                self.emphatic += 1
            else:
                self.negations += 1
        elif not (kind is Kind.DATE and word.surface in _AGO and not self._is_counted()):  # вернуть деньги назад
            self._add(word, token)
        if token.pauses:
            self.role = ""
        self.is_after_pause = token.pauses
        self.is_after_item = len(self.items) > count

    def _add(self, word: Word, token: Token) -> None:
        self.question = self.question or token.question
        role = self.role or ("of" if token.is_possessive else self._inherited(word))
        self.items.append(_item(word, role, token.is_name, self.is_joined, self.is_apart))
        if word.kind not in _PASSED_OVER:
            self.role, self.is_joined, self.is_apart = "", False, False

    def _inherited(self, word: Word) -> str:
        """The role of the item before, where both play it: between A and B, for three dogs, in May 2020."""
        if not self.items:
            return ""
        last = self.items[-1]
        is_one = self.is_after_item and (last.kind is Kind.NUMBER or (last.kind is Kind.DATE and word.kind in _COUNTED))
        return last.role if self.is_joined or is_one else ""

    def _is_letter(self, token: Token) -> bool:
        """Vitamin A, столбец a: a single letter that is no article."""
        surface = token.word.surface
        return len(surface) == 1 and surface.isascii() and (token.is_name or self.is_russian)

    def _is_relative(self, word: Word) -> bool:
        if self.question or not self.items:
            return False
        return word.surface == "что" or (word.surface in _RELATIVE and not self.is_after_pause)

    def _is_counted(self) -> bool:
        return bool(self.items) and self.items[-1].kind in _COUNTED


@lru_cache(maxsize=64)
def _letter(surface: str) -> Word:
    return Word(Kind.CONTENT, surface, surface, frozenset((surface,)))


def _is_polar(found: list[Token]) -> bool:
    """Whether the text begins as "Isn't ...?" or has "не ... ли": it asks the same without the negation."""
    surfaces = [token.word.surface for token in found]
    if len(found) > 2 and surfaces[0] in AUXILIARIES and surfaces[1] == "n't":
        return found[2].word.kind is not Kind.QUESTION
    return any(one == "не" and other == "ли" for one, other in zip(surfaces, surfaces[2:], strict=False))
