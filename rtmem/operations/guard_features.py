"""A text -> what the lexical guard compares of it: its items in order, with their roles, what it asks and denies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from rtmem.operations.guard_frames import FRAMES, PHRASE, phrase_frames
from rtmem.operations.guard_lexicon import AUXILIARY, EMPHATIC, KINDS, Kind, Word, words_of
from rtmem.operations.guard_reading import NUMBER, Token, content
from rtmem.operations.guard_tokens import pieces_of, plain, tokens

_TEXTS_MAX: Final = 4_096

_QUOTED: Final = re.compile(r'"([^"]{1,200})"|«([^»]{1,200})»|“([^”]{1,200})”|„([^“”]{1,200})[“”]|`([^`]{1,200})`')
_MARK: Final = re.compile('["«“„`]')
# Dates only after a number or a clock: three days ago, 7 am.
_AGO: Final = frozenset(("ago", "назад", "тому", "am"))
_DEGREES: Final = frozenset(("degree", "degrees"))
_COUNTED: Final[frozenset[Kind]] = frozenset(("unit", "number"))
_DATED: Final[frozenset[Kind]] = frozenset(("unit", "number", "date"))
# The word after these is what is denied; "n't" may stand far from it.
_DENIES_NEXT: Final = frozenset(("no", "without", "не", "без", "нет"))
_ITEMS: Final = KINDS - {"function", "join", "marker", "question", "negator"}
# "Before they were" leaves the role to what follows.
_PASSED_OVER: Final[frozenset[Kind]] = frozenset(("filler", "pronoun"))
# They ask nothing in "the day when", "people who".
_RELATIVE: Final = frozenset(("when", "where", "who", "which", "whom", "когда", "где", "кто", "куда"))
_NOTHING: Final[frozenset[str]] = frozenset()


class Item(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A word, phrase or quantity that the other text should have too."""

    word: Word
    kind: Kind  # of the word, as are the next three; read too often to be looked up there
    surface: str
    stem: str
    senses: frozenset[str]
    role: str
    is_name: bool
    joined: str  # "and", "or" or "versus" stands before it
    is_apart: bool  # an article or auxiliary stands before it
    is_passive: bool  # a participle after "be": it is done to what stands before it
    is_parted: bool  # punctuation stands before it
    takes_it: bool = False  # "it" follows, which stands for something before


def _item(word: Word, role: str, is_name: bool, joined: str, is_apart: bool, is_passive: bool, is_parted: bool) -> Item:
    kind, surface, stem, senses = word.kind, word.surface, word.stem, word.senses
    return Item(word, kind, surface, stem, senses, role, is_name, joined, is_apart, is_passive, is_parted)


class Features(msgspec.Struct, frozen=True, eq=False, gc=False):
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
    if _MARK.search(text):
        quoted = tuple([next(filter(None, match)) for match in _QUOTED.findall(text)])
    pieces = pieces_of(text)
    traits = _NOTHING.union(*[piece.traits for piece in pieces])
    found = tokens(pieces, traits)
    reading = _Reading()
    reading.read(found)
    negations = reading.negations or min(reading.emphatic, 1)
    if negations and _is_polar(found):
        negations -= 1
    items = tuple(reading.items)
    senses = _NOTHING.union(*[item.senses for item in items])
    numbers: tuple[str, ...] = ()
    if NUMBER in traits:
        numbers = tuple(sorted([item.stem for item in items if item.kind == "number"]))
    asked = _asked(reading.question, found)
    frames = traits & FRAMES
    if PHRASE in traits:
        frames |= phrase_frames(text)
    return Features(text, items, senses, reading.question, negations, quoted, numbers, asked, frames)


