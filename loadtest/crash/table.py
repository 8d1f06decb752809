"""The table of promises: what each profile and ack can lose, beside what it costs. For terminals, README and a picture.

Only crashes of one kind share a row: the power may go, a process be killed or a master be replaced, and what that takes
is not the same thing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import floor, log10
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from loadtest.crash.outcome import DISK_FAULT, UNATTENDED, Outcome, Report
from loadtest.crash.prices import BASELINE, CROWDS, OFFERS, STATES, Prices, cost
from rtmem.loadtest import percentile

POWER_CUT: Final = "power cut"
_ORDER: Final = {offer.name: place for place, offer in enumerate(OFFERS)}
_VOLUMES: Final = {"ext4": "ext4", "xfs": "XFS", "shim": "shim"}

# One colour for a profile wherever it is drawn; an ack has its profile's, hatched.
COLOURS: Final = {
    "ephemeral": "#444444",
    "relaxed": "#e0a030",
    "balanced": "#4f81b0",
    "durable": "#2e7d4f",
    "replicated": "#7a5195",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What crashes of one kind took from those who had bought one offer."""

    kind: str
    offer: str
    crashes: int
    volumes: dict[str, int]
    acked: int
    turns: int  # of those acknowledged: whole turns at a gateway
    lost: int
    with_loss: int  # crashes that took anything
    window_p50_ms: float
    window_max_ms: float
    longest_fsync_ms: float
    recovery_p50_ms: float
    recovery_max_ms: float
    unattended: int  # starts that nobody had to agree to
    faults: int


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as text, for whoever shows it."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""
    words: int = 1  # how many columns from the left hold words; the others hold figures


def kept(outcomes: Iterable[Outcome]) -> list[Kept]:
    """One row per kind of crash, profile and ack: power cuts first, and what costs least first."""
    found: defaultdict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.crash or outcome.scenario, offer_name(outcome)].append(outcome)
    # Where nobody had a saver, nothing was promised: raw writers of groups are a control.
    groups = {key: group for key, group in found.items() if any(one.acked for one in group)}
    kinds = list(dict.fromkeys(kind for kind, _ in groups))
    kinds.sort(key=lambda kind: kind != POWER_CUT)
    keys = sorted(groups, key=lambda key: (kinds.index(key[0]), _ORDER.get(key[1], len(_ORDER)), key[1]))
    return [_kept(*key, groups[key]) for key in keys]


def offer_name(outcome: Outcome) -> str:
    """The name under which the outcome's profile and ack are priced."""
    return outcome.profile if outcome.ack == "memory" else f"{outcome.profile}, ack {outcome.ack}"


def _kept(kind: str, offer: str, outcomes: Sequence[Outcome]) -> Kept:
    windows = sorted(outcome.window_ms for outcome in outcomes)
    # 0 where the server lived on, or nobody waited for it.
    recoveries = sorted(outcome.recovery_ms for outcome in outcomes if outcome.recovery_ms)
    return Kept(
        kind=kind,
        offer=offer,
        crashes=len(outcomes),
        volumes=dict(Counter(outcome.volume for outcome in outcomes if outcome.volume)),
        acked=sum(outcome.acked for outcome in outcomes),
        turns=sum(outcome.turns for outcome in outcomes),
        lost=sum(outcome.lost for outcome in outcomes),
        with_loss=sum(outcome.lost > 0 for outcome in outcomes),
        window_p50_ms=percentile(windows, 50),
        window_max_ms=windows[-1],
        longest_fsync_ms=max(outcome.longest_fsync_ms for outcome in outcomes),
        recovery_p50_ms=percentile(recoveries, 50) if recoveries else 0.0,
        recovery_max_ms=max(recoveries, default=0.0),
        unattended=sum(outcome.start in UNATTENDED for outcome in outcomes),
        faults=sum(len(outcome.faults) for outcome in outcomes),
    )


# --- as text ------------------------------------------------------------------------------------------------------


def sheets(outcomes: Iterable[Outcome], prices: Prices | None) -> list[Sheet]:
    """What is promised, and its price; either may be missing in a partial run."""
    rows = kept(outcomes)
    found = [_losses(rows)] if rows else []
    if prices is not None:
        found.append(_costs(prices))
    return found


