"""Offload a value: cut and encoded, stored in one round trip or in batches, and named.

What lies in Redis, and what each step does there, is told in `lua/pointers_v2.lua`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rtmem.errors import (
    InvalidRequestError,
    PersistenceError,
    QuotaExceededError,
    RunInProgressError,
    ServerFullError,
)
from rtmem.operations.functions import call, calls
from rtmem.operations.pointer_chunks import pack_manifest
from rtmem.operations.pointer_previews import cut, cut_with_mark, estimate_tokens, preview, printable
from rtmem.operations.pointer_values import CUT_BY_US, Encoded
from rtmem.operations.pointers import PointerScope, holder_of, new_id
from rtmem.records import Pointer
from rtmem.steps import Argument, Command, Compute, Steps

_NAME_CHARACTERS_MAX: Final = 200
_AT_ONCE_MAX: Final = 64 * 1024  # characters or bytes that are encoded in well under a millisecond
_WINDOW_BYTES: Final = 256 * 1024
"""What a large upload has under way at a time: what others wait behind.

20 MB take 30 ms so, and 24 with 1 MB at a time; the p99 of others' GETs is 1.2 and up to 2.0 times that of an idle
server, with processors enough for all.
"""

_ATTEMPTS_MAX: Final = 5
TTL_MS_MAX: Final = 100 * 365 * 86_400_000  # a century: all times stay whole numbers in a double, as Lua has them
_TOKEN: Final = r"[\w!#$%&'*+.^`|~-]+"  # RFC 9110
_MEDIA_TYPE: Final = re.compile(rf"(?=.{{1,200}}$){_TOKEN}/{_TOKEN}( *;[ -~]*)?", re.ASCII)
_encode_info: Final = msgspec.msgpack.Encoder().encode


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
    if ttl_ms is not None and (type(ttl_ms) is not int or not 0 < ttl_ms <= TTL_MS_MAX):
        raise InvalidRequestError(f"ttl_ms is {_shown(ttl_ms)}: from 1 to {TTL_MS_MAX} milliseconds, or None")
    if type(name or "") is not str:
        raise InvalidRequestError(f"name is {_shown(name)}: text, or None")
    if media_type and not (type(media_type) is str and _MEDIA_TYPE.fullmatch(media_type)):
        # It is told to models, and is a header where the gateway gives the value out.
        raise InvalidRequestError(
            f"media_type is {_shown(media_type)}: one such as 'text/csv', of at most 200 characters"
        )
    lifetime_ms = ttl_ms if ttl_ms is not None else min(settings.ttl_ms, TTL_MS_MAX) if thread_id is None else 0
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
        upload = _Upload(scope, told, new_id(prefix), encoded, lifetime_ms, holder)
        replies = yield from (upload.small() if encoded.stored_bytes <= settings.batch_bytes else upload.large())
        reply = replies[-1]
        if reply[0] == b"ok":
            pointer = upload.pointer
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
    )


@dataclass(slots=True)
class _Upload:
    """Both ways answer replies, of which the last is that of the last function."""

    scope: PointerScope
    told: Pointer
    pointer_id: str
    encoded: Encoded
    lifetime_ms: int
    holder: str

    @property
    def pointer(self) -> Pointer:
        """What its record says, once the value is sealed."""
        return msgspec.structs.replace(self.told, id=self.pointer_id, hash=self.encoded.hash.hex())

    def small(self) -> Steps[list[Any]]:
        """All in one round trip."""
        if len(self.encoded.chunks) > 1:
            return calls(_Sealing(self), lane="large")
        for _ in self.encoded.seal():
            pass
        return self._commit("new", range(len(self.encoded.chunks)))

    def large(self) -> Steps[list[Any]]:
        """Room first, then the chunks in batches of which none holds the server, then what makes them visible."""
        settings, keys, pointer_id = self.scope.settings, self.scope.keys.all, self.pointer_id
        yield Compute(self.encoded.seal())
        claim: list[Argument] = [
            pointer_id,
            self.encoded.key,
            len(self.encoded.chunks),
            self.encoded.stored_bytes,
            settings.tenant_bytes_max,
            settings.upload_ttl_ms,
        ]
        try:
            begun: list[Any] = yield from call("rtmem_v2_pointers_begin", keys, claim)
            if begun[0] == b"have":
                return (yield from self._commit("link", range(0)))
            if begun[0] == b"quota":
                return [begun]
            *batches, last = self._batches(min(settings.batch_bytes, _WINDOW_BYTES))
            for batch in batches:
                part, sets = (pointer_id, batch.start, batch.stop), [self.chunk(at) for at in batch]
                kept = yield from call("rtmem_v2_pointers_settle", keys, part, ahead=sets, lane="large")
                if not kept:
                    return [[b"late"]]
            return (yield from self._commit("claimed", last))
        except GeneratorExit:
            raise
        except BaseException as exc:
            # Refused, or given up by the caller: nobody shall wait for the room that was claimed. Where Redis cannot
            # be reached, a sweep frees it.
            if isinstance(exc, ServerFullError | PersistenceError) or not isinstance(exc, Exception):
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

    def _commit(self, mode: str, brought: range) -> Steps[list[Any]]:
        return calls((*[self.chunk(at) for at in brought], self.commit(mode, brought)))

    def chunk(self, at: int) -> Command:
        """The command that brings a chunk."""
        # By plain commands: what goes through Lua is hashed there, 2 ms per MB during which the server does nothing
        # else. With a time to live, which the function takes away: nothing that is broken off stays for ever.
        keys, ttl_ms = self.scope.keys, 2 * self.scope.settings.upload_ttl_ms
        return ("SET", keys.chunk(self.pointer_id, at), self.encoded.chunks[at], "PX", ttl_ms)

    def commit(self, mode: str, brought: range) -> Command:
        """The command that makes the value visible, with the chunks that came before it."""
        settings, keys = self.scope.settings, self.scope.keys.all
        return (
            "FCALL",
            "rtmem_v2_pointers_commit",
            len(keys),
            *keys,
            mode,
            self.pointer_id,
            self.encoded.key,
            _encode_info(self.pointer),
            self.lifetime_ms,
            self.holder,
            settings.grace_ms,
            settings.tenant_bytes_max,
            b"" if mode == "link" else pack_manifest(self.pointer_id, self.encoded),
            brought.start,
        )


@dataclass(frozen=True, slots=True)
class _Sealing(Sequence[Command]):
    """All chunks of a value and what makes them visible, hashed while they are sent.

    Redis reads a chunk while the one before it is hashed: awaiting, 1 MB takes 1.23 ms instead of 1.48. Blocking it
    hardly matters, because there the client has more to do than Redis.
    """

    upload: _Upload

    def __len__(self) -> int:
        return len(self.upload.encoded.chunks) + 1

    def __getitem__(self, at: Any) -> Any:
        chunks = len(self) - 1
        if at > chunks:
            raise IndexError(at)
        for _ in self.upload.encoded.seal(at):
            pass
        return self.upload.chunk(at) if at < chunks else self.upload.commit("new", range(chunks))
