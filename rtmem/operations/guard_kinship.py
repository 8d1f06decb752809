"""Two different words: is one made from the other, does it deny the other, or is it only alike?"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from rtmem.operations.guard_lexicon import Word, lexicon, words_of

Kinship = Literal["same", "denied", "opposed", ""]

_PREFIX_MIN: Final = 4

# What may follow the common beginning of two words of one family, after the stemmer; or nothing.
_ENGLISH_TAILS: Final = words_of(
    """
    e er or ion at ation ment ness ful al iti abl ibl iv ous ic ish ism ship y i anc enc t ing ed d s en ur ant ent ti
    ist ize iz is n ean an ian o"""
)
_RUSSIAN_TAILS: Final = words_of(
    """
    к ок ек ник тел ств ост ск н енн ов ев ив лив чив ич ан ени ань ни ти ит ат ет ива ыва ва а и я л ь ци ир ова чик
    щик ировк ирован овк авлива авлен лен лени ля ат ани ян е ем ен т ть ут ют ят у ю о ай яй ей ал ял ил ел ыл нн очк
    ик овани ева яни ну нул ш щ ч г з"""
)
_NEGATIVE: Final = ("un", "non", "in", "im", "il", "ir", "dis", "не", "без", "бес", "анти", "anti")
# These ends make opposite roles or opposite qualities of one root.
_OPPOSED_ENDS: Final = (("er", "ee"), ("or", "ee"), ("ful", "less"), ("датель", "датор"))
_OPPOSED_TAILS: Final = tuple(end for ends in _OPPOSED_ENDS for end in ends)


@lru_cache(maxsize=32_768)
def relation(one: Word, other: Word) -> Kinship:
    """How two words that share no sense are related. Symmetric in the words."""
    related = kinship(one.surface, one.stem, other.surface, other.stem)
    if related == "denied" or (one.opposites.isdisjoint(other.senses) and other.opposites.isdisjoint(one.senses)):
        return related
    return "opposed"


def kinship(one: str, one_stem: str, other: str, other_stem: str) -> Kinship:
    """How two words that are not the same are made from each other: `denied` if exactly one has a negative prefix.

    Symmetric in the words. Both in lower case, with their stems.
    """
    if _denies(one, other, other_stem) or _denies(other, one, one_stem):
        return "denied"
    if one[:1] != other[:1] and one_stem[:1] != other_stem[:1]:
        return ""  # most words
    if _are_opposite(_singular(one), _singular(other)):
        return "opposed"
    if _is_misspelt(one, one_stem, other, other_stem):
        return "same"
    length = 0
    for left, right in zip(one_stem, other_stem, strict=False):
        if left != right:
            break
        length += 1
    if length < _PREFIX_MIN or 2 * length < max(len(one_stem), len(other_stem)):
        return ""
    tails = _ENGLISH_TAILS if one_stem.isascii() else _RUSSIAN_TAILS
    ends = (one_stem[length:], other_stem[length:])
    return "same" if all(not end or end in tails for end in ends) else ""


def _denies(longer: str, shorter: str, root: str) -> bool:
    """Whether a word is another, whose stem is `root`, with a negative prefix."""
    if not longer.startswith(_NEGATIVE):
        return False
    for prefix in _NEGATIVE:
        if longer.startswith(prefix) and len(longer) >= len(prefix) + 3:
            rest = longer[len(prefix) :].removeprefix("-")
            if rest == shorter or (len(root) >= 3 and rest.startswith(root) and abs(len(rest) - len(shorter)) <= 3):
                return True
    return False


def _singular(word: str) -> str:
    return word if word.endswith("ss") else word.removesuffix("s")


def _are_opposite(one: str, other: str) -> bool:
    if not one.endswith(_OPPOSED_TAILS):
        return False
    return any(
        first.endswith(left) and second.endswith(right) and first[: -len(left)] == second[: -len(right)]
        for left, right in _OPPOSED_ENDS
        for first, second in ((one, other), (other, one))
    )


_MISSPELT_MIN: Final = 6
_UNKNOWN_MIN: Final = 8  # of words of which neither is known
_DROPPED_MIN: Final = 9
_DROPPED_UNKNOWN_MIN: Final = 12


def _is_misspelt(one: str, one_stem: str, other: str, other_stem: str) -> bool:
    """Whether one of two words is the other with a slip: letters swapped, doubled or not, or one dropped.

    Of two words that are both known, none is a slip; shorter words are one letter from too many others.
    """
    shorter, longer = sorted((one, other), key=len)
    if len(shorter) < _MISSPELT_MIN or len(longer) - len(shorter) > 1 or shorter[0] != longer[0]:
        return False
    known = lexicon()
    if not known.not_misspelt.isdisjoint((one, other)):
        return False
    familiar = known.knows(one, one_stem) + known.knows(other, other_stem)
    if familiar == 2 or (not familiar and len(shorter) < _UNKNOWN_MIN):
        return False
    at = 0
    while at < len(shorter) and shorter[at] == longer[at]:
        at += 1
    if len(shorter) == len(longer):
        return shorter[at : at + 2] == longer[at : at + 2][::-1] and shorter[at + 2 :] == longer[at + 2 :]
    if shorter[at:] != longer[at + 1 :]:
        return False
    if longer[at] == longer[at - 1]:
        return True
    return at < len(shorter) - 1 and len(longer) >= (_DROPPED_MIN if familiar else _DROPPED_UNKNOWN_MIN)
