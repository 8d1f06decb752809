"""A value as chunks of bytes, and back: exactly the value that it was, type and all.

Chunks end where a reader can begin: between characters of a text, elements of a JSON array, record batches of a
table. The ends are counted in bytes, characters, line ends and items, so that a slice finds its chunks by looking at
numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson
import ormsgpack
import zstandard
from blake3 import blake3
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from xxhash import xxh3_128_digest

from rtmem.errors import CorruptRecordError, ExtraMissingError, InvalidRequestError, TooLargeError
from rtmem.operations.pointer_fidelity import difference
from rtmem.operations.serde import Serde
from rtmem.records import PointerKind

Chunk = bytes | memoryview

JSON: Final = "application/json"
BLOCKS: Final = "application/vnd.langchain.content-blocks+json"
ARROW: Final = "application/vnd.apache.arrow.stream"
_MEDIA_TYPES: Final[dict[PointerKind, str]] = {
    "text": "text/plain",
    "bytes": "application/octet-stream",
    "json": JSON,
    "table": ARROW,
    "dataframe": ARROW,
    "object": "application/vnd.langgraph.msgpack",
}

_EXACT: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_JSON_TYPES: Final = (list, dict, int, float, bool, type(None))
CUT_BY_US: Final = (str, bytes, memoryview, *_JSON_TYPES)
"""What is encoded in slices; anything else at once."""
_ITEM_CHUNKS_MAX: Final = 4  # an item that is longer than so many chunks is cut like text, and not counted
_ITEMS_PER_SLICE: Final = 512
_SAMPLE_RATIO_MAX: Final = 0.8  # a sample that shrinks less is not worth the time
_LEVEL: Final = 1

# What an attacker may choose (a web page that a tool fetched) must not be able to stand for another value: the
# identity is BLAKE3 (160 us per MB; BLAKE2b 1.8 ms). Damage in storage chooses nothing: xxh3, 21 us per MB, sees it.


class Encoded(msgspec.Struct):
    """A value cut into chunks. `fill()` does the work."""

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

    def fill(self) -> Iterator[None]:
        """Encode, cut, hash and compress, in slices.

        Raises:
            TooLargeError: above value_bytes_max. InvalidRequestError: nothing can store this value.
        """
        if type(self.value) is memoryview:
            self.value = _flat(self.value)
        parts = (yield from _json_items(self.value)) if type(self.value) in _JSON_TYPES else None
        self.kind, pieces = _pieces(self.value, parts, self.chunk_bytes)
        self.media_type = self.media_type or _media_type(self.kind, self.value)
        hasher = blake3()
        for chunk, characters, lines, items in pieces:
            # Where the same values lie in other chunks (a changed setting) they are still the same, and so is the hash.
            hasher.update(chunk)
            self._add(chunk, characters, lines, items)
            yield
        if self.kind == "object":
            yield from _check_object(self.value, self.chunks)
        self.hash = hasher.digest()
        # The text "[1]" and the array have the same bytes, and other places where a reader can begin.
        self.key = blake3(self.kind.encode() + self.hash).digest()
        if self.compress_bytes_min and self.bytes >= self.compress_bytes_min:
            yield from self._compress()
        for chunk in self.chunks:
            self.sums.append(xxh3_128_digest(chunk))
            self.stored_bytes += len(chunk)
            yield

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
            # Each by itself, so that a slice unpacks only what it reads.
            self.chunks[at] = compressor.compress(chunk)
            yield


# Cutting -------------------------------------------------------------------------------------------------------------

Piece = tuple[Chunk, int, int, int]  # with its characters, line ends and items


def _pieces(value: Any, items: list[bytes] | None, chunk_bytes: int) -> tuple[PointerKind, Iterator[Piece]]:
    kind = type(value)
    if kind is str:
        return "text", _cut_text(value, chunk_bytes)
    if kind in (bytes, memoryview):  # a view is resolved as bytes
        return "bytes", _cut_bytes(value, chunk_bytes)
    if items is not None:
        return "json", _cut_json(value, items, chunk_bytes)
    if _is_a(value, "pyarrow", "Table"):
        return "table", _cut_table(value, chunk_bytes)
    if _is_a(value, "pandas", "DataFrame"):
        table = _arrow_of(value)
        if table is not None:
            return "dataframe", _cut_table(table, chunk_bytes)
    return "object", _cut_bytes(_object_bytes(value), chunk_bytes)


def _flat(view: memoryview) -> bytes | memoryview:
    """A view as bytes that can be cut and hashed as they lie there, without a copy where it is that already."""
    return view if view.format == "B" and view.ndim == 1 and view.c_contiguous else view.tobytes()


def _is_a(value: Any, module: str, name: str) -> bool:
    # Whoever has such a value has imported its library: it is never imported to find out.
    library = sys.modules.get(module)
    return library is not None and type(value) is getattr(library, name, None)


def _media_type(kind: PointerKind, value: Any) -> str:
    if kind == "text":
        start = value[:256].lstrip().lower()
        return "text/html" if start.startswith(("<!doctype html", "<html")) else _MEDIA_TYPES[kind]
    if kind == "json" and is_blocks(value):
        return BLOCKS
    if kind == "bytes":
        start = bytes(value[:16])
        if start.startswith(_MAGIC_BYTES):
            return next(media for magic, media in _MAGIC.items() if start.startswith(magic))
    return _MEDIA_TYPES[kind]


_MAGIC: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
    b"PK\x03\x04": "application/zip",
    b"ID3": "audio/mpeg",
    b"OggS": "audio/ogg",
    b"fLaC": "audio/flac",
}
_MAGIC_BYTES: Final = tuple(_MAGIC)


def is_blocks(value: Any) -> bool:
    """Whether `value` is a list of content blocks, as the messages of LangChain have."""
    return (
        type(value) is list
        and 0 < len(value) <= 1_000
        and all(type(block) is dict and type(block.get("type")) is str for block in value)
        and any(block["type"] in _BLOCK_TYPES for block in value)
    )


_BLOCK_TYPES: Final = frozenset(
    ("text", "text-plain", "image", "image_url", "audio", "video", "file", "reasoning", "non_standard")
)


def _cut_text(text: str, chunk_bytes: int) -> Iterator[Piece]:
    # Cut by characters and not by bytes: then how many a chunk has is known without looking.
    size = chunk_bytes if text.isascii() else max(1, chunk_bytes // 2)
    for at in range(0, len(text), size):
        part = text[at : at + size]
        raw = part.encode("utf-8", "surrogatepass")
        yield raw, len(part), raw.count(b"\n"), 0


def _cut_bytes(raw: bytes | memoryview, chunk_bytes: int) -> Iterator[Piece]:
    if len(raw) <= chunk_bytes:
        if raw:
            yield raw, 0, 0, 0
        return
    view = memoryview(raw)
    for at in range(0, len(raw), chunk_bytes):
        yield view[at : at + chunk_bytes], 0, 0, 0


def _json_items(value: Any) -> Generator[None, None, list[bytes] | None]:
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


def _cut_json(value: Any, items: list[bytes], chunk_bytes: int) -> Iterator[Piece]:
    opening, closing = (b"[", b"]") if type(value) is list else (b"{", b"}") if type(value) is dict else (b"", b"")
    if not opening or not items or max(map(len, items)) > _ITEM_CHUNKS_MAX * chunk_bytes:
        whole = (opening + b",".join(items) + closing).decode()
        yield from _cut_text(whole, chunk_bytes)
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


def _arrow_of(frame: Any) -> Any:
    """A DataFrame as a table that gives it back exactly; None where Arrow would change it."""
    pyarrow = _pyarrow()
    try:
        table = pyarrow.Table.from_pandas(frame)
        back = table.to_pandas()
    except (pyarrow.ArrowException, TypeError, ValueError):
        return None
    same = back.dtypes.equals(frame.dtypes) and back.index.dtype == frame.index.dtype and back.attrs == frame.attrs
    same = same and back.equals(frame)
    return table if same else None


def _cut_table(table: Any, chunk_bytes: int) -> Iterator[Piece]:
    pyarrow = _pyarrow()
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, table.num_rows * chunk_bytes // max(1, table.nbytes)))
    stream = sink.getvalue()
    view = memoryview(stream)
    messages = [(message.type, message.serialize().size) for message in pyarrow.ipc.MessageReader.open_stream(stream)]
    batches = [size for what, size in messages if what == "record batch"]
    head = len(messages) - len(batches)
    if not batches or any(what == "record batch" for what, _ in messages[:head]):
        # No rows, or a dictionary that changes in the middle of the stream: it can only be read as a whole.
        yield from _cut_bytes(view, chunk_bytes)
        return
    # Schema and dictionaries have a chunk for themselves: every row needs them.
    at = sum(size for _, size in messages[:head])
    yield view[:at], 0, 0, 0
    rows = [batch.num_rows for batch in pyarrow.ipc.open_stream(stream)]
    for size, count in zip(batches, rows, strict=True):
        yield view[at : at + size], 0, 0, count
        at += size


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as exc:
        raise ExtraMissingError(
            "a table was offloaded, and pyarrow, which reads and writes it, is not installed: pip install "
            "'rtmem[tables]'",
            extra="tables",
        ) from exc
    return pyarrow


_serde: Final = Serde(JsonPlusSerializer(), 0)


def _object_bytes(value: Any) -> bytes:
    try:
        return _serde.dumps(value)
    except (TypeError, ValueError, ormsgpack.MsgpackEncodeError) as exc:
        raise _not_stored(value, exc) from exc


def _check_object(value: Any, chunks: Sequence[Chunk]) -> Iterator[None]:
    """Raise InvalidRequestError where the serialiser gives something else back."""
    problem = yield from difference(value, _serde.loads(b"".join(chunks)))
    if problem:
        raise _not_stored(value, problem)


def _not_stored(value: Any, problem: object) -> InvalidRequestError:
    return InvalidRequestError(
        f"a value of type {type(value).__name__} cannot be stored ({problem}): pass text, bytes, JSON, a table or what "
        "LangGraph can keep in a checkpoint"
    )


# Back ----------------------------------------------------------------------------------------------------------------


def decode(kind: PointerKind, chunks: Sequence[bytes]) -> Any:
    """The value that these chunks were. Raises CorruptRecordError, ExtraMissingError without pyarrow or pandas."""
    raw = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    try:
        if kind == "bytes":
            return raw
        if kind == "text":
            return raw.decode("utf-8", "surrogatepass")
        if kind == "json":
            return orjson.loads(raw)
    except ValueError as exc:
        raise CorruptRecordError(f"a value of {len(raw)} bytes does not decode as {kind}: {exc}") from exc
    if kind == "object":
        return _serde.loads(raw)
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
        return orjson.loads(opening + body + (b"]" if opening == b"[" else b"}"))
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


def read_table(raw: bytes) -> Any:
    """The pyarrow.Table of an Arrow stream; its end may be missing."""
    pyarrow = _pyarrow()
    try:
        return pyarrow.ipc.open_stream(raw).read_all()
    except (pyarrow.ArrowException, OSError) as exc:
        raise CorruptRecordError(f"a table of {len(raw)} bytes does not decode: {exc}") from exc


def decompress(codec: str, stored: bytes) -> bytes:
    """A chunk as it was before compression. Raises CorruptRecordError."""
    if codec == "r":
        return stored
    try:
        return zstandard.decompress(stored)
    except zstandard.ZstdError as exc:
        raise CorruptRecordError(f"a chunk of {len(stored)} bytes does not decompress: {exc}") from exc
