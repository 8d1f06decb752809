"""Chunks of bytes as the value that they were, type and all."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
import zstandard

from rtmem.errors import CorruptRecordError, ExtraMissingError
from rtmem.operations import pointer_objects
from rtmem.operations.pointer_tables import read_table
from rtmem.records import PointerKind

_COLLECTED_BYTES_MAX: Final = 64 * 1024


def loads(raw: bytes) -> Any:
    """JSON as a value. Raises ValueError.

    Of much of it nothing is garbage yet, and looking for that again and again, while it grows, is half of the time
    that nobody else can use: 4 MB of small records take 60 ms so, and 130 with it.
    """
    if len(raw) < _COLLECTED_BYTES_MAX or not gc.isenabled():
        return orjson.loads(raw)
    gc.disable()
    try:
        return orjson.loads(raw)
    finally:
        gc.enable()


def decode(kind: PointerKind, chunks: Sequence[bytes]) -> Any:
    """The value that these chunks were. Raises CorruptRecordError, ExtraMissingError without pyarrow or pandas."""
    raw = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    try:
        if kind == "bytes":
            return raw
        if kind == "text":
            return raw.decode("utf-8", "surrogatepass")
        if kind == "json":
            return loads(raw)
    except ValueError as exc:
        raise CorruptRecordError(f"a value of {len(raw)} bytes does not decode as {kind}: {exc}") from exc
    if kind == "object":
        return pointer_objects.loads(raw)
    table = read_table(raw)
    if kind == "table":
        return table
    try:
        return table.to_pandas()
    except ImportError as exc:
        raise ExtraMissingError(
            "the value is a DataFrame, and pandas is not installed: pip install 'rtmem[tables]'", extra="tables"
        ) from exc


def decode_items(chunk: bytes, *, opening: bytes, last: bool) -> Any:
    """The elements (a list) or entries (a dict) of one chunk of a JSON array or object that was cut between them.

    The first chunk begins with the opening bracket and the others with a comma; the last ends with the closing one.
    """
    body = chunk[1:-1] if last else chunk[1:]
    try:
        return loads(opening + body + (b"]" if opening == b"[" else b"}"))
    except ValueError as exc:
        raise CorruptRecordError(f"a chunk of {len(chunk)} bytes is no JSON: {exc}") from exc


def decode_slices(chunks: Sequence[bytes], into: list[Any]) -> Iterator[None]:
    """Append to `into` the JSON array or object that `chunks` are, chunk by chunk."""
    opening = chunks[0][:1]
    whole: Any = [] if opening == b"[" else {}
    for at, chunk in enumerate(chunks):
        part = decode_items(chunk, opening=opening, last=at == len(chunks) - 1)
        if type(whole) is list:
            whole += part
        else:
            whole.update(part)
        yield
    into.append(whole)


def decompress(codec: str, stored: bytes) -> bytes:
    """A chunk as it was before compression. Raises CorruptRecordError."""
    if codec == "r":
        return stored
    try:
        return zstandard.decompress(stored)
    except zstandard.ZstdError as exc:
        raise CorruptRecordError(f"a chunk of {len(stored)} bytes does not decompress: {exc}") from exc
