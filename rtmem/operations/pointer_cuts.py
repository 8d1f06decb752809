"""Text, bytes and JSON cut into chunks of bytes that a reader can begin at: between characters of a text, elements of a
JSON array."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any, Final

import orjson
import ormsgpack

Chunk = bytes | memoryview
Piece = tuple[Chunk, int, int, int]
"""A chunk with its characters, line ends and items."""

_EXACT: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_ITEM_CHUNKS_MAX: Final = 4  # an item that is longer than so many chunks is cut like text, and not counted
_ITEMS_PER_SLICE: Final = 512


def cut_text(text: str, chunk_bytes: int) -> Iterator[Piece]:
    """A text, between its characters."""
    # Cut by characters and not by bytes: then how many a chunk has is known without looking.
    size = chunk_bytes if text.isascii() else max(1, chunk_bytes // 2)
    for at in range(0, len(text), size):
        part = text[at : at + size]
        raw = part.encode("utf-8", "surrogatepass")
        yield raw, len(part), raw.count(b"\n"), 0


def cut_bytes(raw: bytes | memoryview, chunk_bytes: int) -> Iterator[Piece]:
    """Bytes, anywhere, and without copying them."""
    if len(raw) <= chunk_bytes:
        if raw:
            yield raw, 0, 0, 0
        return
    view = memoryview(raw)
    for at in range(0, len(raw), chunk_bytes):
        yield view[at : at + chunk_bytes], 0, 0, 0


def json_items(value: Any) -> Generator[None, None, list[bytes] | None]:
    """The elements of an array, the entries of an object or the one value, as JSON; None if JSON would change it."""
    items: list[bytes] = []
    try:
        if type(value) is list:
            for at in range(0, len(value), _ITEMS_PER_SLICE):
                items += [_json(item) for item in value[at : at + _ITEMS_PER_SLICE]]
                yield
        elif type(value) is dict:
            for at, (name, item) in enumerate(list(value.items()), 1):  # others may change it in between
                if type(name) is not str:
                    return None
                items.append(orjson.dumps(name) + b":" + _json(item))
                if at % _ITEMS_PER_SLICE == 0:
                    yield
        else:
            items.append(_json(value))
    except (TypeError, ormsgpack.MsgpackEncodeError):
        return None
    return items


def _json(value: Any) -> bytes:
    # ormsgpack refuses what is only like a JSON type (tuples, subclasses), orjson refuses bytes.
    ormsgpack.packb(value, _refuse, _EXACT)
    encoded = orjson.dumps(value)
    if b"null" in encoded and orjson.loads(encoded) != value:
        raise TypeError("NaN or infinity: JSON has no such numbers")
    return encoded


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is no JSON type")


def cut_json(value: Any, items: list[bytes], chunk_bytes: int) -> Iterator[Piece]:
    """A JSON value whose `items` these are, between them."""
    opening, closing = (b"[", b"]") if type(value) is list else (b"{", b"}") if type(value) is dict else (b"", b"")
    if not opening or not items or max(map(len, items)) > _ITEM_CHUNKS_MAX * chunk_bytes:
        whole = (opening + b",".join(items) + closing).decode()
        yield from cut_text(whole, chunk_bytes)
        return
    run: list[bytes] = []
    run_bytes, lead = 0, opening
    for at, item in enumerate(items):
        run.append(item)
        run_bytes += len(item) + 1
        if run_bytes >= chunk_bytes or at == len(items) - 1:
            raw = lead + b",".join(run) + (closing if at == len(items) - 1 else b"")
            yield raw, characters_in(raw), 0, len(run)  # in JSON, line ends are escaped
            run, run_bytes, lead = [], 0, b","


def characters_in(raw: Chunk) -> int:
    """How many characters UTF-8 bytes have."""
    raw = bytes(raw)
    return len(raw) if raw.isascii() else len(raw.decode("utf-8", "surrogatepass"))
