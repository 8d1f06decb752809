"""Progress bar and tables for people. Needs the extra `loadtest` (rich)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rtmem.loadtest.records import Experiment, Measured, Report, Verdict


class Bar:
    """A progress bar whose length grows as work is announced."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=0)
        self._total = 0

    def announce(self, steps: int) -> None:
        """There are `steps` more to do."""
        self._total += steps
        self._progress.update(self._task, total=self._total)

    def describe(self, what: str) -> None:
        """`what` is being done now."""
        self._progress.update(self._task, description=what)

    def step(self, _name: str = "") -> None:
        """One is done."""
        self._progress.advance(self._task)


@contextmanager
def progress_bar(console: Console) -> Iterator[Bar]:
    """A bar on `console` while the block runs; disappears afterwards."""
    columns = (
        TextColumn("{task.description:<44.44}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        yield Bar(progress)


def table(experiment: Experiment) -> Table:
    """`experiment`, one row a contender, best ratio first; columns that nobody filled are left out."""
    title = f"{experiment.name}  (c={experiment.concurrency}, {experiment.rounds} x {experiment.operations})"
    result = Table(title=title, title_justify="left")
    rows = sorted(experiment.rows, key=lambda row: (row.ratio is None, row.ratio or 0.0))
    facts = dict.fromkeys(name for row in rows for name in row.facts)  # in the order in which they were told
    columns: dict[str, list[str]] = {
        "contender": [
            f"[bold]{row.contender}[/]" if row.contender == experiment.baseline else row.contender for row in rows
        ],
        "ratio": [_ratio(row.ratio) for row in rows],
        "quartiles": [f"{_ratio(row.ratio_low)}-{_ratio(row.ratio_high)}".strip("-") for row in rows],
        "p50": [_time(row.latency.p50_us if row.latency else None) for row in rows],
        "p95": [_time(row.latency.p95_us if row.latency else None) for row in rows],
        "p99": [_time(row.latency.p99_us if row.latency else None) for row in rows],
        "per s": ["" if row.operations_per_s is None else f"{row.operations_per_s:,.0f}" for row in rows],
        "client CPU": [_time(row.client_cpu_us) for row in rows],
        "CPU ratio": [_ratio(row.client_cpu_ratio) for row in rows],
        "server CPU": [_time(row.server_cpu_us) for row in rows],
        "stall": [_time(_us(row.stall_ms)) for row in rows],
        "worst": [_time(_us(row.stall_worst_ms)) for row in rows],
        "no GC": [_time(_us(row.stall_without_gc_ms)) for row in rows],
        **{name: [_fact(row, name) for row in rows] for name in facts},
        "errors": [f"{row.errors:,}: {row.first_error[:60]}" if row.errors else "" for row in rows],
    }
    filled = {heading: cells for heading, cells in columns.items() if any(cells)}
    for heading in filled:
        left = heading in ("contender", "errors")
        result.add_column(heading, justify="left" if left else "right", no_wrap=heading != "errors")
    for cells in zip(*filled.values(), strict=True):
        result.add_row(*cells)
    return result


def verdict_table(verdicts: list[Verdict]) -> Table:
    """Targets, what was measured, pass or fail."""
    result = Table(title="Targets", title_justify="left")
    result.add_column("")
    for heading in ("target", "measured", "best peer here"):
        result.add_column(heading, justify="right")
    result.add_column("verdict")
    for verdict in verdicts:
        measured = "not measured" if verdict.measured is None else f"{_plain(verdict.measured)} {verdict.unit}"
        word = "[green]pass[/]" if verdict.passed else "[red]FAIL[/]"
        bound = ">=" if verdict.is_floor else "<="
        target = f"{bound} {_plain(verdict.target)} {verdict.unit}"
        result.add_row(verdict.what, target, measured, verdict.best_other, word)
    return result


def show(report: Report, console: Console) -> None:
    """Everything in `report`, for a terminal."""
    for experiment in report.experiments:
        console.print(table(experiment))
        if experiment.note:
            console.print(experiment.note, style="dim", highlight=False)
        console.print()
    if report.verdicts:
        console.print(verdict_table(report.verdicts))
    for note in report.notes:
        console.print(f"- {note}", highlight=False)
    machine = report.machine
    console.print(
        f"{machine.processor}, {machine.cores} cores, load {machine.load_1min} at the start; {machine.kernel}; "
        f"Python {machine.python}, {machine.event_loop}; seed {report.seed}; {report.duration_s:.0f} s; "
        f"peak memory of this process {report.peak_rss_bytes / 1e6:,.0f} MB",
        highlight=False,
    )
    console.print(", ".join(f"{name} {version}" for name, version in report.versions.items()), highlight=False)


def _fact(row: Measured, name: str) -> str:
    if name not in row.facts:
        return ""
    value = row.facts[name]
    # A share needs its digits; of what is large nobody reads them.
    return f"{value:.3f}" if abs(value) <= 1 and value % 1 else f"{value:,.0f}"


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _us(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms * 1000


def _time(value_us: Any) -> str:
    """Microseconds for reading: three digits and the unit that suits them."""
    if value_us is None:
        return ""
    if value_us < 1000:
        return f"{value_us:.0f} µs"
    return f"{value_us / 1000:.3g} ms"
