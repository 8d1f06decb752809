"""Pointers that are there: whose they are, read back whole, described, listed. `pointer_uploads.py` makes them,
`pointer_slices.py` and `pointer_reading.py` look into one.

What lies in Redis, and what each step does there, is told in `lua/pointers_v2.lua`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rtmem import settings as all_settings
from rtmem.errors import (
    InvalidRequestError,
    NewerLayoutError,
    PointerExpiredError,
    PointerNotFoundError,
    QueryError,
)
from rtmem.keys import LAYOUT_VERSION, Keys, PointerKeys, check_id, escape
from rtmem.operations.functions import call
from rtmem.operations.pointer_chunks import Manifest, Record, corrupt
from rtmem.operations.pointer_decoding import decode, decode_slices
from rtmem.operations.pointer_previews import cut
from rtmem.records import Pointer, PointerPage, PointerUsage
from rtmem.steps import Batch, Command, Compute, Steps

ID: Final = re.compile(r"mp_[a-z2-7]{26}")
BY_HAND: Final = "m"
"""The holder of a pin that no thread holds."""

_BASE32: Final = b"abcdefghijklmnopqrstuvwxyz234567" * 8  # for each of 256 bytes
_PAGE_MAX: Final = 100
_decode_info: Final = msgspec.msgpack.Decoder(Pointer).decode


@dataclass(frozen=True, slots=True)
class PointerScope:
    """Whose pointers an operation is about, and the limits that hold for them."""

    principal: str = ""
    settings: all_settings.Pointers = field(default_factory=all_settings.Pointers)
    all_keys: Keys = field(default_factory=Keys)
    keys: PointerKeys = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", self.all_keys.pointers(self.principal))


def new_id(prefix: str = "mp_") -> str:
    """An id that nobody can guess and nobody had before: 130 random bits."""
    return prefix + os.urandom(26).translate(_BASE32).decode()


def id_of(pointer: str | Pointer) -> str:
    """The id that a caller means. Raises PointerNotFoundError for what cannot be one."""
    pointer_id = pointer.id if isinstance(pointer, Pointer) else pointer
    if type(pointer_id) is not str or not ID.fullmatch(pointer_id):
        raise not_found(pointer_id)
    return pointer_id


def not_found(pointer_id: object) -> PointerNotFoundError:
    """The error for an id that leads nowhere in this scope, whatever it may lead to in another."""
    shown = cut(str(pointer_id), 60) if isinstance(pointer_id, str) else f"<{type(pointer_id).__name__}>"
    return PointerNotFoundError(
        f"no pointer {shown!r} in this scope: it was never made, or it was deleted; `list` shows those there are",
        pointer=shown,
    )


def expired(pointer_id: str) -> PointerExpiredError:
    """The error for a pointer of this scope whose time is over."""
    return PointerExpiredError(
        f"pointer {pointer_id} has expired: its ttl is over, or the threads that pinned it are gone; call the tool "
        "again that made it",
        pointer=pointer_id,
    )


def holder_of(thread_id: str | None) -> str:
    """What stands for a thread, or for a pin by hand, among the pins."""
    return BY_HAND if thread_id is None else "t" + escape(check_id(thread_id, "thread_id"))


# resolve, describe ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A pointer that is there, and the chunks of its value that came along, as they are stored."""

    scope: PointerScope
    pointer: Pointer
    manifest: Manifest
    here: dict[int, bytes | None] = field(default_factory=dict)

    def chunks(self, numbers: Sequence[int]) -> Steps[list[bytes]]:
        """Some chunks as they were offloaded, checksums verified.

        Raises:
            CorruptRecordError: one is gone, or is not what was stored.
            PointerNotFoundError, PointerExpiredError: the pointer was deleted meanwhile.

        Redis: 1 round trip (MGET); none for those that are here.
        """
        stored = {at: self.here[at] for at in numbers if at in self.here}
        missing = [at for at in numbers if at not in stored]
        if missing:
            (found,) = yield Batch((("MGET", *(self.scope.keys.chunk(self.manifest.host, at) for at in missing)),))
            stored.update(zip(missing, found, strict=True))
        if None in stored.values():
            # Deleted a moment ago, or lost: who asks again is told which.
            yield from open_id(self.scope, self.pointer.id)
        return [self.manifest.open(at, stored[at], self.pointer.id) for at in numbers]

    def all_chunks(self) -> Steps[list[bytes]]:
        """All of them. Redis: 1 round trip per batch; none where all came along."""
        chunks: list[bytes] = []
        if len(self.here) == self.manifest.chunks and None not in self.here.values():
            return [self.manifest.open(at, stored, self.pointer.id) for at, stored in sorted(self.here.items())]
        for batch in self.manifest.batches(0, self.manifest.chunks, self.scope.settings.batch_bytes):
            chunks += yield from self.chunks(batch)
        return chunks

    def value(self) -> Steps[Any]:
        """The value itself."""
        chunks = yield from self.all_chunks()
        if self.pointer.kind == "json" and self.manifest.total(3) and len(chunks) > 1:
            parts: list[Any] = []
            yield Compute(decode_slices(chunks, parts))
            return parts[0]
        return decode(self.pointer.kind, chunks)


