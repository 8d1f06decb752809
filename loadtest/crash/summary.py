"""All outcomes and verdicts of a run, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from loadtest.crash.outcome import Outcome, Report, Verdict
from rtmem.loadtest.percentiles import percentile


def show(report: Report, console: Console) -> None:
    """Tables of scenarios and promises, faults in full, and what could not be covered."""
    console.print(scenario_table(report.outcomes))
    for one in report.outcomes:
        for fault in one.faults:
            console.print(f"FAULT {one.seed}: {fault}", style="red", highlight=False, markup=False)
    console.print(verdict_table(report.verdicts))
    for what in report.not_covered:
        console.print(f"NOT COVERED: {what}", style="yellow", highlight=False, markup=False)
    console.print(f"seed {report.seed}; {len(report.outcomes)} crashes in {report.duration_s:.0f} s", highlight=False)


def scenario_table(outcomes: Sequence[Outcome]) -> Table:
    """A row for each scenario, profile, ack and volume."""
    result = Table(title="Crashes", title_justify="left")
    for heading in ("scenario", "profile", "ack", "volume"):
        result.add_column(heading)
    right = (
        "crashes",
        "acked",
        "turns",
        "lost",
        "in",
        "window p50",
        "max",
        "fsync max",
        "recovery p50",
        "max",
        "torn",
        "faults",
    )
    for heading in right:
        result.add_column(heading, justify="right")
    result.add_column("starts")
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for one in outcomes:
        groups.setdefault((one.scenario, one.profile, one.ack, one.volume), []).append(one)
    for key, mine in groups.items():
        windows = sorted(one.window_ms for one in mine)
        recoveries = sorted(one.recovery_ms for one in mine)
        result.add_row(
            *key,
            str(len(mine)),
            f"{sum(one.acked for one in mine):,}",
            _count(sum(one.turns for one in mine)),
            f"{sum(one.lost for one in mine):,}",
            str(sum(1 for one in mine if one.lost)),
            _ms(percentile(windows, 50)),
            _ms(windows[-1]),
            _ms(max(one.longest_fsync_ms for one in mine)),
            _ms(percentile(recoveries, 50)),
            _ms(recoveries[-1]),
            _count(sum(one.torn for one in mine)),
            _count(sum(len(one.faults) for one in mine)),
            ", ".join(f"{count} {how}" for how, count in Counter(one.start for one in mine).most_common()),
        )
    return result


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """What was promised, what was found."""
    result = Table(title="Promises and controls", title_justify="left")
    for heading in ("", "promised", "found", "verdict"):
        result.add_column(heading, overflow="fold")
    for one in verdicts:
        result.add_row(one.what, one.promised, one.found, "[green]kept[/]" if one.kept else "[red]BROKEN[/]")
    return result


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value else ""


def _count(value: int) -> str:
    return f"{value:,}" if value else ""
