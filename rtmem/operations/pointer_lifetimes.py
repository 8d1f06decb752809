"""How long a pointer lives: pins, the fate of threads, deletion, and the sweep that frees what is over.

A pointer lives as long as one of its reasons does: a thread that pins it, a pin by hand, its own time to live. What is
over is not readable from that moment; its memory comes back when a sweep passes.
"""

from __future__ import annotations

from typing import Any, Final

from rtmem.keys import ThreadKeys, unescape
from rtmem.operations.functions import call
from rtmem.operations.places import Scope
from rtmem.operations.pointers import PointerScope, expired, holder_of, id_of, not_found
from rtmem.records import Pointer, SweepReport
from rtmem.steps import Batch, Command, Steps

_STEP: Final = 100  # things that are due, or pins, that one function call works off: a millisecond or two


def pin(scope: PointerScope, pointer: str | Pointer, thread_id: str | None = None) -> Steps[None]:
    """Let a pointer live as long as a thread does too; without a thread, until it is unpinned by hand.

    Raises:
        PointerNotFoundError, PointerExpiredError.

    Redis: 1 round trip.
    """
    pointer_id = id_of(pointer)
    args = (pointer_id, holder_of(thread_id), scope.settings.grace_ms)
    _check(pointer_id, (yield from call("rtmem_v2_pointers_pin", scope.keys.all, args)))


def unpin(scope: PointerScope, pointer: str | Pointer, thread_id: str | None = None) -> Steps[None]:
    """Take such a reason away. A pointer without any is gone. Raises as `pin`. Redis: 1 round trip."""
    pointer_id = id_of(pointer)
    args = (pointer_id, holder_of(thread_id), scope.settings.tombstone_ttl_ms)
    _check(pointer_id, (yield from call("rtmem_v2_pointers_unpin", scope.keys.all, args)))


def _check(pointer_id: str, reply: int) -> None:
    if reply == 0:
        raise not_found(pointer_id)
    if reply < 0:
        raise expired(pointer_id)


def delete(scope: PointerScope, pointer: str | Pointer) -> Steps[bool]:
    """End a pointer now, whatever pins it; False if there was none. Its value goes with the last pointer to it.

    Redis: 1 round trip; the memory is freed in the background.
    """
    reply = yield from call("rtmem_v2_pointers_delete", scope.keys.all, (id_of(pointer),))
    return bool(reply)


def scope_of(saver: Scope) -> PointerScope:
    """The pointers of the principal that a saver is bound to."""
    return PointerScope(saver.principal, saver.pointers, saver.keys)


# Threads -------------------------------------------------------------------------------------------------------------


def release_thread(scope: PointerScope, thread_id: str, gone_ms: int = 2**53, due: bytes = b"") -> Steps[None]:
    """A thread is gone: end its pins, and what nothing else keeps.

    Args:
        gone_ms: when it was; younger pointers belong to one of the same name that has begun since.
        due: only if nothing was pinned since the thread was due to be looked at, at this time.

    Redis: 1 round trip per 100 pins.
    """
    name, cursor = holder_of(thread_id)[1:], b""
    while True:
        args = (name, _STEP, scope.settings.tombstone_ttl_ms, due, gone_ms, cursor)
        cursor = yield from call("rtmem_v2_pointers_release", scope.keys.all, args)
        if not cursor:
            return
        due = b""


def pins_command(scope: PointerScope, thread_id: str) -> Command:
    """What asks whether a thread pins anything: a list of at most one."""
    first = holder_of(thread_id)
    return ("ZRANGEBYLEX", scope.keys.pins, f"[{first}\0", f"({first}\1", "LIMIT", 0, 1)


def copy_pins(scope: PointerScope, source_thread_id: str, target_thread_id: str) -> Steps[None]:
    """What a thread pins, its copy pins too. Redis: 1 round trip per 100 pins."""
    source, target = holder_of(source_thread_id)[1:], holder_of(target_thread_id)[1:]
    cursor = b""
    while True:
        args = (source, target, cursor, _STEP, scope.settings.grace_ms)
        cursor = yield from call("rtmem_v2_pointers_copy_pins", scope.keys.all, args)
        if not cursor:
            return


