"""One PNG per report: a panel per experiment, a bar per contender. Needs the extra `loadtest` (matplotlib)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rtmem.loadtest.records import Experiment, Report

COLUMNS_MAX = 3
_OURS, _BASELINE, _OTHERS = "#c6302b", "#444444", "#9db4c8"


def write_picture(report: Report, path: Path, *, ours: str = "rtmem") -> None:
    """Draw p50 (bar) and p95 (whisker) of every experiment; contenders whose name begins with `ours` stand out."""
    import matplotlib

    # A file needs no window, and a server has none.
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    drawn = [
        experiment
        for experiment in report.experiments
        if experiment.fact or any(row.latency for row in experiment.rows)
    ]
    columns = min(COLUMNS_MAX, max(1, len(drawn)))
    lines = max(1, -(-len(drawn) // columns))
    tallest = max((len(experiment.rows) for experiment in drawn), default=1)
    figure = Figure(figsize=(6.2 * columns, (1.1 + 0.36 * tallest) * lines + 0.9), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.1, h_pad=0.12)  # so that a title stays clear of the panel above
    panels = figure.subplots(lines, columns, squeeze=False).flatten()
    for panel, experiment in zip(panels, drawn, strict=False):
        if experiment.fact:
            _draw_fact(panel, experiment, ours)
        else:
            _draw_latency(panel, experiment, ours)
    for panel in panels[len(drawn) :]:
        panel.set_visible(False)
    machine = report.machine
    figure.suptitle(
        f"{report.title}\n"
        "bar: median, whisker: 95th percentile, number: ratio to the baseline (dark); shorter is better\n"
        f"{machine.processor}, {machine.cores} cores, Python {machine.python}, seed {report.seed}",
        fontsize=11,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def _draw_fact(panel: Any, experiment: Experiment, ours: str) -> None:
    rows = [row for row in experiment.rows if experiment.fact in row.facts]
    rows.sort(key=lambda row: row.facts[experiment.fact], reverse=True)
    names = [row.contender for row in rows]
    values = [row.facts[experiment.fact] for row in rows]
    bars = panel.barh(names, values, color=[_colour(name, experiment.baseline, ours) for name in names])
    panel.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3, fontsize=8)
    panel.set_title(experiment.name, fontsize=10)
    panel.set_xlabel(experiment.fact, fontsize=8)
    # Room for the numbers at the right end.
    panel.set_xlim(0, max(values, default=1.0) * 1.3)
    panel.xaxis.set_major_formatter(lambda value, _place: f"{value:,.0f}")
    panel.tick_params(labelsize=8)
    panel.grid(axis="x", which="major", alpha=0.25)
    panel.set_axisbelow(True)


def _draw_latency(panel: Any, experiment: Experiment, ours: str) -> None:
    rows = [row for row in experiment.rows if row.latency is not None]
    rows.sort(key=lambda row: row.latency.p50_us if row.latency else 0.0, reverse=True)
    names = [row.contender for row in rows]
    p50_ms = [row.latency.p50_us / 1000 for row in rows if row.latency]
    p95_ms = [row.latency.p95_us / 1000 for row in rows if row.latency]
    colours = [_colour(name, experiment.baseline, ours) for name in names]
    # A whisker from the median to the 95th percentile; nothing below the median.
    reach = [max(0.0, high - low) for low, high in zip(p50_ms, p95_ms, strict=True)]
    panel.barh(names, p50_ms, color=colours, xerr=[[0.0] * len(reach), reach], ecolor="#00000066", capsize=2)
    panel.set_title(f"{experiment.name} (c={experiment.concurrency})", fontsize=10)
    panel.set_xlabel("milliseconds, logarithmic", fontsize=8)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(lambda value, _place: f"{value:g}")
    panel.xaxis.set_minor_formatter(lambda _value, _place: "")
    low, high = min(p50_ms), max(p95_ms)
    # Room for the numbers at the right end.
    panel.set_xlim(low / 3, high * (high / low) ** 0.25 * 2.5)
    panel.tick_params(labelsize=8)
    for place, (row, end) in enumerate(zip(rows, p95_ms, strict=True)):
        if row.ratio is not None:
            text = f"{row.ratio:.2f}x" + (f", {row.errors:,} failed" if row.errors else "")
            panel.text(max(end, p50_ms[place]) * 1.08, place, text, va="center", fontsize=8)
    panel.grid(axis="x", which="major", alpha=0.25)
    panel.set_axisbelow(True)


def _colour(name: str, baseline: str, ours: str) -> str:
    if name == baseline:
        return _BASELINE
    return _OURS if name.startswith(ours) else _OTHERS
