"""Whether what is stored of a scope's pointers fits together. Reads everything and changes nothing.

Meant for a scope at rest: what is written while it reads may look like a finding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rtmem.operations.pointer_chunks import Manifest, Record
from rtmem.operations.pointers import PointerScope
from rtmem.records import PointerReport
from rtmem.steps import Batch, Steps

_COUNT = 500


@dataclass(slots=True)
class _Stored:
    """Everything, as it was found."""

    records: dict[str, Record] = field(default_factory=dict)
    record_bytes: int = 0
    manifests: dict[bytes, Manifest] = field(default_factory=dict)
    manifest_bytes: int = 0
    counts: dict[bytes, int] = field(default_factory=dict)
    claims: dict[str, tuple[int, int]] = field(default_factory=dict)  # chunks, bytes
    tombstones: set[str] = field(default_factory=set)
    sums: dict[str, int] = field(default_factory=dict)
    by_thread: set[tuple[str, str]] = field(default_factory=set)
    by_pointer: set[tuple[str, str]] = field(default_factory=set)
    due: dict[str, float] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    chunks: dict[tuple[str, int], bool] = field(default_factory=dict)  # whether it has a time to live


def inspect(scope: PointerScope) -> Steps[PointerReport]:
    """Compare records, values, chunks, pins and sums with each other. Meant for a scope at rest.

    Redis: 1 round trip per 500 fields, and a SCAN of the database for chunks that nothing leads to.
    """
    stored = _Stored()
    yield from _read_hash(scope, stored)
    yield from _read_sets(scope, stored)
    yield from _read_chunks(scope, stored)
    return PointerReport(
        pointers=len(stored.records),
        values=len(stored.manifests),
        bytes=stored.sums.get("bytes", 0),
        uploads=len(stored.claims),
        dangling=tuple(_dangling(stored)),
        orphans=tuple(_orphans(stored)),
    )


def _read_hash(scope: PointerScope, into: _Stored) -> Steps[None]:
    cursor = b"0"
    while True:
        ((cursor, flat),) = yield Batch((("HSCAN", scope.keys.records, cursor, "COUNT", _COUNT),))
        for name, value in zip(flat[::2], flat[1::2], strict=True):
            _take_field(name, value, into)
        if cursor == b"0":
            return


def _take_field(name: bytes, value: bytes, into: _Stored) -> None:
    kind, rest = name[:1], name[1:]
    if name in (b"bytes", b"values", b"uploading"):
        into.sums[name.decode()] = int(value)
    elif kind == b"r":
        into.records[rest.decode()] = Record.unpack(value)
        into.record_bytes += len(value)
    elif kind == b"b":
        into.manifests[rest] = Manifest.unpack(value)
        into.manifest_bytes += len(value) + into.manifests[rest].stored_bytes
    elif kind == b"n":
        into.counts[rest] = int(value)
    elif kind == b"k":
        chunks, size = value.split()
        into.claims[rest.decode()] = (int(chunks), int(size))
    elif kind == b"o":
        into.tombstones.add(rest.decode())


def _read_sets(scope: PointerScope, into: _Stored) -> Steps[None]:
    for member, _ in (yield from _scan_set(scope.keys.pins)):
        left, _, right = member[1:].decode().partition("\0")
        if member[:1] == b"t":
            into.by_thread.add((right, "t" + left))
        else:
            into.by_pointer.add((left, right))
    for member, score in (yield from _scan_set(scope.keys.due)):
        into.due[member.decode()] = float(score)
    for member, _ in (yield from _scan_set(scope.keys.ids)):
        into.listed.add(member.decode())


def _scan_set(key: str) -> Steps[list[tuple[bytes, Any]]]:
    found: dict[bytes, Any] = {}
    cursor = b"0"
    while True:
        ((cursor, flat),) = yield Batch((("ZSCAN", key, cursor, "COUNT", _COUNT),))
        found.update(zip(flat[::2], flat[1::2], strict=True))
        if cursor == b"0":
            return list(found.items())


def _read_chunks(scope: PointerScope, into: _Stored) -> Steps[None]:
    pattern = scope.all_keys.pointer_pattern(scope.principal, "c:*")
    keys: set[bytes] = set()
    cursor = b"0"
    while True:
        ((cursor, page),) = yield Batch((("SCAN", cursor, "MATCH", pattern, "COUNT", _COUNT),))
        keys.update(page)
        if cursor == b"0":
            break
    ordered = sorted(keys)
    for at in range(0, len(ordered), _COUNT):
        some = ordered[at : at + _COUNT]
        lives = yield Batch(tuple(("PTTL", key) for key in some))
        for key, ttl_ms in zip(some, lives, strict=True):
            host, _, number = key[len(scope.keys.chunks.encode()) :].decode().partition(":")
            into.chunks[host, int(number)] = ttl_ms >= 0


def _dangling(stored: _Stored) -> list[str]:
    """What leads to something that is gone."""
    found = [
        f"pointer {pointer_id} leads to no value"
        for pointer_id, record in stored.records.items()
        if record.key not in stored.manifests
    ]
    for manifest in stored.manifests.values():
        gone = [at for at in range(manifest.chunks) if stored.chunks.get((manifest.host, at)) is not False]
        if gone:
            found.append(f"value of {manifest.host}: {len(gone)} of {manifest.chunks} chunks are gone, or will be")
    found += [
        f"pin of {pointer_id}, which is gone" for pointer_id, _ in stored.by_pointer if pointer_id not in stored.records
    ]
    found += [f"list names {name[13:]}, which is gone" for name in stored.listed if name[13:] not in stored.records]
    return found


def _orphans(stored: _Stored) -> list[str]:
    """What nothing leads to, and sums that are not those of what is there."""
    found: list[str] = []
    counts: dict[bytes, int] = {}
    for record in stored.records.values():
        counts[record.key] = counts.get(record.key, 0) + 1
    for digest, manifest in stored.manifests.items():
        if counts.get(digest, 0) != stored.counts.get(digest):
            found.append(
                f"value of {manifest.host}: counted {stored.counts.get(digest)}, {counts.get(digest, 0)} lead to it"
            )
    hosts = {manifest.host: manifest.chunks for manifest in stored.manifests.values()}
    for (host, number), fleeting in stored.chunks.items():
        claimed = stored.claims.get(host, (0, 0))[0]
        if not fleeting and number >= max(hosts.get(host, 0), claimed):
            found.append(f"chunk {number} of {host}, which nothing leads to")
    threads = {(pointer_id, holder) for pointer_id, holder in stored.by_pointer if holder.startswith("t")}
    found += [f"pin {pin} goes one way only" for pin in sorted(threads ^ stored.by_thread)]
    found += [
        f"thread {holder[1:]} pins, and nobody looks after it"
        for _, holder in stored.by_thread
        if "q" + holder[1:] not in stored.due
    ]
    listed = {name[13:] for name in stored.listed}
    found += [f"pointer {pointer_id} is not listed" for pointer_id in stored.records if pointer_id not in listed]
    found += [
        f"tombstone {pointer_id} for ever" for pointer_id in stored.tombstones if "y" + pointer_id not in stored.due
    ]
    found += [f"upload {pointer_id} for ever" for pointer_id in stored.claims if "k" + pointer_id not in stored.due]
    expected = {
        "bytes": stored.record_bytes + stored.manifest_bytes,
        "values": len(stored.manifests),
        "uploading": sum(size for _, size in stored.claims.values()),
    }
    found += [
        f"{name} are {stored.sums.get(name, 0)}, should be {sum_}"
        for name, sum_ in expected.items()
        if stored.sums.get(name, 0) != sum_
    ]
    return found