# sweep ---------------------------------------------------------------------------------------------------------------


def sweep(scope: PointerScope, *, steps_max: int = 1_000) -> Steps[SweepReport]:
    """Free what is over: pointers, tombstones, uploads that stopped half-way, pins of threads that are gone, and what a
    saver has moved out of a thread and does not refer to any more, because a program stopped in between.

    A thread is gone when it has no checkpoint, `grace_ms` after it pinned something. It can be broken off at any point
    and asked for again; several at once do no harm.

    Redis: 1 round trip per 100 things that are due; where threads are among them, 1 more for all of them, 1 for each,
        and 1 more per 100 values that a saver has moved out of it.
    """
    pointers = threads = uploads = 0
    for _ in range(steps_max):
        args = (_STEP, scope.settings.tombstone_ttl_ms)
        reply = yield from call("rtmem_v2_pointers_sweep", scope.keys.all, args)
        due = [(unescape(name.decode()), at) for name, at in zip(reply[4::2], reply[5::2], strict=True)]
        threads += yield from _look_at(scope, due, int(reply[3]))
        pointers += reply[0]
        uploads += reply[1]
        if not reply[2]:
            return SweepReport(expired=pointers, threads=threads, uploads=uploads)
    return SweepReport(expired=pointers, threads=threads, uploads=uploads, more=True)


def _look_at(scope: PointerScope, due: list[tuple[str, bytes]], now_ms: int) -> Steps[int]:
    """Let the threads that live keep their pins, and end those of the others; answers how many those were."""
    if not due:
        return 0
    keys = [scope.all_keys.thread(scope.principal, thread_id) for thread_id, _ in due]
    # The index, because a copy that was broken off leaves a thread without any checkpoint; and writes that have come
    # before their checkpoint.
    looks = [look for key in keys for look in (("EXISTS", key.index), ("HEXISTS", key.checkpoints, "e"))]
    found: list[Any] = yield Batch(tuple(looks))
    living = [there or early for there, early in zip(found[::2], found[1::2], strict=True)]
    for (thread_id, at), key, lives in zip(due, keys, living, strict=True):
        if lives:
            yield from _drop_unreferred(scope, thread_id, key, at)
            args = (holder_of(thread_id)[1:], at, scope.settings.grace_ms)
            yield from call("rtmem_v2_pointers_keep", scope.keys.all, args)
        else:
            # Unless something was pinned meanwhile: then the thread has begun anew.
            yield from release_thread(scope, thread_id, now_ms, at)
    return len(due) - sum(map(bool, living))


def _drop_unreferred(scope: PointerScope, thread_id: str, keys: ThreadKeys, at: bytes) -> Steps[None]:
    """End the pins of what a saver has moved out of a living thread, and the thread does not refer to.

    None of these pins is younger than `grace_ms`, or the thread would not be due: no put is about to refer to them.
    """
    first, cursor = holder_of(thread_id) + "\0", "mc_"
    while True:
        (pins,) = yield Batch(
            (("ZRANGEBYLEX", scope.keys.pins, f"[{first}{cursor}", f"({first}mc`", "LIMIT", 0, _STEP),)
        )
        ids = [pin[len(first.encode()) :].decode() for pin in pins]
        if not ids:
            return
        (held,) = yield Batch((("HMGET", keys.checkpoints, *("o" + pointer_id for pointer_id in ids)),))
        unreferred = [pointer_id for pointer_id, where in zip(ids, held, strict=True) if where is None]
        if unreferred:
            yield from call("rtmem_v2_pointers_drop", scope.keys.all, (holder_of(thread_id)[1:], at, *unreferred))
        if len(ids) < _STEP:
            return
        cursor = ids[-1] + "\0"