def _losses(rows: Sequence[Kept]) -> Sheet:
    return Sheet(
        "What a crash takes",
        (
            "crash",
            "profile",
            "crashes",
            "acknowledged",
            "lost",
            "window p50 / max",
            "longest fsync",
            "recovery p50 / max",
            "unattended starts",
        ),
        [
            (
                row.kind,
                row.offer,
                _crashes(row),
                f"{row.acked:,}" + (f" ({row.turns:,} turns)" if row.turns else ""),
                _lost(row),
                f"{_ms(row.window_p50_ms)} / {_ms(row.window_max_ms)}" if row.lost else "0",
                _longest_fsync(row),
                f"{_ms(row.recovery_p50_ms)} / {_ms(row.recovery_max_ms)}" if row.recovery_max_ms else "",
                f"{row.unattended} of {row.crashes}",
            )
            for row in rows
        ],
        "Window: how old the oldest lost acknowledgement was when the crash came; the median is over all crashes. "
        "Recovery: from the start of the server to the first checkpoint read.",
        words=2,
    )


def _lost(row: Kept) -> str:
    if not row.lost:
        return "0"
    return f"{'all' if row.lost == row.acked else f'{row.lost:,}'}, in {row.with_loss} of {row.crashes}"


def _longest_fsync(row: Kept) -> str:
    if row.longest_fsync_ms:
        return _ms(row.longest_fsync_ms)
    # It is looked for every 10 ms during a power cut's run, and not elsewhere; and these two never wait for one.
    return "< 10 ms" if row.kind == POWER_CUT and not row.offer.startswith(("ephemeral", "relaxed")) else ""


def _crashes(row: Kept) -> str:
    where = ", ".join(f"{count} {_VOLUMES.get(volume, volume)}" for volume, count in sorted(row.volumes.items()))
    return f"{row.crashes}" + (f" ({where})" if where else "")


def _costs(prices: Prices) -> Sheet:
    columns = [(state, crowd) for state in STATES for crowd in CROWDS]
    offers = [offer.name for offer in OFFERS if any(cost(prices, offer.name, *column) for column in columns)]
    return Sheet(
        "What it costs",
        ("profile", *(f"{state}, {_clients(crowd)}" for state, crowd in columns)),
        [(offer, *(_cost(prices, offer, *column) for column in columns)) for offer in offers],
        f"Throughput / p99 latency of AsyncRedisSaver.aput as ratios to {BASELINE.name}, which keeps no log; Redis "
        f"{prices.redis_version}, data on {prices.file_system}.{_failures(prices)}",
    )


def _failures(prices: Prices) -> str:
    """What was not acknowledged is in no ratio, and is not passed over."""
    failed = [
        f"{row.contender}, {experiment.name.rpartition(', ')[2]}, {_clients(experiment.concurrency)}: {row.errors:,} "
        f"({row.first_error.partition(':')[0]})"
        for experiment in prices.experiments
        for row in experiment.rows
        if row.errors
    ]
    return f" Puts that raised: {'; '.join(failed)}." if failed else ""


def _clients(crowd: int) -> str:
    return f"{crowd} client{'s' if crowd > 1 else ''}"


def _cost(prices: Prices, offer: str, state: str, crowd: int) -> str:
    found = cost(prices, offer, state, crowd)
    return f"{ratio(found.throughput_ratio)} / {ratio(found.p99_ratio)}" if found else "not measured"


def ratio(value: float) -> str:
    """Two digits that say something: 0.00041x, 0.62x, 3.1x, 1,200x; and 1.04x around one."""
    if value <= 0:
        return "0x"
    # Counted from the first digit that is not zero, two digits; between 1 and 2 one more, where most ratios are.
    digits = 1 - floor(log10(value)) + (1 <= value < 2)
    return f"{round(value, digits):,.{max(0, digits)}f}x"


def _ms(value_ms: float) -> str:
    if value_ms >= 10_000:
        return f"{value_ms / 1000:.0f} s"
    return f"{value_ms:,.0f} ms" if value_ms >= 9.5 else f"{value_ms:.1f} ms"


