"""What Russian endings say of roles: who did it to whom, the square of a sum."""

from __future__ import annotations

from typing import Final

from rtmem.operations.guard_features import Item
from rtmem.operations.guard_pairs import Pair, Said, said

_INSTRUMENTAL: Final = ("ом", "ем", "ой", "ей", "ами", "ями", "ью")


def is_instrumental(item: Item) -> bool:
    return item.surface.endswith(_INSTRUMENTAL) and not item.surface.isascii()


def are_bent(first: Pair, second: Pair) -> bool:
    """Whether both have other endings now: the square of a sum, the sum of squares."""
    return all(_isdeclined(pair) for pair in (first, second))


def _isdeclined(pair: Pair) -> bool:
    if pair.one.surface == pair.other.surface:
        return False
    is_russian = not pair.one.surface.isascii() and not pair.other.surface.isascii()
    is_one_word = pair.is_kin or pair.one.stem == pair.other.stem
    return is_russian and is_one_word and _ending(pair.one) != _ending(pair.other)


def declined(pairs: list[Pair]) -> Said | None:
    """Two Russian words that have exchanged their endings: who did it and to whom is now the other way round."""
    bent = [(pair, _ending(pair.one), _ending(pair.other)) for pair in pairs if _isdeclined(pair)]
    for at, (first, was, is_now) in enumerate(bent):
        for second, was2, is_now2 in bent[at + 1 :]:
            if was == is_now2 and is_now == was2:
                return said(first.one, second.one), said(first.other, second.other)
    # "Стресс" is the same as subject and object: then the other word's ending and their order tell.
    for pair in [pair for pair, *ends in bent if _PREDICATE.isdisjoint(ends)]:
        for other in pairs:
            if (
                (other.place - pair.place) * (_at(pairs, other) - _at(pairs, pair)) < 0
                and other.one.surface == other.other.surface
                and other.one.kind == pair.one.kind == "content"
                and not (pair.one.role or pair.other.role or other.one.role or other.other.role)
                and not other.one.surface.isascii()
            ):
                return said(pair.one, other.one), said(pair.other, other.other)
    return None


_PREDICATE: Final = frozenset(("ым", "им"))  # made the screen dark


def _at(pairs: list[Pair], pair: Pair) -> int:
    return next(at for at, other in enumerate(pairs) if other is pair)


_SOUNDS: Final = str.maketrans("яюи", "ауы", "ьй")  # the soft and hard spelling of one ending


def _ending(item: Item) -> str:
    return item.surface.removeprefix(item.stem).translate(_SOUNDS)
