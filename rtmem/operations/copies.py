"""Copying a thread, pieces still shared, in short steps."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from rtmem.errors import CorruptRecordError, RunInProgressError
from rtmem.operations.checkpoints import index_commands, sweep
from rtmem.operations.functions import call
from rtmem.operations.offloading import clones, id_in, ids_in, is_reference, release
from rtmem.operations.places import Place, Scope, decode_id, thread_place
from rtmem.operations.pointer_lifetimes import copy_pins, pins_command, scope_of
from rtmem.operations.sharing import LARGE_FIRST, numbers_of, runs
from rtmem.steps import Argument, Batch, Command, Steps

_COPY_SIZE = 20
_COPY_PIECES = 200
_COPY_ATTEMPTS_MAX = 10
_SHIFT_BITS = 36  # so that a copy of a copy, ten thousand times, still has numbers that are large ones


def copy_thread(scope: Scope, source_thread_id: str, target_thread_id: str) -> Steps[None]:
    """Copy every checkpoint and write of a thread to another, pieces still shared, parents intact.

    Checkpoints the target has already are overwritten. The copy is one of the checkpoints that were there when it
    began; it grows oldest first, so that what is there at any moment is complete.

    What the source pins of pointers, the target pins too.

    Redis: 3 round trips, then 2 per 20 checkpoints and 2 per 200 new pieces, 1 for new runs, and what `sweep` takes;
        2 more per 100 pointers that the source pins, and 1 more per 200 pieces and per 20 checkpoints where some of
        what they hold lies at pointers.
        All of it again if a sweep of the target (a prune, or a shallow saver that writes there) begins in between.

    Raises:
        RunInProgressError: the target was swept during 10 attempts.
    Source: BaseCheckpointSaver.copy_thread (langgraph-checkpoint 4.3).
    """
    source, target = thread_place(scope, source_thread_id), thread_place(scope, target_thread_id)
    if source.keys == target.keys:
        return
    for _ in range(_COPY_ATTEMPTS_MAX):
        if (yield from _copy(scope, source, target)):
            return
    raise RunInProgressError(
        f"thread {target_thread_id!r} was pruned or written again and again while {source_thread_id!r} was copied to "
        "it: copy to a thread that is at rest",
        thread_id=target_thread_id,
    )


def _copy(scope: Scope, source: Place, target: Place) -> Steps[bool]:
    """One attempt; False if it has to begin again."""
    pointers = scope_of(scope)
    (members, last, pins) = yield Batch(
        (
            ("ZRANGE", source.keys.index, 0, -1),
            ("HGET", source.keys.checkpoints, "n"),
            pins_command(pointers, source.thread_id),
        )
    )
    if not members:
        return True
    if pins:
        # Before the checkpoints that may carry them: what is there must not lead to nothing.
        yield from copy_pins(pointers, source.thread_id, target.thread_id)
    ttl_ms = scope.settings.ttl_ms
    first, epoch = yield from call(
        "rtmem_v2_checkpoint_reserve", target.function_keys, (int(last or 1), ttl_ms, os.urandom(8))
    )
    job = _Copy(scope, source, target, int(first), random.getrandbits(_SHIFT_BITS), epoch, ttl_ms)
    for at in range(0, len(members), _COPY_SIZE):
        if not (yield from job.copy(members[at : at + _COPY_SIZE])):
            return False
    indexes = (command for command, _ in index_commands(scope, target, ""))
    pins, *_ = yield Batch((pins_command(pointers, source.thread_id), *indexes))
    if pins:
        # Once more: what was written to the source meanwhile may have been copied too.
        yield from copy_pins(pointers, source.thread_id, target.thread_id)
    scope.heads.forget_thread(target.keys.checkpoints)
    # What was reserved counts as trash until it has been seen that checkpoints refer to it.
    yield from sweep(scope, target)
    return True


@dataclass(slots=True)
class _Copy:
    scope: Scope
    source: Place
    target: Place
    shift: int  # between the number of a piece and that of its copy
    large_shift: int  # the same where numbers are random: a second copy to the same thread must not meet the first one
    epoch: bytes
    ttl_ms: int
    copied: set[int] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)

    def copy(self, members: list[bytes]) -> Steps[bool]:
        """Copy some checkpoints, pieces first; False if the epoch is over."""
        gone: list[int | bytes] = []
        while True:
            rows = yield from call("rtmem_v2_checkpoint_export", self.source.function_keys, members)
            needed = {number for k in range(4, len(rows), 7) for number in numbers_of(rows[k])} - self.copied
            missing: list[int | bytes] = []
            for numbers in _batches(sorted(needed), _COPY_PIECES):
                if not (yield from self._copy_pieces(numbers, missing)):
                    return False
            references = {reference for k in range(6, len(rows), 7) for reference in rows[k]}
            others = yield from clones(self.scope, self.target, references)
            missing += sorted(references - others.keys())
            if not missing:
                break
            yield from release(self.scope, self.target, map(id_in, others.values()))
            if missing == gone:
                thread_id = self.source.thread_id
                raise CorruptRecordError(
                    f"thread {thread_id!r}: {len(missing)} pieces are gone that checkpoints refer to; run "
                    "`rtmem doctor threads`",
                    thread_id=thread_id,
                )
            gone = missing  # pruned or replaced while it was copied: what is there now?
        yield from self._index_runs({decode_id(rows[k]) for k in range(5, len(rows), 7)} - {""})
        args: list[Argument] = [self.epoch, self.ttl_ms, "", self.shift, self.large_shift, len(others)]
        args += (reference for pair in others.items() for reference in pair)
        for k in range(0, len(rows), 7):
            member, record, tasks, writes = rows[k : k + 4]
            args += (member, record, tasks, len(writes), *writes)
        done, unneeded = yield from call("rtmem_v2_checkpoint_import", self.target.function_keys, args)
        left = ids_in(unneeded) if done else [id_in(reference) for reference in others.values()]
        yield from release(self.scope, self.target, left)
        return bool(done)

    def _index_runs(self, run_ids: set[str]) -> Steps[None]:
        # Before the checkpoints are there: delete_for_runs must find them from then on.
        commands: list[Command] = []
        for run_id in sorted(run_ids - self.runs):
            commands += (command for command, _ in index_commands(self.scope, self.target, run_id))
        if commands:
            yield Batch(tuple(commands))
        self.runs |= run_ids

    def _copy_pieces(self, numbers: list[int], missing: list[int | bytes]) -> Steps[bool]:
        # By plain commands: what goes through Lua is hashed there, 2 ms per MB.
        (found,) = yield Batch((("HMGET", self.source.keys.checkpoints, *numbers),), lane="large")
        # What lies at a pointer gets another one, to the same value: each thread frees its own.
        references = [piece for piece in found if is_reference(piece)]
        others = yield from clones(self.scope, self.target, references)
        found = [others.get(piece) if is_reference(piece) else piece for piece in found]
        missing += [number for number, piece in zip(numbers, found, strict=True) if piece is None]
        there = {
            number + (self.shift if number < LARGE_FIRST else self.large_shift): piece
            for number, piece in zip(numbers, found, strict=True)
            if piece is not None
        }
        if not there:
            return True
        stored = ",".join(f"{start}:{count}" for start, count in runs(list(there)))
        store: Command = ("HSET", self.target.keys.checkpoints, *(part for pair in there.items() for part in pair))
        done, unneeded = yield from call(
            "rtmem_v2_checkpoint_import",
            self.target.function_keys,
            (self.epoch, self.ttl_ms, stored, self.shift, self.large_shift, 0),
            before=(store,),
        )
        yield from release(self.scope, self.target, ids_in(unneeded))
        self.copied.update(number for number, piece in zip(numbers, found, strict=True) if piece is not None)
        return bool(done)


def _batches(numbers: list[int], size: int) -> Iterator[list[int]]:
    for at in range(0, len(numbers), size):
        yield numbers[at : at + size]
