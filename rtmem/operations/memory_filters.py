"""Filters on values: what an index is told about a value, how a filter is put to it, and what the filter means.

The meaning is InMemoryStore's: `{"kind": "note", "meta": {"lang": "en"}, "stars": {"$gte": 4}}`, with `$eq $ne $gt $gte
$lt $lte`, and `$in` besides. The server is asked for a part of it, exactly, and the whole is checked again here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from rtmem.errors import QueryError
from rtmem.keys import escape

Filter: TypeAlias = Mapping[str, Any]
Path: TypeAlias = tuple[str, ...]

# A longer text is rarely compared as a whole, and a tag that only one item has takes 200 bytes of the index.
_TEXT_CHARACTERS_MAX: Final = 64
_NUMBER_CHARACTERS_MAX: Final = 32
_PATH_CHARACTERS_MAX: Final = 256  # of what is remembered: a name may be as long as it likes
_INTEGER_BITS_MAX: Final = 1_024
_NUMBER_MAX: Final = 1.7976931348623157e308
_DEPTH_MAX: Final = 32
_SCALARS: Final = (str, int, float)
_PLAIN_FIELD: Final = re.compile(r"n_[a-z][a-z0-9]*(_{1,2}[a-z0-9]+)*")
_RANGES: Final = ("$gt", "$gte", "$lt", "$lte")
OPERATORS: Final = ("$eq", "$ne", "$in", *_RANGES)


def equality_tag(path: Path, scalar: Any) -> str | None:
    """What stands in the index for `scalar` at `path`: 80 bits, as hex, which no query gives a meaning.

    Equal scalars have one tag, as Python has them equal: 1, 1.0 and True. None for what has none: a text too long, NaN,
    None (which a filter also finds where nothing is) and whatever is no JSON scalar.
    """
    if isinstance(scalar, str):
        if len(scalar) > _TEXT_CHARACTERS_MAX:
            return None
        text = "s" + scalar
    elif isinstance(scalar, int | float):
        if not math.isfinite(scalar) if isinstance(scalar, float) else scalar.bit_length() > _INTEGER_BITS_MAX:
            return None
        text = f"n{int(scalar) if scalar == int(scalar) else float(scalar)!r}"
    else:
        return None
    hashed = _known(path)[0].copy()
    hashed.update(text.encode("utf-8", "surrogatepass"))
    digest: str = hashed.hexdigest()
    return digest


def number_field(path: Path) -> str:
    """The name of the NUMERIC field for `path`."""
    return _known(path)[1]


def _known(path: Path) -> tuple[Any, str]:
    """What the tags of a path begin with, as a hash, and the name of its NUMERIC field."""
    return (_named if sum(map(len, path)) <= _PATH_CHARACTERS_MAX else _named.__wrapped__)(path)


@lru_cache(maxsize=4096)
def _named(path: Path) -> tuple[Any, str]:
    escaped = "/".join(map(escape, path)).encode("ascii")
    hashed = blake2b(escaped + b"//" if path else b"/", digest_size=10)
    name = "n_" + "__".join(path)
    if len(name) > 40 or not _PLAIN_FIELD.fullmatch(name) or name.count("__") != len(path) - 1:
        # What is no plain name, or could be read as another path, or as another case of the same letters.
        name = "nx_" + blake2b(escaped, digest_size=8).hexdigest()
    return hashed, name


def as_path(text: str) -> Path:
    """`meta.stars` of the settings as a path."""
    return tuple(text.split("."))


def at_path(value: Any, path: Path) -> Any:
    """What stands at `path` of a value, None if nothing does."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def as_number(value: Any) -> float | None:
    """What range filters compare: `float(value)` where there is one."""
    # Most texts are words, and float() raises for them: 1 us. What it takes begins with a letter if it is inf or nan.
    if isinstance(value, str) and (
        len(value) > _NUMBER_CHARACTERS_MAX or (value[:1].isalpha() and value[0] not in "iInN")
    ):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


@dataclass(frozen=True, slots=True)
class Told:
    """What an index is told about a value."""

    equalities: list[str]
    numbers: dict[str, str]  # field -> number


def told_of(value: Mapping[str, Any]) -> Told:
    """The scalars of a value, also those of mappings inside it. Lists are compared as a whole, so not by the server."""
    told = Told([], {})
    _tell(told, value, ())
    return told


def _tell(told: Told, value: Mapping[Any, Any], above: Path) -> None:
    room = _PATH_CHARACTERS_MAX - sum(map(len, above))
    for name, inner in value.items():
        if not isinstance(name, str):
            continue  # no filter can name it
        if isinstance(inner, _SCALARS):
            if _is_untold(inner):
                continue
            tell = _remembered_scalar if len(name) <= room else _scalar
            tag, field, number = tell(above, name, inner)
            if tag is not None:
                told.equalities.append(tag)
            if field is not None:
                told.numbers[field] = number
        elif isinstance(inner, Mapping) and len(above) < _DEPTH_MAX:
            _tell(told, inner, (*above, name))


