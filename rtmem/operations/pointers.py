"""Offload a value and read it back: whole, described, listed. `pointer_reading.py` looks into it.

What lies in Redis, and what each step does there, is told in `lua/pointers_v2.lua`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rtmem import settings as all_settings
from rtmem.errors import (
    InvalidRequestError,
    NewerLayoutError,
    PersistenceError,
    PointerExpiredError,
    PointerNotFoundError,
    QueryError,
    QuotaExceededError,
    RunInProgressError,
    ServerFullError,
)
from rtmem.keys import LAYOUT_VERSION, Keys, PointerKeys, check_id, escape
from rtmem.operations.functions import call, call_with
from rtmem.operations.pointer_chunks import Manifest, Record, corrupt, pack_manifest
from rtmem.operations.pointer_previews import cut, cut_with_mark, estimate_tokens, preview, printable
from rtmem.operations.pointer_values import CUT_BY_US, Encoded, decode, decode_slices
from rtmem.records import Pointer, PointerPage, PointerUsage
from rtmem.steps import Argument, Batch, Command, Compute, Steps

ID: Final = re.compile(r"mp_[a-z2-7]{26}")
BY_HAND: Final = "m"
"""The holder of a pin that no thread holds."""

_BASE32: Final = b"abcdefghijklmnopqrstuvwxyz234567" * 8  # for each of 256 bytes
_NAME_CHARACTERS_MAX: Final = 200
_AT_ONCE_MAX: Final = 64 * 1024  # characters or bytes that are encoded in well under a millisecond
_WINDOW_BYTES: Final = 256 * 1024
"""What a large upload has under way at a time: what others wait behind.