def markdown(found: Sequence[Sheet]) -> str:
    """The sheets for a README."""
    parts = []
    for sheet in found:
        rule = ["---" if place < sheet.words else "---:" for place in range(len(sheet.headings))]
        lines = [_line(sheet.headings), _line(rule)]
        lines += [_line(row) for row in sheet.rows]
        parts.append(f"**{sheet.title}.** {sheet.note}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def without_disk_faults(table: str) -> str:
    """The same for who reads of promises only: each kind of fault has rows of its own, and they are many."""
    return "".join(line for line in table.splitlines(keepends=True) if not line.startswith(f"| {DISK_FAULT}"))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def rich_table(sheet: Sheet) -> Table:
    """A sheet for a terminal."""
    result = Table(title=sheet.title, title_justify="left", caption=sheet.note, caption_justify="left")
    for place, heading in enumerate(sheet.headings):
        result.add_column(heading, justify="left" if place < sheet.words else "right")
    for row in sheet.rows:
        result.add_row(*row)
    return result


# --- as a picture -------------------------------------------------------------------------------------------------


def write_picture(report: Report, path: Path) -> None:
    """Draw what a power cut takes beside what each profile costs, one line a profile. Needs matplotlib."""
    import matplotlib

    # A file needs no window, and a server has none.
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    prices = report.prices
    losses: dict[str, Kept] = {}
    for row in kept(report.outcomes):
        losses.setdefault(row.offer, row)  # power cuts come first
    priced = {row.contender for experiment in (prices.experiments if prices else []) for row in experiment.rows}
    names = [offer.name for offer in OFFERS if offer.name in losses or offer.name in priced]
    figure = Figure(figsize=(15, 1.9 + 0.75 * len(names)), layout="constrained")
    panels = figure.subplots(1, 1 + len(STATES), sharey=True, squeeze=False).flatten()
    _draw_windows(panels[0], names, losses)
    for panel, state in zip(panels[1:], STATES, strict=True):
        _draw_throughput(panel, names, prices, state)
    for panel in panels:
        panel.tick_params(labelsize=9)
        panel.grid(axis="x", which="major", alpha=0.25)
        panel.set_axisbelow(True)
    panels[0].set_yticks(range(len(names)), [name.replace(", ", "\n") for name in names])
    panels[0].invert_yaxis()
    figure.suptitle(f"What a power cut can take, and what it costs to prevent it\n{_where(report)}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _where(report: Report) -> str:
    machine, prices = report.machine, report.prices
    return ", ".join(
        [
            *([f"{machine.processor}", f"{machine.cores} cores"] if machine else []),
            *([f"Redis {prices.redis_version}", f"data on {prices.file_system}"] if prices else []),
            f"seed {report.seed}",
        ]
    )


def _draw_windows(panel: Any, names: Sequence[str], losses: dict[str, Kept]) -> None:
    highest = max((row.window_max_ms for row in losses.values()), default=0.0) or 1.0
    for place, name in enumerate(names):
        row = losses.get(name)
        if row is None:
            panel.text(highest * 0.02, place, _without_cuts(name), va="center", fontsize=9, color="#777777")
            continue
        panel.barh(place, row.window_max_ms, height=0.5, **_looks(name))
        if row.lost:
            panel.plot([row.window_p50_ms] * 2, [place - 0.25, place + 0.25], color="black", linewidth=1.5)
        panel.text(row.window_max_ms + highest * 0.02, place, _lost_words(row), va="center", fontsize=9)
    panel.set_title("acknowledged, and lost", fontsize=10)
    panel.set_xlabel("window in ms: bar is the longest, black line the median", fontsize=9)
    # Room for the words behind the longest bar.
    panel.set_xlim(0, highest * 1.75)
    panel.xaxis.set_major_formatter(lambda value, _place: f"{value:,.0f}")


def _lost_words(row: Kept) -> str:
    lost = f"all {row.acked:,} since its start lost" if row.lost == row.acked else f"{row.lost:,} of {row.acked:,} lost"
    kind = f"{row.kind}s" if row.kind == POWER_CUT and row.crashes > 1 else row.kind
    return f"{lost}\nin {row.crashes} {kind}" if row.kind == POWER_CUT else f"{lost}\n{row.crashes} x {kind}"


def _without_cuts(name: str) -> str:
    return "everything, at any stop" if name == BASELINE.name else "not cut in this run"


def _draw_throughput(panel: Any, names: Sequence[str], prices: Prices | None, state: str) -> None:
    height, longest = 0.8 / len(CROWDS), 1.0
    for place, name in enumerate(names):
        for line, crowd in enumerate(CROWDS):
            found = cost(prices, name, state, crowd) if prices else None
            if found is None:
                continue
            centre = place + (line - (len(CROWDS) - 1) / 2) * height
            longest = max(longest, found.throughput_ratio)
            panel.barh(centre, found.throughput_ratio, height=height * 0.9, **_looks(name))
            text = f"{ratio(found.throughput_ratio)}  ({_clients(crowd)}; p99 {ratio(found.p99_ratio)})"
            panel.text(found.throughput_ratio + 0.02, centre, text, va="center", fontsize=7.5)
    panel.set_title(f"throughput of checkpoints of {state}", fontsize=10)
    panel.set_xlabel(f"ratio to {BASELINE.name} (no log); longer is better", fontsize=9)
    # Room for the words behind the longest bar, which is longer than 1 only by chance.
    panel.set_xlim(0, longest * 1.8)
    panel.set_xticks([0, 0.25, 0.5, 0.75, 1])


def _looks(name: str) -> dict[str, Any]:
    profile, _, ack = name.partition(", ")
    return {"color": COLOURS[profile]} | ({"hatch": "///", "edgecolor": "white", "linewidth": 0} if ack else {})
