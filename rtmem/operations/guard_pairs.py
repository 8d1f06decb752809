"""What two texts have in common, word by word: what `guard_order` and `guard_endings` compare the roles of."""

from __future__ import annotations

from typing import Final, NamedTuple

from rtmem.operations.guard_features import Item
from rtmem.operations.guard_lexicon import Kind


class Pair(NamedTuple):
    """An item of one text, what it is in the other, and its place there."""

    one: Item
    other: Item
    place: int
    is_kin: bool = False  # made from one word, but with other stems


Said = tuple[str, str]
Kin = frozenset[tuple[Item, Item]]
NO_KIN: Final[Kin] = frozenset()


def paired(asked: tuple[Item, ...], cached: tuple[Item, ...], kin: Kin) -> list[Pair]:
    """The items both have, in the order of `asked`, with their place in `cached`."""
    free = list(cached)
    taken: set[int] = set()
    pairs = []
    for item in asked:
        at = _same(item, free, taken, kin)
        if at is not None:
            taken.add(at)
            # "I" is left out and put anywhere, as long as it does not become "me".
            if item.kind is not Kind.PRONOUN or item.surface != free[at].surface:
                pairs.append(Pair(item, free[at], at, (item, free[at]) in kin))
    return pairs


def _same(item: Item, free: list[Item], taken: set[int], kin: Kin) -> int | None:
    """Where the other text has `item`: the same word, or else a synonym, or else one made from it."""
    synonym = None
    for at, other in enumerate(free):
        if at not in taken and not item.word.senses.isdisjoint(other.word.senses):
            if item.word.stem == other.word.stem or item.kind is Kind.PRONOUN:
                return at
            synonym = at if synonym is None else synonym
    if synonym is None and kin:
        return next((at for at, other in enumerate(free) if at not in taken and (item, other) in kin), None)
    return synonym


def said(*items: Item) -> str:
    return " ... ".join(f"{item.role} {item.surface}".strip() for item in items)
