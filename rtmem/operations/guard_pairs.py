"""What two texts have in common, word by word: what `guard_order` and `guard_endings` compare the roles of."""

from __future__ import annotations

from typing import Final

import msgspec

from rtmem.operations.guard_features import Item


class Pair(msgspec.Struct, frozen=True, eq=False, gc=False):
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
    free = list(enumerate(cached))
    pairs = []
    for item in asked:
        found = _same(item, free, kin)
        if found is not None:
            free.remove(found)
            at, other = found
            # "I" is left out and put anywhere, as long as it does not become "me".
            if item.kind != "pronoun" or item.surface != other.surface:
                pairs.append(Pair(item, other, at, (item, other) in kin))
    return pairs


def _same(item: Item, free: list[tuple[int, Item]], kin: Kin) -> tuple[int, Item] | None:
    """Where the other text has `item`: the same word, or else a synonym, or else one made from it."""
    synonym = None
    for place in free:
        other = place[1]
        if not item.senses.isdisjoint(other.senses):
            if item.stem == other.stem or item.kind == "pronoun":
                return place
            synonym = synonym or place
    if synonym is None and kin:
        return next((place for place in free if (item, place[1]) in kin), None)
    return synonym


def said(*items: Item) -> str:
    return " ... ".join(f"{item.role} {item.surface}".strip() for item in items)
