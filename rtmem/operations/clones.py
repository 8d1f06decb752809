"""Copies of remembered values: what is handed out is never shared with anybody.

Decoding a conversation of 1 MB takes 25 ms, copying it 5. Only what is known to be copied completely is copied here;
for everything else the caller decodes again.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

_ATOMS = frozenset({str, int, float, bool, type(None), bytes})


class UncopyableError(Exception):
    """There is something inside that only decoding reproduces."""


def clone(value: Any) -> Any:
    """A deep copy of messages and plain containers. Raises UncopyableError for anything else."""
    cls = type(value)
    if cls in _ATOMS:
        return value
    if cls is dict:
        return _clone_dict(value)
    if cls is list:
        return [element if type(element) in _ATOMS else clone(element) for element in value]
    if isinstance(value, BaseModel):
        return _clone_model(value)
    raise UncopyableError


def _clone_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    copy = value.copy()
    for key, inner in value.items():
        if type(inner) not in _ATOMS:
            copy[key] = clone(inner)
        if type(key) not in _ATOMS:
            raise UncopyableError
    return copy


def _clone_model(value: BaseModel) -> BaseModel:
    # What pydantic's own __copy__ does, but deep, and three times as fast as __deepcopy__.
    cls = type(value)
    if value.__pydantic_private__ or value.__slots__ != _MODEL_SLOTS:
        raise UncopyableError
    copy = cls.__new__(cls)
    _set(copy, "__dict__", _clone_dict(value.__dict__))
    _set(copy, "__pydantic_fields_set__", set(value.__pydantic_fields_set__))
    extra = value.__pydantic_extra__
    # Also an empty one: `message.anything = 1` writes into it.
    _set(copy, "__pydantic_extra__", extra if extra is None else _clone_dict(extra))
    _set(copy, "__pydantic_private__", None)
    return copy


_set = object.__setattr__
_MODEL_SLOTS = BaseModel.__slots__
