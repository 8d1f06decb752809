"""What a run leaves behind, as it is written to JSON. Every quantity carries its unit in its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from rtmem.loadtest.percentiles import percentile


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long one operation took."""

    count: int
    mean_us: float
    p50_us: float
    p95_us: float
    p99_us: float  # of fewer than a hundred operations this is close to the maximum: see count
    max_us: float

    @classmethod
    def of(cls, durations_us: Sequence[float]) -> Self:
        ordered = sorted(durations_us)
        return cls(
            count=len(ordered),
            mean_us=sum(ordered) / len(ordered),
            p50_us=percentile(ordered, 50),
            p95_us=percentile(ordered, 95),
            p99_us=percentile(ordered, 99),
            max_us=ordered[-1],
        )


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One contender in one experiment. `latency` is None if it never succeeded; `first_error` says why."""

    contender: str
    latency: Latency | None = None
    ratio: float | None = None  # median over rounds of p50 / p50 of the baseline in the same round
    ratio_low: float | None = None  # first and third quartile of the same: how far to trust it
    ratio_high: float | None = None
    operations_per_s: float | None = None
    throughput_ratio: float | None = None  # median over rounds of operations per s / that of the baseline in the round
    client_cpu_us: float | None = None  # this process, all threads, per operation
    client_cpu_ratio: float | None = None  # to the baseline's; steadier than times where others use the machine too
    server_cpu_us: float | None = None  # the server's processes, per operation; None if there is none to see
    stall_ms: float | None = None  # how long an operation kept the event loop from other tasks: median of the longest
    stall_worst_ms: float | None = None  # the longest of all, whoever caused it (garbage collector, machine)
    stall_without_gc_ms: float | None = None  # like stall_ms, with the garbage collector kept out
    errors: int = 0
    first_error: str = ""
    facts: dict[str, float] = {}


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """All contenders under one plan."""

    name: str
    baseline: str
    concurrency: int
    rounds: int
    operations: int  # of each contender in each round; the most it could be, where a turn ended by time
    rows: list[Measured]
    note: str = ""
    fact: str = ""  # the fact that a picture shows, where there is no latency to show

    def row(self, contender: str) -> Measured | None:
        """What `contender` reached here, if it took part."""
        return next((row for row in self.rows if row.contender == contender), None)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A target and whether it was met. `measured` is None if it could not be measured, which is not a pass."""

    what: str
    target: float
    measured: float | None
    unit: str
    passed: bool
    best_other: str = ""  # what the best peer reached in this run
    is_floor: bool = False  # the target is the least that it may be, not the most

    @classmethod
    def at_least(cls, what: str, *, target: float, measured: float | None, unit: str) -> Self:
        """The verdict on "`measured` is at least `target`"."""
        passed = measured is not None and measured >= target
        return cls(what=what, target=target, measured=measured, unit=unit, passed=passed, is_floor=True)

    @classmethod
    def of(cls, what: str, *, target: float, measured: float | None, unit: str, best_other: str = "") -> Self:
        """The verdict on "`measured` is at most `target`"."""
        passed = measured is not None and measured <= target
        return cls(what=what, target=target, measured=measured, unit=unit, passed=passed, best_other=best_other)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    processor: str
    cores: int
    memory_bytes: int
    kernel: str
    python: str
    event_loop: str
    load_1min: float  # when the run began: above zero means that somebody else was working too


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    title: str
    seed: int
    started_at: str
    duration_s: float
    machine: Machine
    versions: dict[str, str]
    peak_rss_bytes: int  # of this process with all contenders in it; never of one contender
    experiments: list[Experiment]
    verdicts: list[Verdict] = []
    notes: list[str] = []


def write_json(report: Report, path: Path) -> None:
    """Write `report`, readable by people and by `msgspec.json.decode(..., type=Report)`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