def open_pointer(scope: PointerScope, pointer: str | Pointer, *, prefetch: bool = False) -> Steps[Opened]:
    """Look a pointer up, within the scope and nowhere else.

    Args:
        prefetch: bring the first batch of chunks along. They lie under the pointer's own id unless an equal value was
            there before it.

    Raises:
        PointerNotFoundError: no such pointer, or not of this scope: the same commands, the same words.
        PointerExpiredError: it was, and its time is over.

    Redis: 1 round trip, of plain commands.
    """
    return (yield from open_id(scope, id_of(pointer), prefetch=prefetch))


def open_id(scope: PointerScope, pointer_id: str, *, prefetch: bool = False) -> Steps[Opened]:
    """As `open_pointer`, also for the ids that a saver gives to what it moves out of threads."""
    ahead = range(-(-scope.settings.batch_bytes // scope.settings.chunk_bytes)) if prefetch else range(0)
    beside = [("MGET", *(scope.keys.chunk(pointer_id, at) for at in ahead))] if prefetch else []
    opened, replies = yield from look_up(scope, pointer_id, beside)
    if prefetch and opened.manifest.host == pointer_id:
        opened.here.update(zip(range(opened.manifest.chunks), replies[0], strict=False))
    return opened


def look_up(scope: PointerScope, pointer_id: str, beside: Sequence[Command]) -> Steps[tuple[Opened, list[Any]]]:
    """What `open_pointer` does, and the replies to some commands that went along in the hope that they are right."""
    keys = scope.keys
    # No function: Lua would take longer than all of it. What changes in between can only be what ends it.
    found, clock, pins, *replies = yield Batch(
        (
            ("HMGET", keys.records, "v", f"r{pointer_id}", f"o{pointer_id}"),
            ("TIME",),
            ("ZRANGEBYLEX", keys.pins, f"[u{pointer_id}\0", f"(u{pointer_id}\1", "LIMIT", 0, 1),
            *beside,
        )
    )
    version, raw, tombstone = found
    if version is not None and int(version) > LAYOUT_VERSION:
        raise NewerLayoutError(
            f"pointers are stored in layout {int(version)}, this program knows up to {LAYOUT_VERSION}: upgrade rtmem"
        )
    if raw is None:
        raise not_found(pointer_id) if tombstone is None else expired(pointer_id)
    record = Record.unpack(raw)
    if not pins and record.expires_at_ms <= int(clock[0]) * 1000 + int(clock[1]) // 1000:
        raise expired(pointer_id)
    manifest = Manifest.unpack(record.rest)
    told = pointer_of(pointer_id, record, record.rest[manifest.size :])
    return Opened(scope, told, manifest), replies


def pointer_of(pointer_id: str, record: Record, info: bytes) -> Pointer:
    """A pointer from its record."""
    try:
        told = _decode_info(info)
    except msgspec.DecodeError as exc:
        raise corrupt(pointer_id, f"its record does not decode: {exc}") from exc
    return msgspec.structs.replace(told, created_at_ms=record.created_at_ms, expires_at_ms=record.expires_at_ms)


def resolve(scope: PointerScope, pointer: str | Pointer) -> Steps[Any]:
    """The value of a pointer, of the type it had. Every chunk is verified against its checksum.

    Raises:
        PointerNotFoundError, PointerExpiredError, CorruptRecordError.

    Redis: 1 round trip up to `batch_bytes` and 1 more per batch; 1 more where the value was first another pointer's.
    """
    opened = yield from open_pointer(scope, pointer, prefetch=True)
    return (yield from opened.value())


def describe(scope: PointerScope, pointer: str | Pointer) -> Steps[Pointer]:
    """What is known of a value without reading it. Raises as `resolve`. Redis: 1 round trip."""
    return (yield from open_pointer(scope, pointer)).pointer


# list, usage ---------------------------------------------------------------------------------------------------------


def list_page(
    scope: PointerScope, thread_id: str | None = None, *, limit: int = 20, continuation: str = ""
) -> Steps[PointerPage]:
    """Some living pointers, newest first; those that a thread pins in the order of their ids.

    Redis: 1 round trip, FCALL_RO rtmem_v2_pointers_list. A page may be short and still have a continuation.
    """
    if type(limit) is not int or not 1 <= limit <= _PAGE_MAX:
        raise InvalidRequestError(f"limit: from 1 to {_PAGE_MAX} pointers a page")
    thread = "" if thread_id is None else holder_of(thread_id)[1:]
    if continuation != "" and not (
        type(continuation) is str and re.fullmatch(r"([0-9]{13})?m[cp]_[a-z2-7]{26}", continuation)
    ):
        raise QueryError("this continuation is none of `list`: leave it out to begin anew")
    reply = yield from call(
        "rtmem_v2_pointers_list",
        scope.keys.all,
        ("thread" if thread_id is not None else "all", thread, continuation, limit),
        read_only=True,
    )
    records = [(raw_id.decode(), Record.unpack(raw)) for raw_id, raw in zip(reply[1::2], reply[2::2], strict=True)]
    return PointerPage(
        pointers=tuple(pointer_of(pointer_id, record, record.rest) for pointer_id, record in records),
        continuation=reply[0].decode(),
    )


def usage(scope: PointerScope) -> Steps[PointerUsage]:
    """What the pointers of a scope take. Redis: 1 round trip."""
    (sums, pointers) = yield Batch(
        (("HMGET", scope.keys.records, "bytes", "values", "uploading"), ("ZCARD", scope.keys.ids))
    )
    stored, values, uploading = (int(number or 0) for number in sums)
    return PointerUsage(
        pointers=pointers,
        values=values,
        bytes=stored,
        bytes_max=scope.settings.tenant_bytes_max,
        uploading_bytes=uploading,
    )
