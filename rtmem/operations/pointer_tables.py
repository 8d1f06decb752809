"""Tables as streams of Arrow, cut between their record batches, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rtmem.errors import CorruptRecordError, ExtraMissingError
from rtmem.operations.pointer_cuts import Piece, cut_bytes


def arrow_of(frame: Any) -> Any:
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


def cut_table(table: Any, chunk_bytes: int) -> Iterator[Piece]:
    """The record batches of a pyarrow.Table, and before them what all of them need."""
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
        yield from cut_bytes(view, chunk_bytes)
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


def read_table(raw: bytes) -> Any:
    """The pyarrow.Table of an Arrow stream; its end may be missing."""
    pyarrow = _pyarrow()
    try:
        return pyarrow.ipc.open_stream(raw).read_all()
    except (pyarrow.ArrowException, OSError) as exc:
        raise CorruptRecordError(f"a table of {len(raw)} bytes does not decode: {exc}") from exc
