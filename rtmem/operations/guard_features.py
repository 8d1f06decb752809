"""A text -> what the lexical guard compares of it: its items in order, with their roles, what it asks and denies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from rtmem.operations.guard_frames import frames
from rtmem.operations.guard_lexicon import AUXILIARY, EMPHATIC, Kind, Word, words_of
from rtmem.operations.guard_reading import Token
from rtmem.operations.guard_tokens import plain, tokens

_TEXTS_MAX: Final = 4_096
_ITEMS_MAX: Final = 16_384

_QUOTED: Final = re.compile(r'"([^"]{1,200})"|«([^»]{1,200})»|“([^”]{1,200})”|„([^“”]{1,200})[“”]|`([^`]{1,200})`')
_MARKS: Final = frozenset('"«“„`')
# Dates only after a number or a clock: three days ago, 7 am.
_AGO: Final = frozenset(("ago", "назад", "тому", "am"))
_COUNTED: Final = frozenset((Kind.UNIT, Kind.NUMBER))
_DATED: Final = _COUNTED | {Kind.DATE}
# The word after these is what is denied; "n't" may stand far from it.
_DENIES_NEXT: Final = frozenset(("no", "without", "не", "без", "нет"))
_ITEMS: Final = frozenset(Kind) - {Kind.FUNCTION, Kind.JOIN, Kind.MARKER, Kind.QUESTION, Kind.NEGATOR}
_PASSED_OVER: Final = frozenset((Kind.FILLER, Kind.PRONOUN))  # "before they were" leaves the role to what follows
# They ask nothing in "the day when", "people who".
_RELATIVE: Final = frozenset(("when", "where", "who", "which", "whom", "когда", "где", "кто", "куда"))


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """A word, phrase or quantity that the other text should have too."""

    word: Word
    role: str = ""
    is_name: bool = False
    joined: str = ""  # "and", "or" or "versus" stands before it
    is_apart: bool = False  # an article or auxiliary stands before it
    is_passive: bool = False  # a participle after "be": it is done to what stands before it
    takes_it: bool = False  # "it" follows, which stands for something before

    kind: Kind = field(init=False)  # of the word; read too often to be looked up
    surface: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.word.kind)
        object.__setattr__(self, "surface", self.word.surface)


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    text: str
    items: tuple[Item, ...]
    senses: frozenset[str]  # of all items
    question: str  # who, when, where, why, how, many, what ...; or empty
    negations: int
    quoted: tuple[str, ...]
    numbers: tuple[str, ...]  # sorted
    asked: str  # what a "who" asks for: the "subject" (who taught him), the "object" (who did he teach); or empty
    frames: frozenset[str]  # my, your, must, may ...: see guard_frames


@lru_cache(maxsize=_TEXTS_MAX)
def features(text: str) -> Features:
    """What is compared of `text`, remembered."""
    text = plain(text)
    quoted: tuple[str, ...] = ()
    if not _MARKS.isdisjoint(text):
        quoted = tuple(next(filter(None, match)) for match in _QUOTED.findall(text))
    found = tokens(text)
    reading = _Reading()
    reading.read(found)
    negations = reading.negations or min(reading.emphatic, 1)
    if negations and _is_polar(found):
        negations -= 1
    items = tuple(reading.items)
    senses = frozenset[str]().union(*[item.word.senses for item in items])
    numbers = tuple(sorted([item.word.stem for item in items if item.kind is Kind.NUMBER]))
    asked = _asked(reading.question, found)
    return Features(text, items, senses, reading.question, negations, quoted, numbers, asked, frames(text))


# Items are shared between texts: making one takes longer than finding it.
_item = lru_cache(maxsize=_ITEMS_MAX)(Item)


class _Reading:
    """What has been read so far, and what stands before the next item."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.question = ""
        self.negations = 0
        self.emphatic = 0

    def read(self, found: list[Token]) -> None:
        items = self.items
        role = ""
        joined = ""
        is_apart = is_after_pause = is_after_item = is_after_auxiliary = is_after_be = False
        for at, token in enumerate(found):
            word, is_name, pauses, is_possessive, question = token
            kind = word.kind
            is_item = kind in _ITEMS
            if kind is Kind.FUNCTION:
                if self._is_letter(token, found):
                    word, is_item = _letter(word.surface), True
                elif word.surface in _IT and is_after_item:
                    last = items[-1]
                    items[-1] = _item(*(getattr(last, name) for name in _ITEM_FIELDS), takes_it=True)
                elif word.name:
                    is_apart = True
                    if word.name is AUXILIARY:
                        is_after_be = word.surface in _BE
            elif kind is Kind.MARKER and word.surface == "чем" and not items:  # with what
                self.question = self.question or "what"
            elif kind is Kind.MARKER:
                role = f"{role} {word.name}" if role in _KEPT else word.name
            elif kind is Kind.QUESTION:
                if self._is_relative(word, is_after_pause) or (
                    word.surface == "как" and is_after_item and not is_after_pause and _is_noun(found, at + 1)
                ):
                    role = word.name  # "who", "when" before what they say something about
                else:
                    self.question, role = self.question or word.name, ""
            elif kind is Kind.JOIN:
                joined = word.name
            elif kind is Kind.NEGATOR:
                if word.name is EMPHATIC:
                    self.emphatic += 1
                else:
                    self.negations += 1
                    if word.surface in _DENIES_NEXT or (word.surface == "not" and not is_after_auxiliary):
                        role = "not"
            elif kind is Kind.DATE and word.surface in _AGO and not (items and items[-1].word.kind in _DATED):
                is_item = False  # вернуть деньги назад
            if is_item:
                self.question = self.question or question
                if not role:
                    role = "of" if is_possessive else self._inherited(word, joined, is_after_item)
                if role == "to":
                    _acts(items)
                is_passive = is_after_be and _is_participle(word.surface)
                items.append(_item(word, role, is_name, joined, is_apart, is_passive))
                is_after_be = not pauses and (is_after_be or word.stem == "get")
                if kind not in _PASSED_OVER:
                    role, joined, is_apart = "", "", False
            if pauses:
                role = ""
            is_after_pause, is_after_item, is_after_auxiliary = pauses, is_item, word.name is AUXILIARY

    def _inherited(self, word: Word, joined: str, is_after_item: bool) -> str:
        """The role of the item before, where both play it: between A and B, for three dogs, in May 2020."""
        if not self.items:
            return ""
        last = self.items[-1]
        is_one = is_after_item and (last.kind is Kind.NUMBER or (last.kind is Kind.DATE and word.kind in _COUNTED))
        return last.role if joined or is_one else ""

    def _is_letter(self, token: Token, found: list[Token]) -> bool:
        """Vitamin A, столбец a: a single letter that is no article."""
        surface = token.word.surface
        if len(surface) > 1 or not surface.isascii():
            return False
        return token.is_name or any("а" <= token.word.surface[:1] <= "я" for token in found)

    def _is_relative(self, word: Word, is_after_pause: bool) -> bool:
        if not self.items:
            return False
        return (word.surface == "что" and not self.question) or (word.surface in _RELATIVE and not is_after_pause)


