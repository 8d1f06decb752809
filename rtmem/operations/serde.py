"""Values to stored bytes and back, around LangGraph's serialiser.

A stored value is one letter that names its type, then its bytes: `m` msgpack, `n` None, `b` bytes, `a` bytearray,
`j` json, `p` pickle; `x` for any other type, followed by the length of its name and the name (an encrypting serialiser
uses `msgpack+aes`). `z` in front of it all: the rest is zstd-compressed.
"""

from __future__ import annotations

from typing import Any

import ormsgpack
import zstandard
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.errors import CorruptRecordError
from rtmem.operations.fingerprints import prints_of
from rtmem.operations.messages import pack_messages, unpacker

_LETTERS = {"msgpack": b"m", "null": b"n", "bytes": b"b", "bytearray": b"a", "json": b"j", "pickle": b"p"}
_TYPES = {letter[0]: name for name, letter in _LETTERS.items()}
_OTHER = b"x"
COMPRESSED = b"z"

# Level 1: about 400 MB/s; every level above costs more time than the bytes it saves on a local AOF.
_LEVEL = 1


class Serde:
    """A LangGraph serialiser with rtmem's framing and compression."""

    __slots__ = ("_compress_min", "_dumps_typed", "_loads_typed", "_unpack")

    def __init__(self, serializer: SerializerProtocol, compress_bytes_min: int) -> None:
        self._dumps_typed = serializer.dumps_typed
        self._loads_typed = serializer.loads_typed
        self._unpack = unpacker(serializer.loads_typed) if _is_official(serializer) else None
        self._compress_min = compress_bytes_min

    def dumps(self, value: Any) -> bytes:
        """`value` as stored bytes. Raises what the serialiser raises for a value it cannot encode."""
        return self._frame(*self._dumps_typed(value))

    def dumps_run(self, run: list[Any]) -> tuple[bytes, list[bytes]]:
        """Neighbours in a list as stored bytes, and the fingerprint of each; both of one moment."""
        packed = pack_messages(run) if self._unpack is not None else None
        if packed is None:
            return self.dumps(run), prints_of(run, self.dumps)
        data, prints = packed
        return self._frame("msgpack", data), prints

    def _frame(self, kind: str, data: bytes) -> bytes:
        letter = _LETTERS.get(kind)
        if letter is None:
            name = kind.encode()
            letter = _OTHER + bytes((len(name),)) + name
        framed = letter + data
        if self._compress_min and len(framed) >= self._compress_min:
            compressed = zstandard.compress(framed, _LEVEL)
            if len(compressed) < len(framed) * 0.9:
                return COMPRESSED + compressed
        return framed

    def loads(self, stored: bytes) -> Any:
        """The value of `stored`. Raises CorruptRecordError for bytes that are none."""
        if stored[:1] == COMPRESSED:
            try:
                stored = zstandard.decompress(stored[1:])
            except zstandard.ZstdError as exc:
                raise CorruptRecordError(f"a stored value of {len(stored)} bytes does not decompress: {exc}") from exc
        kind = _TYPES.get(stored[0]) if stored else None
        if kind is not None:
            try:
                if kind == "msgpack" and self._unpack is not None:
                    return self._unpack(stored[1:])
                return self._loads_typed((kind, stored[1:]))
            except ormsgpack.MsgpackDecodeError as exc:
                raise CorruptRecordError(f"a stored value of {len(stored)} bytes does not decode: {exc}") from exc
        if stored[:1] != _OTHER:
            raise CorruptRecordError(f"a stored value begins with {stored[:4]!r}, which is no type letter")
        end = 2 + stored[1]
        return self._loads_typed((stored[2:end].decode(), stored[end:]))


def _is_official(serializer: SerializerProtocol) -> bool:
    """Whether this is JsonPlusSerializer as it came: what a subclass, or a hook of one's own, writes and reads is its
    own affair."""
    return (
        type(serializer) is JsonPlusSerializer
        and not getattr(serializer, "_custom_unpack_ext_hook", True)
        and vars(serializer).keys().isdisjoint(("dumps_typed", "loads_typed"))
    )
