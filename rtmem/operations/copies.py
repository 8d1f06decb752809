"""Copying a thread, pieces still shared, in short steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from rtmem.errors import CorruptRecordError, RunInProgressError
from rtmem.operations.checkpoints import index_commands, sweep
from rtmem.operations.functions import call
from rtmem.operations.places import Place, Scope, decode_id, thread_place
from rtmem.operations.pointer_lifetimes import copy_pins, pins_command, scope_of
from rtmem.operations.sharing import numbers_of, runs
from rtmem.steps import Argument, Batch, Command, Steps

_COPY_SIZE = 20
_COPY_PIECES = 200
_COPY_ATTEMPTS_MAX = 10


def copy_thread(scope: Scope, source_thread_id: str, target_thread_id: str) -> Steps[None]:
    """Copy every checkpoint and write of a thread to another, pieces still shared, parents intact.

    Checkpoints the target has already are overwritten. The copy is one of the checkpoints that were there when it
    began; it grows oldest first, so that what is there at any moment is complete.

    What the source pins of pointers, the target pins too.

    Redis: 3 round trips, then 2 per 20 checkpoints and 2 per 200 new pieces, 1 for new runs, and what `sweep` takes;
        2 more per 100 pointers that the source pins.
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
        "rtmem_v1_checkpoint_reserve", target.function_keys, (int(last or 1), ttl_ms, os.urandom(8))
    )
    job = _Copy(scope, source, target, int(first), epoch, ttl_ms)
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
    yield from sweep(target)
    return True


@dataclass(slots=True)
class _Copy:
    scope: Scope
    source: Place
    target: Place
    shift: int  # between the number of a piece and that of its copy
    epoch: bytes
    ttl_ms: int
    copied: set[int] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)

    def copy(self, members: list[bytes]) -> Steps[bool]:
        """Copy some checkpoints, pieces first; False if the epoch is over."""
        gone: list[int] = []
        while True:
            rows = yield from call("rtmem_v1_checkpoint_export", self.source.function_keys, members)
            needed = {number for k in range(4, len(rows), 6) for number in numbers_of(rows[k])} - self.copied
            missing: list[int] = []
            for numbers in _batches(sorted(needed), _COPY_PIECES):
                if not (yield from self._copy_pieces(numbers, missing)):
                    return False
            if not missing:
                break
            if missing == gone:
                raise CorruptRecordError(
                    f"thread {self.source.thread_id!r}: {len(missing)} pieces are gone that checkpoints refer to; run "
                    "`rtmem doctor threads`",
                    thread_id=self.source.thread_id,
                )
            gone = missing  # pruned or replaced while it was copied: what is there now?
        yield from self._index_runs({decode_id(rows[k]) for k in range(5, len(rows), 6)} - {""})
        args: list[Argument] = [self.epoch, self.ttl_ms, "", self.shift]
        for k in range(0, len(rows), 6):
            member, record, tasks, writes = rows[k : k + 4]
            args += (member, record, tasks, len(writes), *writes)
        done = yield from call("rtmem_v1_checkpoint_import", self.target.function_keys, args)
        return bool(done)

    def _index_runs(self, run_ids: set[str]) -> Steps[None]:
        # Before the checkpoints are there: delete_for_runs must find them from then on.
        commands: list[Command] = []
        for run_id in sorted(run_ids - self.runs):
            commands += (command for command, _ in index_commands(self.scope, self.target, run_id))
        if commands:
            yield Batch(tuple(commands))
        self.runs |= run_ids

    def _copy_pieces(self, numbers: list[int], missing: list[int]) -> Steps[bool]:
        # By plain commands: what goes through Lua is hashed there, 2 ms per MB.
        (found,) = yield Batch((("HMGET", self.source.keys.checkpoints, *numbers),), lane="large")
        missing += [number for number, piece in zip(numbers, found, strict=True) if piece is None]
        there = {number + self.shift: piece for number, piece in zip(numbers, found, strict=True) if piece is not None}
        if not there:
            return True
        stored = ",".join(f"{start}:{count}" for start, count in runs(list(there)))
        store: Command = ("HSET", self.target.keys.checkpoints, *(part for pair in there.items() for part in pair))
        done = yield from call(
            "rtmem_v1_checkpoint_import",
            self.target.function_keys,
            (self.epoch, self.ttl_ms, stored, self.shift),
            before=(store,),
        )
        self.copied.update(number - self.shift for number in there)
        return bool(done)


def _batches(numbers: list[int], size: int) -> Iterator[list[int]]:
    for at in range(0, len(numbers), size):
        yield numbers[at : at + size]
