"""Where an answer goes on: short text that fits one pointer, one verb and its arguments, and nothing else.

It carries no right. Whoever makes one up gets what the position it names would have given: everything in it is
checked again, and so is the scope.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from blake3 import blake3

from rtmem.errors import QueryError

_BOUND_BYTES: Final = 5
_POSITION_MAX: Final = 2**53


def pack(question: Sequence[object], positions: Sequence[int]) -> str:
    """A continuation for `question` (verb, pointer, arguments) at these positions; -1 stands for "no limit"."""
    raw = bytearray(_bound(question))
    for position in positions:
        number = position + 1
        while number > 127:
            raw.append(number & 127 | 128)
            number >>= 7
        raw.append(number)
    return base64.b32encode(bytes(raw)).decode().rstrip("=").lower()


def unpack(question: Sequence[object], continuation: str, count: int) -> tuple[int, ...]:
    """The `count` positions. Raises QueryError for a continuation of another question."""
    try:
        text = str(continuation).strip().upper()
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raw = b""
    positions = _positions(raw[_BOUND_BYTES:])
    # The first says where to go on; only of the others -1 means something.
    if raw[:_BOUND_BYTES] != _bound(question) or len(positions) != count or not -1 < positions[0] <= _POSITION_MAX:
        raise another_question()
    return tuple(positions)


def another_question() -> QueryError:
    """The error for a continuation that was given for something else, or made up."""
    return QueryError(
        "this continuation belongs to another question: pass it with the same pointer and arguments as the call "
        "that gave it, or leave it out to begin anew"
    )


def _positions(raw: bytes) -> list[int]:
    positions: list[int] = []
    number = shift = 0
    for byte in raw[:64]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            positions.append(number - 1)
            number = shift = 0
    return positions if not shift else []


def _bound(question: Sequence[object]) -> bytes:
    return blake3(repr(tuple(question)).encode("utf-8", "surrogatepass")).digest(_BOUND_BYTES)
