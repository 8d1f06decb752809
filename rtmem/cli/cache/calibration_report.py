"""What `rtmem cache calibrate` found, as tables for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from rtmem.cli import screen
from rtmem.operations.calibration import CONFIDENCE, Choice, KindRow, Point, Reason

if TYPE_CHECKING:
    from rich.table import Table

_PRECISIONS: Final = (0.8, 0.9, 0.95, 0.98, 0.99, 1.0)  # shown beside the one that is asked for
_POINTS_WRITTEN_MAX: Final = 500


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    model: str  # as in [embedding] model
    embedder: str
    fingerprint: str
    guard: bool
    files: list[str]
    paraphrases: int
    others: int
    goal: str
    choice: Choice | None
    failure: str  # why there is no choice
    kinds: list[KindRow]
    reasons: list[Reason]
    points: list[Point]  # of the curve, in the file thinned out


def as_text(made: Calibration) -> str:
    """JSON, for people and programs."""
    thinned = msgspec.structs.replace(made, points=made.points[:: len(made.points) // _POINTS_WRITTEN_MAX + 1])
    return msgspec.json.format(msgspec.json.encode(thinned), indent=2).decode() + "\n"


def write_text(made: Calibration, path: Path) -> None:
    """Write that JSON, in a directory that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_text(made), "utf-8")


def show(made: Calibration) -> None:
    """Print it, and the line for the settings."""
    with_guard = "with the guard" if made.guard else "without the guard"
    screen.note(f"({made.embedder}, {with_guard}: {made.paraphrases:,} paraphrases, {made.others:,} others)")
    screen.out.print(_thresholds(made))
    if made.choice is None:
        return
    screen.out.print(_kinds(made.kinds, made.choice.threshold))
    if made.reasons:
        screen.out.print(_reasons(made.reasons))
    point = made.choice.point
    screen.out.print(
        f"{made.choice.threshold:.4f} for {made.goal}: precision {point.precision:.3f}, with {CONFIDENCE:.0%} "
        f"confidence at least {point.precision_low:.3f}; false hits {point.false_hit_rate:.3f}, at most "
        f"{point.false_hit_rate_high:.3f}"
    )
    if made.points[-1].threshold > point.threshold:
        following = min(each.threshold for each in made.points if each.threshold > point.threshold)
        screen.out.print(
            f"(halfway between the last pair that hits, at {point.threshold:.4f}, and the next, at {following:.4f})"
        )
    if not made.choice.is_sure:
        screen.note("(so few pairs do not prove it: see the bounds; label more, or take --sure for a stricter one)")
    if not made.guard:
        screen.note("(found without the guard: switch it off in the cache too, or calibrate with it)")
    screen.out.print("\nfor your settings (rtmem.toml):\n")
    name = made.model if made.model.isidentifier() else msgspec.json.encode(made.model).decode()
    screen.out.print(f"[cache.thresholds]\n{name} = {made.choice.threshold:.6g}", markup=False)


def _thresholds(made: Calibration) -> Table:
    shown: dict[float, Point] = {}
    for precision in _PRECISIONS:
        reached = [point for point in made.points if point.precision >= precision]
        if reached:
            shown[reached[-1].threshold] = reached[-1]
    chosen = None if made.choice is None else made.choice.point
    if chosen is not None:
        shown[chosen.threshold] = chosen
    headings = ("threshold", "hits", "% of paraphrases", "false hits", "% of others", "precision", "at least")
    table = _table("what a threshold does", headings)
    for _, point in sorted(shown.items(), reverse=True):
        table.add_row(*_cells(point), style="bold" if point == chosen else "")
    return table


def _cells(point: Point) -> list[str]:
    return [
        f"{point.threshold:.4f}",
        f"{point.hits:,}",
        f"{point.hit_rate * 100:.1f}",
        f"{point.false_hits:,}",
        f"{point.false_hit_rate * 100:.2f}",
        f"{point.precision:.3f}",
        f"{point.precision_low:.3f}",
    ]


def _kinds(rows: list[KindRow], threshold: float) -> Table:
    table = _table(f"at {threshold:.4f}, by kind", ("kind", "pairs", "near enough", "hits", "% of pairs"))
    for row in rows:
        table.add_row(row.kind, f"{row.pairs:,}", f"{row.near:,}", f"{row.hits:,}", f"{row.rate * 100:.1f}")
    return table


def _reasons(rows: list[Reason]) -> Table:
    table = _table("near enough, but refused by the guard", ("reason", "others", "paraphrases"))
    for row in rows:
        table.add_row(row.reason, f"{row.rightly:,}", f"{row.wrongly:,}")
    return table


def _table(title: str, headings: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("kind", "reason") else "right")
    return table
