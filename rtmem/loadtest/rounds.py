"""Contenders take turns within one run, so that a busy minute of the machine hits all of them.

A round gives every contender one turn of the same number of operations, in an order shuffled by a seed. Ratios are
taken within a round, between turns that are milliseconds apart, and only then summarised.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio

from rtmem.loadtest.machine import cpu_us_of
from rtmem.loadtest.percentiles import percentile
from rtmem.loadtest.records import Experiment, Latency, Measured
from rtmem.loadtest.stalls import longest_stall_ms


def _number(operation: int) -> Any:
    return operation


@dataclass(frozen=True, slots=True)
class Contender:
    """Something to be measured."""

    name: str
    operation: Callable[[Any], Awaitable[object]]  # timed; is given what `prepare` made
    prepare: Callable[[int], Any] = _number  # not timed; is given 0, 1, 2 ... over the whole run
    server_pid: int | None = None  # whose CPU time to count as well


@dataclass(frozen=True, slots=True)
class Plan:
    """How to measure."""

    name: str
    baseline: str
    rounds: int = 10
    operations: int = 50  # of each contender in each round; the most it can be, where turn_s ends a turn
    warmup: int = 5  # operations of each contender before the first round; not counted
    concurrency: int = 1  # tasks that share the operations of a turn
    seed: int = 0
    turn_s: float = 0.0  # a turn ends after this long, however much was done; 0: after its operations
    between_turns: Callable[[], object] | None = None  # before each turn, not timed: what the last one left behind
    stall_operations: int = 0  # of each contender after the last round, under the stall probe; 0: none
    note: str = ""


@dataclass(slots=True)
class _Track:
    """What is known of one contender so far."""

    contender: Contender
    prepared: int = 0
    rounds_us: list[list[float]] = field(default_factory=list)
    elapsed_s: list[float] = field(default_factory=list)  # of each round
    client_cpu_s: float = 0.0
    server_cpu_us: float | None = None
    errors: int = 0
    first_error: str = ""
    stalls_ms: list[float] = field(default_factory=list)
    stalls_without_gc_ms: list[float] = field(default_factory=list)

    @property
    def client_cpu_us(self) -> float:
        """Per operation that succeeded; 0 if none did."""
        done = sum(len(turn) for turn in self.rounds_us)
        return self.client_cpu_s * 1e6 / done if done else 0.0

    def operations_per_s(self) -> list[float]:
        """In each round."""
        return [len(turn) / elapsed_s for turn, elapsed_s in zip(self.rounds_us, self.elapsed_s, strict=True)]

    def inputs(self, count: int) -> list[Any]:
        first = self.prepared
        self.prepared += count
        return [self.contender.prepare(number) for number in range(first, first + count)]


def turn_orders(names: Sequence[str], rounds: int, seed: int) -> list[list[str]]:
    """In which order contenders take their turns in each round; the same for the same seed."""
    source = random.Random(seed)
    return [source.sample(list(names), len(names)) for _ in range(rounds)]


async def measure(
    plan: Plan,
    contenders: Sequence[Contender],
    *,
    on_turn: Callable[[str], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Experiment:
    """Run `plan` on all `contenders` and compare them with its baseline.

    An operation that raises is counted, not timed; a contender that fails its whole warm-up sits out the rounds.

    Args:
        on_turn: called with the name of each contender whose turn is over, to show progress.
        clock: seconds, never decreasing.
    """
    tracks = {contender.name: _Track(contender) for contender in contenders}
    assert len(tracks) == len(contenders), "two contenders have one name"
    assert plan.baseline in tracks, f"the baseline {plan.baseline!r} does not take part"
    for track in tracks.values():
        await _take_turn(track, plan, plan.warmup, clock, counted=False)
    # What stands before the first round (inputs, servers' clients, other contenders) is not walked again by every
    # collection: its size is nobody's fault.
    gc.collect()
    gc.freeze()
    try:
        await _play(plan, tracks, clock, on_turn)
    finally:
        gc.unfreeze()
    baseline = tracks[plan.baseline]
    return Experiment(
        name=plan.name,
        baseline=plan.baseline,
        concurrency=plan.concurrency,
        rounds=plan.rounds,
        operations=plan.operations,
        rows=[_summary(track, baseline) for track in tracks.values()],
        note=plan.note,
    )


async def _play(
    plan: Plan, tracks: dict[str, _Track], clock: Callable[[], float], on_turn: Callable[[str], None] | None
) -> None:
    """All rounds, then the stall probe, with those who survived the warm-up."""
    playing = [name for name, track in tracks.items() if not plan.warmup or track.errors < plan.warmup]
    for order in turn_orders(playing, plan.rounds, plan.seed):
        for name in order:
            if plan.between_turns is not None:
                plan.between_turns()
            await _take_turn(tracks[name], plan, plan.operations, clock, counted=True)
            if on_turn is not None:
                on_turn(name)
    if plan.stall_operations:
        for name in playing:
            await _probe_stalls(tracks[name], plan.stall_operations)


async def _take_turn(track: _Track, plan: Plan, operations: int, clock: Callable[[], float], *, counted: bool) -> None:
    contender = track.contender
    # Whoever waits for a clock (one fsync a second) is answered out of step at first: in a turn that ends by time, each
    # task does one operation before the time begins.
    first = track.inputs(plan.concurrency) if plan.turn_s and counted else []
    inputs = track.inputs(operations)
    durations_us: list[float] = []
    # Nobody pays for the garbage of the one before.
    gc.collect()
    await _work(track, plan.concurrency, first, [], clock, until_s=math.inf)

    server_before = cpu_us_of(contender.server_pid) if contender.server_pid is not None else None
    cpu_before, begin = time.process_time(), clock()
    until_s = begin + plan.turn_s if plan.turn_s else math.inf
    await _work(track, plan.concurrency, inputs, durations_us, clock, until_s=until_s)
    elapsed_s, cpu_s = clock() - begin, time.process_time() - cpu_before
    if not counted:
        return
    track.rounds_us.append(durations_us)
    track.elapsed_s.append(elapsed_s)
    track.client_cpu_s += cpu_s
    if contender.server_pid is not None and server_before is not None:
        server_after = cpu_us_of(contender.server_pid)
        if server_after is not None:
            track.server_cpu_us = (track.server_cpu_us or 0.0) + server_after - server_before


async def _work(
    track: _Track,
    concurrency: int,
    inputs: Sequence[Any],
    durations_us: list[float],
    clock: Callable[[], float],
    *,
    until_s: float,
) -> None:
    """Do the operations for `inputs`, so many at once; none begins after `until_s`, and each that began is counted."""

    async def work(share: Sequence[Any]) -> None:
        for given in share:
            begin = clock()
            if begin >= until_s:
                return
            try:
                await track.contender.operation(given)
            except Exception as exc:  # noqa: BLE001  (a contender's failure is a result, and others go on)
                track.errors += 1
                track.first_error = track.first_error or f"{type(exc).__name__}: {exc}"[:300]
            else:
                durations_us.append((clock() - begin) * 1e6)

    if concurrency == 1:
        await work(inputs)
        return
    async with anyio.create_task_group() as tasks:
        for place in range(min(concurrency, len(inputs))):
            tasks.start_soon(work, inputs[place::concurrency])


async def _probe_stalls(track: _Track, operations: int) -> None:
    """Watch the event loop during each operation; not timed, because the watching takes time itself."""
    for collect_garbage, found in ((True, track.stalls_ms), (False, track.stalls_without_gc_ms)):
        for given in track.inputs(operations):
            work = partial(track.contender.operation, given)
            found.append(await longest_stall_ms(work, collect_garbage=collect_garbage))


def _summary(track: _Track, baseline: _Track) -> Measured:
    durations_us = [duration for turn in track.rounds_us for duration in turn]
    if not durations_us:
        return Measured(contender=track.contender.name, errors=track.errors, first_error=track.first_error)
    ratios = sorted(
        percentile(sorted(turn), 50) / percentile(sorted(base), 50)
        for turn, base in zip(track.rounds_us, baseline.rounds_us, strict=False)
        if turn and base
    )
    throughputs = sorted(
        rate / base for rate, base in zip(track.operations_per_s(), baseline.operations_per_s(), strict=False) if base
    )
    done = len(durations_us)
    return Measured(
        contender=track.contender.name,
        latency=Latency.of(durations_us),
        ratio=percentile(ratios, 50) if ratios else None,
        ratio_low=percentile(ratios, 25) if ratios else None,
        ratio_high=percentile(ratios, 75) if ratios else None,
        operations_per_s=done / sum(track.elapsed_s),
        throughput_ratio=percentile(throughputs, 50) if throughputs else None,
        client_cpu_us=track.client_cpu_us,
        client_cpu_ratio=track.client_cpu_us / baseline.client_cpu_us if baseline.client_cpu_us else None,
        server_cpu_us=None if track.server_cpu_us is None else track.server_cpu_us / done,
        # The median: one operation during which the machine did something else says nothing about the contender.
        stall_ms=percentile(sorted(track.stalls_ms), 50) if track.stalls_ms else None,
        stall_worst_ms=max(track.stalls_ms, default=None),
        stall_without_gc_ms=percentile(sorted(track.stalls_without_gc_ms), 50) if track.stalls_without_gc_ms else None,
        errors=track.errors,
        first_error=track.first_error,
    )
