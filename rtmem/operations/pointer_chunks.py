"""Which chunks hold a part of a value: the manifest, as lua/pointers_v2.lua keeps it."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from xxhash import xxh3_128_digest

from rtmem.errors import CorruptRecordError
from rtmem.operations.pointer_decoding import decompress
from rtmem.operations.pointer_values import Encoded
from rtmem.records import PointerUnit

_HEAD: Final = struct.Struct("<c29sdd")
_RECORD: Final = struct.Struct("<dd32s")
_ENDS_BYTES: Final = 32
_SUM_BYTES: Final = 16

COLUMNS: Final[dict[PointerUnit, int]] = {"bytes": 0, "characters": 1, "lines": 2, "items": 3, "rows": 3}


def pack_manifest(host: str, value: Encoded) -> bytes:
    """The manifest of a value whose chunks lie under pointer `host`."""
    head = _HEAD.pack(value.codec.encode(), host.encode(), value.stored_bytes, len(value.chunks))
    return b"".join((head, array("d", value.ends).tobytes(), *value.sums))


@dataclass(frozen=True, slots=True)
class Record:
    """The part of a pointer's record that the functions read too."""

    created_at_ms: int
    expires_at_ms: int
    key: bytes
    rest: bytes  # the manifest, and then what only Python reads; in a list without the manifest

    @classmethod
    def unpack(cls, raw: bytes) -> Record:
        created, expires, key = _RECORD.unpack_from(raw)
        return cls(int(created), int(expires), key, raw[_RECORD.size :])


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where the chunks of a value are, and where each of them ends."""

    codec: str
    host: str
    stored_bytes: int
    chunks: int
    ends: array[float]  # of each chunk in bytes, characters, line ends and items: four numbers in a row
    sums: bytes

    @classmethod
    def unpack(cls, raw: bytes) -> Manifest:
        """The manifest that `raw` begins with."""
        codec, host, stored, count = _HEAD.unpack_from(raw)
        chunks = int(count)
        sums = _HEAD.size + _ENDS_BYTES * chunks
        ends = array("d", raw[_HEAD.size : sums])
        return cls(codec.decode(), host.decode(), int(stored), chunks, ends, raw[sums : sums + _SUM_BYTES * chunks])

    @property
    def size(self) -> int:
        """Bytes of the manifest itself."""
        return _HEAD.size + (_ENDS_BYTES + _SUM_BYTES) * self.chunks

    def total(self, column: int) -> int:
        """How many bytes, characters, line ends or items the value has."""
        return int(self.ends[column - 4]) if self.chunks else 0

    def begin(self, number: int, column: int) -> int:
        """Where chunk `number` begins."""
        return int(self.ends[4 * number - 4 + column]) if number else 0

    def end(self, number: int, column: int) -> int:
        """Where chunk `number` ends."""
        return int(self.ends[4 * number + column])

    def chunk_at(self, position: int, column: int) -> int:
        """The chunk that holds `position`; the number of chunks if it is at or behind the end."""
        return bisect_right(range(self.chunks), position, key=lambda number: self.end(number, column))

    def chunk_with_line_end(self, count: int) -> int:
        """The chunk in which line end number `count`, from 1, stands."""
        return bisect_left(range(self.chunks), count, key=lambda number: self.end(number, 2))

    def open(self, number: int, stored: bytes | None, pointer_id: str) -> bytes:
        """Chunk `number` as it was offloaded. Raises CorruptRecordError if it is gone or is not what it was."""
        if stored is None:
            raise corrupt(pointer_id, f"chunk {number} of {self.chunks} is gone")
        if xxh3_128_digest(stored) != self.sums[number * _SUM_BYTES : (number + 1) * _SUM_BYTES]:
            raise corrupt(pointer_id, f"chunk {number} of {self.chunks} is not what was stored: its checksum differs")
        return decompress(self.codec, stored)

    def batches(self, first: int, stop: int, batch_bytes: int) -> Iterator[range]:
        """The chunks from `first` up to `stop`, in runs of about so many bytes."""
        begin = first
        for number in range(first, stop):
            if number > begin and self.end(number, 0) - self.begin(begin, 0) > batch_bytes:
                yield range(begin, number)
                begin = number
        if begin < stop:
            yield range(begin, stop)


def corrupt(pointer_id: str, what: str) -> CorruptRecordError:
    """The error for a pointer whose value is damaged."""
    return CorruptRecordError(
        f"pointer {pointer_id}: {what}; the value cannot be read: call the tool again that made it", pointer=pointer_id
    )
