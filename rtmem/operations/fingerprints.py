"""What an element of a list holds now, in 16 bytes; and a run of messages encoded in the same pass.

A message is what all of this is about. Packing its state takes half a microsecond and gives both: the fingerprint is
a hash of those bytes, and JsonPlusSerializer's encoding is those bytes between two constants of the class. Encoding by
JsonPlusSerializer itself takes 3 us, most of them in pydantic's `model_dump`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2, JsonPlusSerializer
from pydantic import BaseModel
from xxhash import xxh3_128_digest

_PRINTABLE = frozenset({int, float, bool, type(None), str, dict, list})

# Everything that msgpack would make look like something else goes to `default`, which raises.
_EXACT = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_NOT_PLAIN = (TypeError, ormsgpack.MsgpackEncodeError)

# Models without private attributes, whose whole state is in __dict__ and __pydantic_extra__.
_SAMPLES: dict[type, BaseMessage] = {
    AIMessage: AIMessage("sample"),
    HumanMessage: HumanMessage("sample"),
    SystemMessage: SystemMessage("sample"),
    ToolMessage: ToolMessage("sample", tool_call_id="sample"),
}

_EXT_16, _EXT_32 = struct.Struct(">BHB").pack, struct.Struct(">BIB").pack  # heads of msgpack's `ext 16`, `ext 32`


def _refuse(value: object) -> Any:
    raise TypeError


class _Seeds(dict[type, int]):
    # One secret seed per class and process: equal contents of two classes differ, and nobody outside can craft two
    # contents that collide.
    def __missing__(self, cls: type) -> int:
        seed = self[cls] = int.from_bytes(os.urandom(8), "little")
        return seed


_seeds = _Seeds()


def fingerprint(value: Any) -> bytes | None:
    """16 bytes that differ whenever what would be stored differs; None for a value that has to be encoded to know."""
    cls = type(value)
    try:
        if isinstance(value, BaseModel):
            state: Any = value.__dict__
            if value.__pydantic_extra__ or value.__pydantic_private__:
                state = [state, value.__pydantic_extra__, value.__pydantic_private__]
        elif cls in _PRINTABLE:
            state = value
        else:
            return None
        return xxh3_128_digest(ormsgpack.packb(state, _refuse, _EXACT), _seeds[cls])
    except _NOT_PLAIN:
        return None  # a tuple, a datetime, an object, a lone surrogate somewhere inside


def digest(stored: bytes) -> bytes:
    """Identity of encoded bytes, for values without fingerprint."""
    return blake2b(stored, digest_size=16).digest()


def prints_of(elements: list[Any], encode: Callable[[list[Any]], bytes]) -> list[bytes]:
    """The fingerprints of a list's elements; by encoding those that have none."""
    # A message a time is what this is about: 0.7 us each, a third less than by way of fingerprint() alone.
    prints: list[bytes] = []
    add, pack, hashed, seeds = prints.append, ormsgpack.packb, xxh3_128_digest, _seeds
    for element in elements:
        cls = type(element)
        if cls in _SAMPLES and not element.__pydantic_extra__:
            try:
                add(hashed(pack(element.__dict__, _refuse, _EXACT), seeds[cls]))
                continue
            except _NOT_PLAIN:
                pass
        add(fingerprint(element) or digest(encode([element])))
    return prints


class _Frame(NamedTuple):
    """What stands around the state of a message of one class in JsonPlusSerializer's encoding."""

    before: bytes
    after: bytes
    length: int
    seed: int


class _Frames(dict[type, _Frame | None]):
    def __missing__(self, cls: type) -> _Frame | None:
        self[cls] = _frame_of(_SAMPLES[cls]) if cls in _SAMPLES else None
        return self[cls]


_frames = _Frames()


def _frame_of(sample: BaseMessage) -> _Frame | None:
    cls = type(sample)
    before = b"\x94" + ormsgpack.packb(cls.__module__) + ormsgpack.packb(cls.__name__)
    after = ormsgpack.packb("model_validate_json")
    state = ormsgpack.packb(sample.__dict__)
    packed = ormsgpack.packb(ormsgpack.Ext(EXT_PYDANTIC_V2, before + state + after))
    # The installed serialiser has the last word: if it reads anything else out of this, it encodes for itself.
    if JsonPlusSerializer().loads_typed(("msgpack", packed)) != sample:
        return None
    return _Frame(before, after, len(before) + len(after), _seeds[cls])


def pack_messages(run: list[Any]) -> tuple[bytes, list[bytes]] | None:
    """`run` as JsonPlusSerializer's msgpack, and the fingerprint of each element; None unless all are plain messages.

    The bytes are those that JsonPlusSerializer makes.
    """
    packed, prints = [_array_head(len(run))], []
    add, pack, hashed, short, long, frames = packed.append, ormsgpack.packb, xxh3_128_digest, _EXT_16, _EXT_32, _frames
    for element in run:
        frame = frames[type(element)]
        if frame is None or element.__pydantic_extra__:
            return None
        try:
            state = pack(element.__dict__, _refuse, _EXACT)
        except _NOT_PLAIN:
            return None
        before, after, length, seed = frame
        prints.append(hashed(state, seed))
        length += len(state)
        add(short(0xC8, length, EXT_PYDANTIC_V2) if length < 1 << 16 else long(0xC9, length, EXT_PYDANTIC_V2))
        add(before)
        add(state)
        add(after)
    return b"".join(packed), prints


def _array_head(length: int) -> bytes:
    if length < 16:
        return bytes((0x90 | length,))
    return struct.pack(">BH", 0xDC, length) if length < 1 << 16 else struct.pack(">BI", 0xDD, length)
