"""What is stored of one thread, and whether it is in order. Changes nothing; `rtmem doctor threads` prints it."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any
from uuid import UUID

from rtmem.keys import LAYOUT_VERSION
from rtmem.operations.functions import call
from rtmem.operations.offloading import id_in, is_reference, missing_of, pinned
from rtmem.operations.places import Place, Scope, decode_id, split_member, thread_place
from rtmem.operations.sharing import numbers_of
from rtmem.steps import Batch, Steps

_FIELDS_PER_CALL = 200
_INDEX_PAGE = 1_000
_THREADS_PAGE = 100


@dataclass(slots=True)
class ThreadReport:
    """One thread, counted and checked.

    Every problem is one sentence that names what is wrong; a thread in order has none. What waits to be freed, and
    writes whose checkpoint is still to come, are counted and no problem.
    """

    thread_id: str
    layout: int = 0
    solely_shallow: bool = False
    checkpoints: dict[str, int] = field(default_factory=dict)  # per namespace
    pieces: int = 0
    references: int = 0  # from checkpoints to pieces; without sharing there would be as many pieces
    piece_bytes: int = 0
    record_bytes: int = 0
    writes_bytes: int = 0
    early: int = 0  # checkpoints that have writes and are not there yet
    garbage: int = 0  # pieces that wait for a sweep
    offloaded: int = 0  # values that lie at pointers
    unneeded: int = 0  # pointers that are pinned for values of this thread and wait for `rtmem pointers sweep`
    sweep: str = ""  # phase of a sweep that is under way
    ttl_ms: int = -1  # -1: stays
    problems: list[str] = field(default_factory=list)

    @property
    def shared_ratio(self) -> float:
        """Which part of the references is to a piece that another one refers to as well."""
        return 1 - self.pieces / self.references if self.references > self.pieces else 0.0

    @property
    def exists(self) -> bool:
        """Whether there is anything of this thread."""
        return bool(self.layout or self.checkpoints or self.pieces or self.record_bytes or self.writes_bytes)


@dataclass(frozen=True, slots=True)
class ThreadLine:
    """One thread in a list of many."""

    thread_id: str
    principal: str
    checkpoints: int  # of all namespaces
    newest_id: str  # of its newest checkpoint
    written_ms: int | None  # when that was made, Unix time; None if its id does not tell (LangGraph's do: UUID 6)


def newest_threads(scope: Scope, limit: int) -> Steps[tuple[list[ThreadLine], int]]:
    """The threads of a principal whose newest checkpoint is newest, that first, and how many threads there are.

    Redis: 2 round trips per 100 threads of the principal: the index of threads is ordered by name.
    """
    newest: list[ThreadLine] = []
    cursor, total = b"-", 0
    while True:
        index = scope.keys.threads(scope.principal)
        (raw,) = yield Batch((("ZRANGEBYLEX", index, cursor, "+", "LIMIT", 0, _THREADS_PAGE),))
        names = [decode_id(name) for name in raw]
        keys = [scope.keys.thread(scope.principal, name).index for name in names]
        found = yield Batch(tuple(look for key in keys for look in (("ZCARD", key), ("ZRANGE", key, -1, -1))))
        for name, count, last in zip(names, found[::2], found[1::2], strict=True):
            if last:  # else it has expired, or only pending writes are there
                checkpoint_id, _ = split_member(last[0])
                newest.append(ThreadLine(name, scope.principal, count, checkpoint_id, _made_ms(checkpoint_id)))
                total += 1
        newest = nlargest(limit, newest, key=lambda line: line.newest_id)
        if len(raw) < _THREADS_PAGE:
            return newest, total
        cursor = b"(" + raw[-1]


def _made_ms(checkpoint_id: str) -> int | None:
    """When a UUID 6 was made, Unix time. Source: RFC 9562, 5.6: 60 bits of 100 ns since 1582-10-15."""
    try:
        number = UUID(checkpoint_id)
    except ValueError:
        return None
    if number.version != 6:
        return None
    ticks = number.int >> 80 << 12 | number.int >> 64 & 0xFFF
    return (ticks - 0x01B21DD213814000) // 10_000


def inspect_thread(scope: Scope, thread_id: str) -> Steps[ThreadReport]:
    """Count and check everything of one thread.

    A thread that is written meanwhile may look wrong in passing; what looks wrong is looked at a second time, and
    only what is still so is a problem.

    Redis: 1 round trip per 200 fields of the thread's hash, per 1,000 checkpoints and per 100 pins, 2 per 100 values
        that lie at pointers; twice if something is wrong.
    """
    place = thread_place(scope, thread_id)
    report = yield from _inspect(scope, place)
    if report.problems:
        seen = set(report.problems)
        report = yield from _inspect(scope, place)
        report.problems = [problem for problem in report.problems if problem in seen]
    return report


@dataclass(slots=True)
class _Fields:
    """The hash of a thread, sorted by what its fields are."""

    single: dict[bytes, Any] = field(default_factory=dict)  # v n e f g s x m y
    heads: dict[bytes, bytes] = field(default_factory=dict)  # namespace -> member
    records: dict[bytes, list[bytes] | None] = field(default_factory=dict)  # member -> parent, ranges, run_id
    tasks: dict[bytes, list[bytes] | None] = field(default_factory=dict)  # member -> stamp, task ids
    writes: set[bytes] = field(default_factory=set)  # member NUL task id
    pieces: dict[int, int] = field(default_factory=dict)  # number -> bytes
    references: dict[str, bytes] = field(default_factory=dict)  # pointer -> the piece, or w, that refers to it
    holders: dict[str, bytes] = field(default_factory=dict)  # the same, as it is stored in the fields o
    strange: list[bytes] = field(default_factory=list)


def _inspect(scope: Scope, place: Place) -> Steps[ThreadReport]:
    report, fields = ThreadReport(place.thread_id), _Fields()
    cursor = b"0"
    while True:
        reply = yield from call("rtmem_v2_checkpoint_inspect", place.function_keys, (cursor, _FIELDS_PER_CALL))
        for at in range(1, len(reply), 3):
            _sort(fields, report, reply[at], reply[at + 1], reply[at + 2])
        cursor = reply[0]
        if cursor == b"0":
            break
    index = yield from _read_index(place)
    hash_ttl_ms, index_ttl_ms = yield Batch(
        (("PTTL", place.keys.checkpoints), ("PTTL", place.keys.index)),
    )
    if index and (hash_ttl_ms < 0) != (index_ttl_ms < 0):
        report.problems.append(f"only one of its two keys expires: the {'hash' if index_ttl_ms < 0 else 'index'}")
    report.ttl_ms = max(-1, hash_ttl_ms)
    _judge(fields, index, report)
    yield from _judge_pointers(scope, place, fields, report)
    return report


def _judge_pointers(scope: Scope, place: Place, fields: _Fields, report: ThreadReport) -> Steps[None]:
    """What lies at pointers: is it there, whole and pinned; and what is pinned without need."""
    report.offloaded = len(fields.references)
    for pointer in sorted(fields.references.keys() | fields.holders.keys()):
        found, noted = fields.references.get(pointer), fields.holders.get(pointer)
        if found != noted:
            report.problems.append(f"pointer {pointer} is referred to by {found!r}, and {noted!r} is noted for it")
    pins = yield from pinned(scope, place)
    report.unneeded = len(pins - fields.references.keys())
    live = {number for record in fields.records.values() if record for number in numbers_of(record[1])}
    # What waits for a sweep may lead to nothing: the thread was deleted in the middle of a put, and begun anew by it.
    needed = sorted(pointer for pointer, by in fields.references.items() if by == b"w" or int(by) in live)
    report.problems += [f"pointer {pointer} is not pinned" for pointer in needed if pointer not in pins]
    report.problems += yield from missing_of(scope, needed)


def _read_index(place: Place) -> Steps[list[bytes]]:
    members: list[bytes] = []
    cursor = b"-"
    while True:
        (page,) = yield Batch((("ZRANGEBYLEX", place.keys.index, cursor, "+", "LIMIT", 0, _INDEX_PAGE),))
        members += page
        if len(page) < _INDEX_PAGE:
            return members
        cursor = b"(" + page[-1]


def _sort(fields: _Fields, report: ThreadReport, name: bytes, size_bytes: int, detail: Any) -> None:
    kind, rest = name[:1], name[1:]
    if name.isdigit():
        fields.pieces[int(name)] = size_bytes
        if is_reference(detail):
            fields.references[id_in(detail)] = name
    elif kind == b"c":
        fields.records[rest] = detail
        report.record_bytes += size_bytes
    elif kind == b"t":
        fields.tasks[rest] = detail
        report.writes_bytes += size_bytes
    elif kind == b"w":
        fields.writes.add(rest)
        fields.references.update((id_in(reference), b"w") for reference in detail)
        report.writes_bytes += size_bytes
    elif kind == b"h":
        fields.heads[rest] = detail
    elif kind == b"o":
        fields.holders[rest.decode()] = detail
    elif name in (b"v", b"n", b"e", b"f", b"g", b"s", b"x", b"m", b"y"):
        fields.single[name] = detail
    else:
        fields.strange.append(name)


def _judge(fields: _Fields, index: list[bytes], report: ThreadReport) -> None:
    report.layout = int(fields.single.get(b"v", 0))
    report.solely_shallow = b"s" in fields.single
    if report.layout > LAYOUT_VERSION:
        report.problems.append(f"layout {report.layout} is newer than this rtmem knows ({LAYOUT_VERSION}): upgrade")
        return
    if fields.records and not report.layout:
        report.problems.append("there are checkpoints, and no layout version")
    report.problems += [f"field {name!r} is none of this layout" for name in fields.strange]
    _judge_records(fields, index, report)
    _judge_pieces(fields, report)
    _judge_writes(fields, report)


def _judge_records(fields: _Fields, index: list[bytes], report: ThreadReport) -> None:
    problems = report.problems
    problems += [f"the index lists {_name(m)}, which has no record" for m in index if m not in fields.records]
    listed = set(index)
    problems += [f"{_name(m)} has a record and is not in the index" for m in fields.records if m not in listed]
    problems += [f"the record of {_name(m)} does not decode" for m, record in fields.records.items() if not record]
    latest: dict[bytes, bytes] = {}
    for member in sorted(fields.records):
        ns = member.partition(b"\0")[2]
        latest[ns] = member
        report.checkpoints[decode_id(ns)] = report.checkpoints.get(decode_id(ns), 0) + 1
    for ns in latest.keys() | fields.heads.keys():
        head, newest = fields.heads.get(ns), latest.get(ns)
        if head != newest:
            problems.append(
                f"namespace {decode_id(ns)!r} names {_name(head)} as its latest checkpoint, which is {_name(newest)}"
            )
    if report.solely_shallow:
        problems += [
            f"namespace {ns!r} has {count} checkpoints, though only shallow savers wrote there"
            for ns, count in report.checkpoints.items()
            if count > 1
        ]


def _judge_pieces(fields: _Fields, report: ThreadReport) -> None:
    report.pieces, report.piece_bytes = len(fields.pieces), sum(fields.pieces.values())
    live: set[int] = set()
    for member, record in fields.records.items():
        numbers = set(numbers_of(record[1])) if record else set()
        report.references += len(numbers)
        live |= numbers
        if gone := sorted(numbers - fields.pieces.keys()):
            report.problems.append(f"{_name(member)} refers to pieces that are gone: {_some(gone)}")
    waiting = set(numbers_of(fields.single.get(b"x", b"")))
    sweep = fields.single.get(b"m")
    if sweep:
        report.sweep = sweep[0].decode()
        waiting |= set(numbers_of(sweep[3]))
    unused = fields.pieces.keys() - live
    report.garbage = len(unused & waiting)
    if orphans := sorted(unused - waiting):
        report.problems.append(f"nothing refers to pieces {_some(orphans)}, and no sweep will free them")
    highest = max((number for number in fields.pieces if number < 2**51), default=0)
    if highest >= int(fields.single.get(b"n", b"1")):
        report.problems.append(f"piece {highest} is there, and the next one would get a number up to it")


def _judge_writes(fields: _Fields, report: ThreadReport) -> None:
    early = set(fields.single.get(b"e") or ())
    report.early = len(early)
    known = set()
    for member, tasks in fields.tasks.items():
        if tasks is None:
            report.problems.append(f"the list of tasks of {_name(member)} does not decode")
            continue
        known |= {member + b"\0" + task for task in tasks[1:]}
        if member not in fields.records and member not in early:
            report.problems.append(f"there are writes of {_name(member)}, which is not there")
    for name in sorted(fields.writes - known):
        report.problems.append(f"the writes {name!r} belong to no list of tasks")
    for name in sorted(known - fields.writes):
        report.problems.append(f"the writes {name!r} are gone")
    for member in early & fields.records.keys():
        report.problems.append(f"{_name(member)} is there, and counts as still to come")


def _name(member: bytes | None) -> str:
    if member is None:
        return "none"
    checkpoint_id, ns = split_member(member)
    return f"checkpoint {checkpoint_id!r}" + (f" of namespace {ns!r}" if ns else "")


def _some(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
