"""An item of the store before it is written: the fields it will have, but for times and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rtmem.keys import place_of
from rtmem.operations.memory_filters import told_of
from rtmem.operations.memory_items import SEPARATOR, encode_key, write_paths
from rtmem.steps import Argument


def item_fields(
    principal: str,
    namespace: Sequence[str],
    key: str,
    value: Mapping[str, Any],
    stored: bytes,
    paths: Sequence[str] | None,
) -> tuple[list[Argument], list[Argument]]:
    """Names and values in turn: what side documents carry too, and what only the item does.

    Args:
        stored: `value`, serialised. paths: what of it is embedded, if the item has to say so.
    """
    told = told_of(value)
    place = place_of(principal, namespace)
    common: list[Argument] = ["scope", SEPARATOR.join(place.tags)]
    if told.equalities:
        common += ["eq", SEPARATOR.join(told.equalities)]
    for name, number in told.numbers.items():
        common += [name, number]
    own: list[Argument] = ["ns", place.path, "k", encode_key(key), "v", stored]
    if paths is not None:
        own += ["ix", write_paths(paths)]
    return common, own
