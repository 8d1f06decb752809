"""Two different words: is one made from the other, does it deny the other, or is it only alike?"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from rtmem.operations.guard_lexicon import words_of

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


@lru_cache(maxsize=16_384)
def kinship(one: str, one_stem: str, other: str, other_stem: str) -> Kinship:
    """How two words that are not the same are related: `denied` if exactly one has a negative prefix.

    Symmetric in the words. Both in lower case, with their stems.
    """
    for longer, shorter, root in ((one, other, other_stem), (other, one, one_stem)):
        for prefix in _NEGATIVE:
            if longer.startswith(prefix) and len(longer) >= len(prefix) + 3:
                rest = longer[len(prefix) :].removeprefix("-")
                if rest == shorter or (len(root) >= 3 and rest.startswith(root) and abs(len(rest) - len(shorter)) <= 3):
                    return "denied"
    for left, right in _OPPOSED_ENDS:
        for first, second in ((one, other), (other, one)):
            first, second = first.removesuffix("s"), second.removesuffix("s")
            if first.endswith(left) and second.endswith(right) and first[: -len(left)] == second[: -len(right)]:
                return "opposed"
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