def _is_untold(scalar: str | float) -> bool:
    """Whether a scalar is too long for a tag and for a number, so that there is nothing to be remembered of it."""
    if isinstance(scalar, str):
        return len(scalar) > _TEXT_CHARACTERS_MAX
    return isinstance(scalar, int) and scalar.bit_length() > _INTEGER_BITS_MAX


def _scalar(above: Path, name: str, scalar: str | float) -> tuple[str | None, str | None, str]:
    """Tag, numeric field and number of a scalar. Equal ones have the same: 1, 1.0 and True."""
    path = (*above, name)
    number = as_number(scalar)
    if number is None:
        return equality_tag(path, scalar), None, ""
    return equality_tag(path, scalar), number_field(path), repr(max(-_NUMBER_MAX, min(_NUMBER_MAX, number)))


# Kinds, sources and stars come again and again, and a hash of each takes 2 us.
_remembered_scalar = lru_cache(maxsize=4096)(_scalar)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A filter as far as the server can decide it."""

    query: str  # a conjunction of clauses, or ''
    whole: bool  # nothing is left to be decided here


def narrow(wanted: Filter | None, numbers: Sequence[str]) -> Narrowed:
    """The part of a filter that the index can answer exactly. `numbers` are the paths that it has as NUMERIC.

    Raises QueryError for what is no filter: no mapping, an unknown operator, $in something that is no list.
    """
    if wanted is not None and not isinstance(wanted, Mapping):
        raise QueryError(f"filter is a {type(wanted).__name__}: a mapping, {{'kind': 'said'}}")
    clauses: list[str] = []
    indexed = {as_path(text) for text in numbers}
    whole = True
    for path, operator, operand in _conditions(wanted or {}, ()):
        clause = _clause(path, operator, operand, indexed)
        if clause is None:
            whole = False
        else:
            clauses.append(clause)
            # Inside a mapping, "not equal" asks that there be one.
            whole = whole and (operator != "$ne" or len(path) == 1)
    return Narrowed(" ".join(clauses), whole)


def _conditions(wanted: Filter, path: Path) -> Iterator[tuple[Path, str, Any]]:
    if len(path) > _DEPTH_MAX:
        raise QueryError(f"filter: more than {_DEPTH_MAX} mappings in each other")
    for name, condition in wanted.items():
        here = (*path, name)
        if not isinstance(condition, dict):
            yield here, "$eq", condition
        elif any(isinstance(key, str) and key.startswith("$") for key in condition):
            for operator, operand in condition.items():
                if operator not in OPERATORS:
                    raise QueryError(
                        f"filter on {name!r}: there is no operator {operator!r}: use {', '.join(OPERATORS)}"
                    )
                if operator == "$in" and not isinstance(operand, list | tuple | set | frozenset):
                    raise QueryError(f"filter on {name!r}: $in is {operand!r:.100}: a list of what it may be")
                yield here, operator, operand
        elif condition:
            yield from _conditions(condition, here)
        else:
            yield here, "$mapping", None  # whatever is a mapping


def _clause(path: Path, operator: str, operand: Any, indexed: set[Path]) -> str | None:
    if not all(isinstance(name, str) for name in path):
        return None
    if operator in ("$eq", "$ne"):
        tag = equality_tag(path, operand)
        return None if tag is None else f"{'-' if operator == '$ne' else ''}@eq:{{{tag}}}"
    if operator == "$in" and operand:
        tags = [equality_tag(path, each) for each in operand]
        return None if None in tags else f"@eq:{{{'|'.join(sorted({tag for tag in tags if tag}))}}}"
    number = as_number(operand)
    if operator not in _RANGES or path not in indexed or number is None or abs(number) > _NUMBER_MAX:
        return None
    bound = ("" if operator.endswith("e") else "(") + repr(number)
    span = f"{bound} +inf" if operator.startswith("$gt") else f"-inf {bound}"
    return f"@{number_field(path)}:[{span}]"


def matches(value: Mapping[str, Any], wanted: Filter | None) -> bool:
    """Whether a value passes a filter.

    As InMemoryStore has it, but that a range filter does not match what is no number, where InMemoryStore raises.
    """
    return all(_compare(value.get(name), condition) for name, condition in (wanted or {}).items())


def _compare(found: Any, condition: Any) -> bool:
    if isinstance(condition, dict):
        if any(isinstance(key, str) and key.startswith("$") for key in condition):
            return all(_apply(found, operator, operand) for operator, operand in condition.items())
        return isinstance(found, dict) and all(_compare(found.get(name), each) for name, each in condition.items())
    if isinstance(condition, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(condition)
            and all(_compare(one, each) for one, each in zip(found, condition, strict=True))
        )
    return bool(found == condition)


def _apply(found: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(found == operand)
    if operator == "$ne":
        return bool(found != operand)
    if operator == "$in":
        return any(found == each for each in operand)
    one, other = as_number(found), as_number(operand)
    if one is None or other is None:
        return False
    if operator == "$gt":
        return one > other
    if operator == "$gte":
        return one >= other
    if operator == "$lt":
        return one < other
    return one <= other
