"""A value as chunks of bytes that exactly the same value can be made of, type and all (`pointer_decoding.py`).

Chunks end where a reader can begin: between characters of a text, elements of a JSON array, record batches of a
table. The ends are counted in bytes, characters, line ends and items, so that a slice finds its chunks by looking at
numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import zstandard
from blake3 import blake3
from xxhash import xxh3_128_digest

from rtmem.errors import TooLargeError
from rtmem.operations import pointer_objects
from rtmem.operations.pointer_cuts import Chunk, Piece, cut_bytes, cut_json, cut_text, json_items
from rtmem.operations.pointer_media import media_type
from rtmem.operations.pointer_tables import arrow_of, cut_table
from rtmem.records import PointerKind

_JSON_TYPES: Final = (list, dict, int, float, bool, type(None))
CUT_BY_US: Final = (str, bytes, memoryview, *_JSON_TYPES)
"""What is encoded in slices; anything else at once."""
_SAMPLE_RATIO_MAX: Final = 0.8  # a sample that shrinks less is not worth the time
_LEVEL: Final = 1

# What an attacker may choose (a web page that a tool fetched) must not be able to stand for another value: the
# identity is BLAKE3 (160 us per MB; BLAKE2b 1.8 ms). Damage in storage chooses nothing: xxh3, 21 us per MB, sees it.


class Encoded(msgspec.Struct):
    """A value cut into chunks. `fill()` cuts, `seal()` tells what it is known by."""

    value: Any
    media_type: str
    chunk_bytes: int
    compress_bytes_min: int
    value_bytes_max: int
    kind: PointerKind = "text"
    chunks: list[Chunk] = []  # as they are stored
    ends: list[int] = []  # four of each chunk: bytes, characters, lines, items
    sums: list[bytes] = []
    codec: str = "r"
    hash: bytes = b""
    key: bytes = b""  # values of this scope with the same key are one: same bytes, cut in the same way
    stored_bytes: int = 0
    bytes: int = 0  # of the value itself, as are the next three
    characters: int = 0
    line_ends: int = 0
    items: int = 0
    last: Chunk = b""  # chunk, as it was before compression
    hasher: Any = msgspec.field(default_factory=blake3)

    def fill(self) -> Iterator[None]:
        """Encode, cut and compress, in slices.

        Raises:
            TooLargeError: above value_bytes_max. InvalidRequestError: nothing can store this value.
        """
        if type(self.value) is memoryview:
            self.value = _flat(self.value)
        parts = (yield from json_items(self.value)) if type(self.value) in _JSON_TYPES else None
        self.kind, pieces = _pieces(self.value, parts, self.chunk_bytes)
        self.media_type = self.media_type or media_type(self.kind, self.value)
        for chunk, characters, lines, items in pieces:
            self._add(chunk, characters, lines, items)
            yield
        if self.kind == "object":
            yield from pointer_objects.check(self.value, self.chunks)
        self.stored_bytes = self.bytes
        if self.compress_bytes_min and self.bytes >= self.compress_bytes_min:
            yield from self._compress()

    def seal(self, stop: int | None = None) -> Iterator[None]:
        """Hash the chunks, up to `stop`, in slices. With the last of them `hash`, `key` and `sums` are there.

        Apart from `fill`, because this can be done while the chunks are under way already.
        """
        for chunk in self.chunks[len(self.sums) : stop]:
            # Where the same values lie in other chunks (a changed setting) they are still the same, and so is the hash.
            if self.codec == "r":
                self.hasher.update(chunk)
            self.sums.append(xxh3_128_digest(chunk))
            yield
        if not self.hash and len(self.sums) == len(self.chunks):
            self.hash = self.hasher.digest()
            # The text "[1]" and the array have the same bytes, and other places where a reader can begin.
            self.key = blake3(self.kind.encode() + self.hash).digest()

    def _add(self, chunk: Chunk, characters: int, lines: int, items: int) -> None:
        self.bytes += len(chunk)
        if self.bytes > self.value_bytes_max:
            raise TooLargeError(
                f"a value has over {self.value_bytes_max} bytes, the most a pointer may have: offload it in parts, or "
                "raise value_bytes_max in [pointers]",
                bytes_max=self.value_bytes_max,
            )
        self.characters += characters
        self.line_ends += lines
        self.items += items
        self.ends += (self.bytes, self.characters, self.line_ends, self.items)
        self.chunks.append(chunk)
        self.last = chunk

    def _compress(self) -> Iterator[None]:
        sample = b"".join(bytes(self.chunks[at]) for at in {0, len(self.chunks) // 2})
        if len(zstandard.compress(sample, _LEVEL)) > _SAMPLE_RATIO_MAX * len(sample):
            return
        self.codec = "z"
        compressor = zstandard.ZstdCompressor(_LEVEL)
        for at, chunk in enumerate(self.chunks):
            self.hasher.update(chunk)
            # Each by itself, so that a slice unpacks only what it reads.
            self.chunks[at] = compressor.compress(chunk)
            yield
        self.stored_bytes = sum(map(len, self.chunks))


def _pieces(value: Any, items: list[bytes] | None, chunk_bytes: int) -> tuple[PointerKind, Iterator[Piece]]:
    kind = type(value)
    if kind is str:
        return "text", cut_text(value, chunk_bytes)
    if kind in (bytes, memoryview):  # a view is resolved as bytes
        return "bytes", cut_bytes(value, chunk_bytes)
    if items is not None:
        return "json", cut_json(value, items, chunk_bytes)
    if _is_a(value, "pyarrow", "Table"):
        return "table", cut_table(value, chunk_bytes)
    if _is_a(value, "pandas", "DataFrame"):
        table = arrow_of(value)
        if table is not None:
            return "dataframe", cut_table(table, chunk_bytes)
    return "object", cut_bytes(pointer_objects.dumps(value), chunk_bytes)


def _flat(view: memoryview) -> bytes | memoryview:
    """A view as bytes that can be cut and hashed as they lie there, without a copy where it is that already."""
    return view if view.format == "B" and view.ndim == 1 and view.c_contiguous else view.tobytes()


def _is_a(value: Any, module: str, name: str) -> bool:
    # Whoever has such a value has imported its library: it is never imported to find out.
    library = sys.modules.get(module)
    return library is not None and type(value) is getattr(library, name, None)
