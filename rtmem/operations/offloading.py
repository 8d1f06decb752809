"""Oversized values of checkpoints and pending writes: their bytes lie at pointers, in the thread lies a reference.

A *reference* is "@" and the id of a pointer, `mc_` and 26 characters: no verb of `rtmem.pointers` takes such an id, so
nobody deletes what a checkpoint needs. Each reference has a pointer of its own, which its thread pins; equal values of
a principal are stored once, however many pointers lead to them.

The order is what keeps them together: the value is stored and pinned before the checkpoint that refers to it can be
seen, and the pin goes after the last reference did. Where a program stops in between, a pinned pointer is left that
nothing refers to, and `pointer_lifetimes.sweep` finds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rtmem.errors import CorruptRecordError, PointerNotFoundError, RtmemError, StorageError
from rtmem.operations.functions import call, call_with
from rtmem.operations.places import Place, Scope, decode_id
from rtmem.operations.pointer_chunks import Manifest, Record
from rtmem.operations.pointer_lifetimes import scope_of
from rtmem.operations.pointer_uploads import store
from rtmem.operations.pointer_values import Encoded
from rtmem.operations.pointers import PointerScope, holder_of, new_id, open_id
from rtmem.records import Pointer
from rtmem.steps import Batch, Command, Compute, Steps

MEDIA_TYPE: Final = "application/vnd.rtmem.channel"

_PREFIX: Final = "mc_"
_ID_BYTES: Final = 29
_REFERENCE: Final = re.compile(rb"@mc_[a-z2-7]{26}")
_AT_ONCE: Final = 100


def reference_to(pointer_id: str) -> bytes:
    """What is stored in the place of a value."""
    return b"@" + pointer_id.encode()


def is_reference(stored: bytes | None) -> bool:
    """Whether this is one. No serialised value begins with "@"."""
    return stored is not None and len(stored) == 30 and _REFERENCE.fullmatch(stored) is not None


def id_in(reference: bytes) -> str:
    """The pointer that a reference leads to."""
    return reference[1:].decode()


def ids_in(joined: bytes) -> list[str]:
    """The ids that a function of checkpoints answers in one string."""
    return [joined[at : at + _ID_BYTES].decode() for at in range(0, len(joined), _ID_BYTES)]


# Writing -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Offloaded:
    key: bytes  # of the value
    pointer_id: str
    created_at_ms: int


@dataclass(slots=True)
class Offloads:
    """What one put or put_writes has moved out of its thread."""

    scope: Scope
    place: Place
    lost: bytes = b""
    """References in the thread whose pointers went with an earlier life of it; see `are_kept`."""
    _used: list[_Offloaded] = field(default_factory=list)
    _spare: list[_Offloaded] = field(default_factory=list)

    def store(self, stored: bytes) -> Steps[bytes]:
        """Store and pin a value; answers the reference to it.

        Raises:
            TooLargeError, QuotaExceededError: see operations.pointer_uploads.offload.

        Redis: 1 round trip up to `batch_bytes`, larger: 1 that claims room, and 1 per 256 KB; 2 if an equal value is
            there. None if it was stored for a put that was told "stale".
        """
        pointers = scope_of(self.scope)
        settings = pointers.settings
        encoded = Encoded(
            stored, MEDIA_TYPE, settings.chunk_bytes, settings.compress_bytes_min, settings.value_bytes_max
        )
        yield Compute(encoded.fill())
        if self._spare:
            yield Compute(encoded.seal())
        spare = next((one for one in self._spare if one.key == encoded.key), None)
        if spare is not None:
            self._spare.remove(spare)
        else:
            told = Pointer(id="", kind=encoded.kind, media_type=MEDIA_TYPE, bytes=encoded.bytes, tokens=0)
            holder = holder_of(self.place.thread_id)
            pointer = yield from store(pointers, told, encoded, lifetime_ms=0, holder=holder, prefix=_PREFIX)
            spare = _Offloaded(encoded.key, pointer.id, pointer.created_at_ms)
        self._used.append(spare)
        return reference_to(spare.pointer_id)

    def begin_again(self) -> None:
        """The put was refused because its base is not there any more; what it stored can be used once more."""
        self._spare += self._used
        self._used = []

    def settle(self, reply: list[bytes]) -> Steps[None]:
        """The function has answered: free what it did not take, and what the thread does not need any more.

        Redis: none, or 1 round trip.
        """
        if reply[0] in (b"late", b"gone"):
            self.begin_again()
        # Both functions that can take something answer the ids behind "ok", before what `are_kept` looks at.
        unneeded = ids_in(reply[-2]) if reply[0] == b"ok" else []
        yield from release(self.scope, self.place, [*(one.pointer_id for one in self._spare), *unneeded])
        self._spare = []

    def give_up(self, error: RtmemError) -> Steps[None]:
        """The put failed. What it stored is freed if it is sure that nothing refers to it.

        A lost connection leaves that open: then the next sweep finds out.
        """
        if isinstance(error, StorageError):
            yield from self.settle([b"gone"])

    def are_kept(self, reply: list[bytes]) -> bool:
        """Whether what was stored is still pinned. A thread that is deleted in the middle of a put takes along what was
        pinned before, and begins anew with that put.

        If something is lost, all is stored once more. What is still pinned belongs to what the thread has now, and goes
        with it: a pointer that two pieces lead to would be freed with the first of them.
        """
        if reply[0] != b"ok" or not reply[-1]:
            return True
        lost = [one.pointer_id for one in self._used if one.created_at_ms <= int(reply[-1])]
        if lost:
            self.lost, self._used = b"".join(map(reference_to, lost)), []
        return not lost


def release(scope: Scope, place: Place, ids: Iterable[str]) -> Steps[None]:
    """The thread needs these pointers no more. Redis: 1 round trip per 100 of them."""
    pointers, holder, left = scope_of(scope), holder_of(place.thread_id), list(dict.fromkeys(ids))
    for at in range(0, len(left), _AT_ONCE):
        # Without a tombstone: nobody was ever told such an id.
        first, *rest = [(pointer_id, holder, "") for pointer_id in left[at : at + _AT_ONCE]]
        beside = [_command("rtmem_v2_pointers_unpin", pointers, args) for args in rest]
        yield from call("rtmem_v2_pointers_unpin", pointers.keys.all, first, beside=beside)


def clones(scope: Scope, target: Place, references: Iterable[bytes]) -> Steps[dict[bytes, bytes]]:
    """For each reference one of its own for the copy of a thread, pinned by it; left out where the value is gone.

    Redis: none, or 1 round trip.
    """
    pointers, holder = scope_of(scope), holder_of(target.thread_id)
    pairs = {reference: reference_to(new_id(_PREFIX)) for reference in references}
    if not pairs:
        return {}
    grace_ms = pointers.settings.grace_ms
    first, *rest = [(id_in(old), id_in(new), holder, grace_ms) for old, new in pairs.items()]
    beside = [_command("rtmem_v2_pointers_clone", pointers, args) for args in rest]
    made = yield from call_with("rtmem_v2_pointers_clone", pointers.keys.all, first, beside=beside)
    return {old: new for (old, new), reply in zip(pairs.items(), made, strict=True) if reply == 1}


def _command(name: str, pointers: PointerScope, args: Iterable[str | int]) -> Command:
    return ("FCALL", name, len(pointers.keys.all), *pointers.keys.all, *args)


# Reading -------------------------------------------------------------------------------------------------------------


def references_of_writes(flat: list[bytes]) -> dict[bytes, str]:
    """The references among pending writes, as a function answers them, each with what it is the value of."""
    return {
        flat[at]: f"what task {decode_id(flat[at - 4])!r} wrote to channel {flat[at - 1].decode()!r}"
        for at in range(4, len(flat), 5)
        if is_reference(flat[at])
    }


def with_values(flat: list[bytes], found: Mapping[bytes, bytes]) -> list[bytes]:
    """These writes with what was found in the places of references."""
    return [found.get(part, part) if at % 5 == 4 else part for at, part in enumerate(flat)] if found else flat


def read_writes(scope: Scope, place: Place, flat: list[bytes]) -> Steps[list[bytes] | None]:
    """Pending writes with what lies at pointers; None where something of it is gone. Redis: as `fetch`."""
    wanted = references_of_writes(flat)
    found = yield from fetch(scope, place, wanted)
    return with_values(flat, found) if len(found) == len(wanted) else None


def fetch(scope: Scope, place: Place, wanted: Mapping[bytes, str]) -> Steps[dict[bytes, bytes]]:
    """What these references lead to, every chunk verified against its checksum; left out where nothing is there.

    Args:
        wanted: reference -> what it is the value of, for errors.

    Raises:
        CorruptRecordError: a value is damaged.

    Redis: for each reference 1 round trip up to `batch_bytes` and 1 more per batch; 1 more where an equal value was
        there before it.
    """
    pointers = scope_of(scope)
    found: dict[bytes, bytes] = {}
    for reference, what in wanted.items():
        try:
            opened = yield from open_id(pointers, id_in(reference), prefetch=True)
            found[reference] = b"".join((yield from opened.all_chunks()))
        except PointerNotFoundError:
            continue
        except CorruptRecordError as exc:
            raise gone(place, what, reference, exc.message) from exc
    return found


def gone(place: Place, what: str, reference: bytes, why: str = "") -> CorruptRecordError:
    """The error for a reference that leads to nothing, or to something else."""
    pointer = id_in(reference)
    return CorruptRecordError(
        f"thread {place.thread_id!r}: {what} lies at pointer {pointer}, and {why or 'it is gone'}; run "
        "`rtmem doctor threads`, and go on from an earlier checkpoint or restore the server's data",
        thread_id=place.thread_id,
        what=what,
        pointer=pointer,
    )


# Inspecting ----------------------------------------------------------------------------------------------------------


def pinned(scope: Scope, place: Place) -> Steps[set[str]]:
    """The pointers that are pinned for values of a thread. Redis: 1 round trip per 100."""
    pointers, first = scope_of(scope), holder_of(place.thread_id) + "\0"
    found: set[str] = set()
    cursor = _PREFIX
    while True:
        page = ("ZRANGEBYLEX", pointers.keys.pins, f"[{first}{cursor}", f"({first}mc`", "LIMIT", 0, _AT_ONCE)
        (pins,) = yield Batch((page,))
        ids = [pin[len(first.encode()) :].decode() for pin in pins]
        found.update(ids)
        if len(ids) < _AT_ONCE:
            return found
        cursor = ids[-1] + "\0"


def missing_of(scope: Scope, ids: list[str]) -> Steps[list[str]]:
    """What is not there of these pointers and their values, in sentences. Redis: 2 round trips per 100."""
    pointers, problems = scope_of(scope), []
    for at in range(0, len(ids), _AT_ONCE):
        some = ids[at : at + _AT_ONCE]
        (records,) = yield Batch((("HMGET", pointers.keys.records, *(f"r{pointer_id}" for pointer_id in some)),))
        manifests = {}
        for pointer_id, raw in zip(some, records, strict=True):
            if raw is None:
                problems.append(f"pointer {pointer_id}, where a value of this thread lies, is gone")
            else:
                manifests[pointer_id] = Manifest.unpack(Record.unpack(raw).rest)
        if manifests:
            there = yield Batch(tuple(_exists(pointers, manifest) for manifest in manifests.values()))
            problems += [
                f"pointer {pointer_id}: {manifest.chunks - count} of {manifest.chunks} chunks are gone"
                for (pointer_id, manifest), count in zip(manifests.items(), there, strict=True)
                if count < manifest.chunks
            ]
    return problems


def _exists(pointers: PointerScope, manifest: Manifest) -> Command:
    return ("EXISTS", *(pointers.keys.chunk(manifest.host, number) for number in range(manifest.chunks)))