_ITEM_FIELDS: Final = ("word", "role", "is_name", "joined", "is_apart", "is_passive")
_IT: Final = frozenset(("it", "them"))


def _acts(items: list[Item]) -> None:
    """It is normal for a dog to bark: the dog is what barks."""
    for at in range(max(len(items) - 2, 0), len(items)):
        if items[at].role == "for":
            item = items[at]
            items[at] = _item(item.word, "", item.is_name, item.joined, item.is_apart, item.is_passive, item.takes_it)


# A preposition after these does not undo them: than in Rome, not on Windows.
_KEPT: Final = frozenset(("than", "not"))
_BE: Final = frozenset(("is", "are", "was", "were", "be", "been", "being", "am"))
_PARTICIPLES: Final = words_of(
    """
    built made done sent paid sold cut put set read kept left lost held found taught bought caught brought told said fed
    led met won shot hit hurt spent lent shown known grown drawn thrown worn torn sung drunk run hung struck stuck
    understood split shut spread burnt heard laid sewn flown beat seen got blown bound begun fought sought swept
    """
)


def _is_noun(found: list[Token], at: int) -> bool:
    """Whether a Russian word follows that is no verb: the "как" before it compares, and asks nothing."""
    return at < len(found) and found[at].word.kind is Kind.CONTENT and not found[at].word.surface.endswith(_VERBAL)


_VERBAL: Final = ("ть", "ти", "чь", "ся", "сь", "ает", "яет", "ует", "еет", "ют", "ла", "ли", "о")


def _is_participle(surface: str) -> bool:
    return " " in surface or surface.endswith(("ed", "en")) or surface in _PARTICIPLES  # of a phrase, no form is known


def _asked(question: str, found: list[Token]) -> str:
    if question not in ("who", "what"):
        return ""
    auxiliaries = [token.word.surface for token in found if token.word.name is AUXILIARY]
    return "subject" if not auxiliaries else "object" if not _DO.isdisjoint(auxiliaries) else ""


_DO: Final = frozenset(("do", "does", "did"))


@lru_cache(maxsize=64)
def _letter(surface: str) -> Word:
    return Word(Kind.CONTENT, surface, surface, frozenset((surface,)))


def _is_polar(found: list[Token]) -> bool:
    """Whether the text begins as "Isn't ...?" or has "не ... ли": it asks the same without the negation."""
    surfaces = [token.word.surface for token in found]
    if len(found) > 2 and found[0].word.name is AUXILIARY and surfaces[1] == "n't":
        return found[2].word.kind is not Kind.QUESTION
    return any(one == "не" and other == "ли" for one, other in zip(surfaces, surfaces[2:], strict=False))