class _Reading:
    """What has been read so far, and what stands before the next item."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.question = ""
        self.negations = 0
        self.emphatic = 0
        self.has_russian: bool | None = None

    def read(self, found: list[Token]) -> None:
        items = self.items
        role = ""
        joined = ""
        is_apart = is_after_pause = is_after_item = is_after_auxiliary = is_after_be = is_parted = False
        for at, token in enumerate(found):
            word = token.word
            kind = word.kind
            is_item = kind in _ITEMS
            if is_item:
                if kind == "date" and word.surface in _AGO and not (items and items[-1].kind in _DATED):
                    is_item = False  # вернуть деньги назад
                elif kind == "unit" and word.surface in _DEGREES:
                    word = content(word.surface)  # no number stands before it, and one may have it in physics
                    kind = "content"
            elif kind == "function":
                if len(word.surface) == 1 and self._is_letter(token, found):
                    word, is_item = _letter(word.surface), True
                elif word.name:
                    is_apart = True
                    if word.name is AUXILIARY:
                        is_after_be = word.surface in _BE
                elif is_after_item and word.surface in _IT:
                    items[-1] = replace(items[-1], takes_it=True)
            elif kind == "marker":
                if word.surface == "чем" and not items:  # with what
                    self.question = self.question or "what"
                else:
                    role = f"{role} {word.name}" if role in _KEPT else word.name
            elif kind == "question":
                if self._is_relative(word, is_after_pause) or (
                    word.surface == "как" and is_after_item and not is_after_pause and _is_noun(found, at + 1)
                ):
                    role = word.name  # "who", "when" before what they say something about
                else:
                    self.question, role = self.question or word.name, ""
            elif kind == "join":
                joined = word.name
            elif word.name is EMPHATIC:
                self.emphatic += 1
            else:
                self.negations += 1
                if word.surface in _DENIES_NEXT or (word.surface == "not" and not is_after_auxiliary):
                    role = "not"
            if is_item:
                self.question = self.question or token.question
                if token.is_possessive and not role:
                    role = "of"
                elif items and not role and (joined or (is_after_item and _is_one(items[-1], word))):
                    role = items[-1].role  # both play it: between A and B, for three dogs
                if role == "to":
                    _acts(items)
                is_passive = is_after_be and _is_participle(word.surface)
                items.append(_item(word, role, token.is_name, joined, is_apart, is_passive, is_parted))
                is_parted = False
                is_after_be = not token.pauses and (is_after_be or word.stem == "get")
                if kind not in _PASSED_OVER:
                    role, joined, is_apart = "", "", False
            is_after_pause = token.pauses
            if is_after_pause:
                role = ""
                is_parted = True
            is_after_item, is_after_auxiliary = is_item, word.name is AUXILIARY

    def _is_letter(self, token: Token, found: list[Token]) -> bool:
        """Vitamin A, столбец a: a single letter that is no article."""
        if not token.word.surface.isascii():
            return False
        if token.is_name:
            return True
        if self.has_russian is None:  # asked once for a text: there may be a thousand letters
            self.has_russian = any("а" <= other.word.surface[:1] <= "я" for other in found)
        return self.has_russian

    def _is_relative(self, word: Word, is_after_pause: bool) -> bool:
        if not self.items:
            return False
        return (word.surface == "что" and not self.question) or (word.surface in _RELATIVE and not is_after_pause)


def _is_one(item: Item, word: Word) -> bool:
    """Whether a word says more of the item before it: three dogs, in May 2020."""
    return item.kind == "number" or (item.kind == "date" and word.kind in _COUNTED)


_IT: Final = frozenset(("it", "them"))


def _acts(items: list[Item]) -> None:
    """It is normal for a dog to bark: the dog is what barks."""
    for at in range(max(len(items) - 2, 0), len(items)):
        if items[at].role == "for":
            items[at] = replace(items[at], role="")


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
    return at < len(found) and found[at].word.kind == "content" and not found[at].word.surface.endswith(_VERBAL)


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
    return Word("content", surface, surface, frozenset((surface,)))


def _is_polar(found: list[Token]) -> bool:
    """Whether the text begins as "Isn't ...?" or has "не ... ли": it asks the same without the negation."""
    surfaces = [token.word.surface for token in found]
    if len(found) > 2 and found[0].word.name is AUXILIARY and surfaces[1] == "n't":
        return found[2].word.kind != "question"
    return any(one == "не" and other == "ли" for one, other in zip(surfaces, surfaces[2:], strict=False))