20 MB take 30 ms so, and 24 with 1 MB at a time; the p99 of others' GETs is 1.2 and up to 2.0 times that of an idle
server, with processors enough for all.
"""

_ATTEMPTS_MAX: Final = 5
_TTL_MS_MAX: Final = 100 * 365 * 86_400_000  # a century: all times stay whole numbers in a double, as Lua has them
_TOKEN: Final = r"[\w!#$%&'*+.^`|~-]+"  # RFC 9110
_MEDIA_TYPE: Final = re.compile(rf"(?=.{{1,200}}$){_TOKEN}/{_TOKEN}( *;[ -~]*)?", re.ASCII)
_PAGE_MAX: Final = 100
_encode_info: Final = msgspec.msgpack.Encoder().encode
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


# offload -------------------------------------------------------------------------------------------------------------


def offload(
    scope: PointerScope,
    value: Any,
    *,
    thread_id: str | None = None,
    ttl_ms: int | None = None,
    media_type: str | None = None,
    name: str | None = None,
) -> Steps[Pointer]:
    """Store a value once, and name it.

    Args:
        value: text, bytes, JSON, a table, or whatever LangGraph can keep in a checkpoint.
        thread_id: the pointer lives as long as this thread does.
        ttl_ms: or at least so long. With neither, `settings.ttl_ms`.
        media_type: instead of what the value looks like.
        name: for people and models, at most 200 characters; longer ones are cut.

    Raises:
        TooLargeError, QuotaExceededError: nothing was stored. InvalidRequestError: nothing can store this.
        ServerFullError, PersistenceError: nothing of it can be seen, and what had been written is freed.

    Redis: 1 round trip up to `batch_bytes`: SETs and FCALL rtmem_v2_pointers_commit. Larger: 1 that claims room, and 1
        per 256 KB; an equal value that is there already is not sent again (2).
    """
    settings = scope.settings
    if ttl_ms is not None and (type(ttl_ms) is not int or not 0 < ttl_ms <= _TTL_MS_MAX):
        raise InvalidRequestError(f"ttl_ms is {_shown(ttl_ms)}: from 1 to {_TTL_MS_MAX} milliseconds, or None")
    if type(name or "") is not str:
        raise InvalidRequestError(f"name is {_shown(name)}: text, or None")
    if media_type and not (type(media_type) is str and _MEDIA_TYPE.fullmatch(media_type)):
        # It is told to models, and is a header where the gateway gives the value out.
        raise InvalidRequestError(
            f"media_type is {_shown(media_type)}: one such as 'text/csv', of at most 200 characters"
        )
    lifetime_ms = ttl_ms if ttl_ms is not None else min(settings.ttl_ms, _TTL_MS_MAX) if thread_id is None else 0
    holder = "" if thread_id is None else holder_of(thread_id)
    encoded = Encoded(
        value,
        media_type or "",
        settings.chunk_bytes,
        settings.compress_bytes_min,
        settings.value_bytes_max,
    )
    if type(value) in (str, bytes) and len(value) <= _AT_ONCE_MAX:
        for _ in encoded.fill():
            pass
    else:
        # A table or an array is encoded by its library in one go, most of it without the GIL.
        yield Compute(encoded.fill(), apart=type(value) not in CUT_BY_US)
    told = _describe(encoded, printable(cut(name or "", _NAME_CHARACTERS_MAX)), settings.preview_characters_max)
    return (yield from store(scope, told, encoded, lifetime_ms=lifetime_ms, holder=holder))


def _shown(given: object) -> str:
    return cut_with_mark(repr(given), 40) if isinstance(given, (str, float)) else f"<{type(given).__name__}>"


def store(
    scope: PointerScope, told: Pointer, encoded: Encoded, *, lifetime_ms: int, holder: str, prefix: str = "mp_"
) -> Steps[Pointer]:
    """Store an encoded value under a new id that begins with `prefix`. Raises and takes what `offload` does."""
    settings = scope.settings
    for _ in range(_ATTEMPTS_MAX):
        pointer = msgspec.structs.replace(told, id=new_id(prefix))
        upload = _Upload(scope, pointer, encoded, lifetime_ms, holder)
        reply = (yield from (upload.small() if encoded.stored_bytes <= settings.batch_bytes else upload.large()))[0]
        if reply[0] == b"ok":
            return msgspec.structs.replace(pointer, created_at_ms=int(reply[1]), expires_at_ms=int(reply[2]))
        if reply[0] == b"quota":
            raise QuotaExceededError(
                f"a value of {encoded.stored_bytes} bytes does not fit: the pointers of this scope take "
                f"{int(reply[1])} of {settings.tenant_bytes_max} bytes; delete some, or raise tenant_bytes_max",
                used_bytes=int(reply[1]),
                bytes_max=settings.tenant_bytes_max,
            )
    raise RunInProgressError(
        f"a value of {encoded.stored_bytes} bytes could not be stored in {_ATTEMPTS_MAX} attempts: equal values were "
        "deleted, or the upload took longer than upload_ttl_ms, each time; try again"
    )


def _describe(encoded: Encoded, name: str, preview_characters_max: int) -> Pointer:
    lines = 0
    if encoded.kind in ("text", "json"):
        lines = encoded.line_ends + (encoded.last[-1:] not in (b"\n", b""))
    seen = preview(encoded.kind, encoded.media_type, encoded.value, preview_characters_max, lines)
    return Pointer(
        id="",
        kind=encoded.kind,
        media_type=encoded.media_type,
        bytes=encoded.bytes,
        tokens=estimate_tokens(encoded.kind, encoded.bytes),
        characters=encoded.characters,
        lines=lines,
        items=seen.items,
        shape=printable(seen.shape),
        head=printable(seen.head),
        tail=printable(seen.tail),
        name=name,
        hash=encoded.hash.hex(),
    )


@dataclass(slots=True)
class _Upload:
    """Both ways answer a list of one, what the last function replied."""

    scope: PointerScope
    pointer: Pointer
    encoded: Encoded
    lifetime_ms: int
    holder: str

    def small(self) -> Steps[list[Any]]:
        """All in one round trip."""
        return self._commit("new", range(len(self.encoded.chunks)))

    def large(self) -> Steps[list[Any]]:
        """Room first, then the chunks in batches of which none holds the server, then what makes them visible."""
        settings, keys, pointer_id = self.scope.settings, self.scope.keys.all, self.pointer.id
        claim: list[Argument] = [
            pointer_id,
            self.encoded.key,
            len(self.encoded.chunks),
            self.encoded.stored_bytes,
            settings.tenant_bytes_max,
            settings.upload_ttl_ms,
        ]
        begun: list[Any] = yield from call("rtmem_v2_pointers_begin", keys, claim)
        if begun[0] == b"have":
            return (yield from self._commit("link", range(0)))
        if begun[0] == b"quota":
            return [begun]
        try:
            *batches, last = self._batches(min(settings.batch_bytes, _WINDOW_BYTES))
            for batch in batches:
                part, sets = (pointer_id, batch.start, batch.stop), self._sets(batch)
                kept = yield from call("rtmem_v2_pointers_settle", keys, part, ahead=sets, lane="large")
                if not kept:
                    return [[b"late"]]
            return (yield from self._commit("claimed", last))
        except (ServerFullError, PersistenceError):
            yield from call("rtmem_v2_pointers_abandon", keys, (pointer_id,))
            raise

    def _batches(self, batch_bytes: int) -> Iterator[range]:
        begin = size = 0
        for number, chunk in enumerate(self.encoded.chunks):
            if size and size + len(chunk) > batch_bytes:
                yield range(begin, number)
                begin, size = number, 0
            size += len(chunk)
        yield range(begin, len(self.encoded.chunks))

    def _sets(self, numbers: range) -> tuple[Command, ...]:
        # By plain commands: what goes through Lua is hashed there, 2 ms per MB during which the server does nothing
        # else. With a time to live, which the function takes away: nothing that is broken off stays for ever.
        keys, chunks, ttl_ms = self.scope.keys, self.encoded.chunks, 2 * self.scope.settings.upload_ttl_ms
        return tuple([("SET", keys.chunk(self.pointer.id, at), chunks[at], "PX", ttl_ms) for at in numbers])

    def _commit(self, mode: str, brought: range) -> Steps[list[Any]]:
        settings = self.scope.settings
        manifest = b"" if mode == "link" else pack_manifest(self.pointer.id, self.encoded)
        args: list[Argument] = [
            mode,
            self.pointer.id,
            self.encoded.key,
            _encode_info(self.pointer),
            self.lifetime_ms,
            self.holder,
            settings.grace_ms,
            settings.tenant_bytes_max,
            manifest,
            brought.start,
        ]
        return call_with("rtmem_v2_pointers_commit", self.scope.keys.all, args, ahead=self._sets(brought))


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
        raise InvalidRequestError(f"limit is {limit!r}: from 1 to {_PAGE_MAX} pointers a page")
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
