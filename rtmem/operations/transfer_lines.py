"""The lines of an export of memory: what each says, written as JSON and read back."""

from __future__ import annotations

import json
import math
from typing import Any, Final

import msgspec

from rtmem.errors import InvalidRequestError
from rtmem.operations.memory_items import BARE, UNEMBEDDED
from rtmem.records import Fact

FORMAT: Final = 1

_US_MAX: Final = 2**53


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first line."""

    rtmem_memory: int  # the format's number
    user: str
    teams: tuple[str, ...] = ()
    application: str = ""
    exported_at_ms: int = 0
    fingerprint: str = ""  # whose vectors there are
    dims: int = 0


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A fact or an item. Times in us or ms since 1970."""

    fact: Fact | None = None
    namespace: tuple[str, ...] | None = None  # of an item
    key: str | None = None
    value: dict[str, Any] | None = None  # of an item
    index: tuple[str, ...] | None = None  # paths of what is embedded, if the item says so
    words: bool = False  # the store ranked by words too
    stored: str = ""  # base64: value, or a fact's content, as stored, where JSON cannot say all of it
    marks: tuple[str, ...] = ()  # bare, unembedded
    created_us: int = 0
    updated_us: int = 0
    ttl_ms: int = 0
    ends_at_ms: int = -1
    times: int = 0  # how often a fact was believed anew; of its first line
    vectors: tuple[str, ...] = ()  # base64 of float32


def write_line(line: Header | Line) -> bytes:
    """A line with its end."""
    built = msgspec.to_builtins(line)
    try:
        return (json.dumps(built, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
    except UnicodeEncodeError:  # half of a surrogate pair in a key
        return (json.dumps(built, separators=(",", ":")) + "\n").encode()


def read_line(raw: bytes) -> Line:
    """What a line says. Raises InvalidRequestError, and what JSON and structs raise."""
    line = msgspec.convert(json.loads(raw), Line)
    if not set(line.marks) <= {BARE, UNEMBEDDED}:
        raise InvalidRequestError(f"marks are {line.marks!r}: bare, unembedded")
    for name in ("created_us", "updated_us", "ttl_ms", "times"):
        if not 0 <= getattr(line, name) < _US_MAX:
            raise InvalidRequestError(f"{name} is {getattr(line, name)}")
    if not -1 <= line.ends_at_ms < _US_MAX:
        raise InvalidRequestError(f"ends_at_ms is {line.ends_at_ms}")
    return line


def is_plain(value: Any) -> bool:
    """Whether JSON says all of a value."""
    if isinstance(value, dict) and type(value) is dict:
        return all(type(key) is str and is_plain(each) for key, each in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))
