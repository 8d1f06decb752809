"""Hits against false hits, a panel for each set and embedder. Needs the extra `loadtest` (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from loadtest.cache_quality.looked import Looked
from rtmem.cli.cache.picture import OURS, WITHOUT, draw_curve, mark, name_axes
from rtmem.operations.calibration import Point, point_at

_THEIRS: Final = "#444444"
_COLUMNS_MAX: Final = 2
_PARTS: Final = ("held_out", "public")


def write_picture(looked: Sequence[Looked], path: Path) -> None:
    """Held-out and public sets: with the guard and without, rtmem's threshold, and RedisVL's."""
    import matplotlib

    # A file needs no window, and a server has none.
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    shown = [each for part in _PARTS for each in looked if each.pairs.part == part]
    columns = min(_COLUMNS_MAX, max(1, len(shown)))
    lines = max(1, -(-len(shown) // columns))
    figure = Figure(figsize=(6.4 * columns, 4.6 * lines + 0.5), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).flatten()
    for panel, each in zip(panels, shown, strict=False):
        draw_curve(panel, each.bare_curve, "without a guard", color=WITHOUT, linewidth=1.2)
        draw_curve(panel, each.guarded_curve, "with rtmem's guard", color=OURS, linewidth=2)
        ours = point_at(each.compared, each.threshold)
        mark(panel, ours, f"rtmem, {each.threshold:g}", OURS)
        reach = [ours.false_hit_rate]
        if each.redisvl:
            theirs = _point(each)
            mark(panel, theirs, f"redisvl, {each.redisvl_distance:g}", _THEIRS, "s")
            reach.append(theirs.false_hit_rate)
        name_axes(panel, f"{each.name}, {len(each.compared):,} pairs", 1.25 * max(reach))
    for panel in panels[len(shown) :]:
        panel.set_visible(False)
    figure.suptitle("How often a cached answer is given, and how often it is the wrong one", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def _point(each: Looked) -> Point:
    right = [hit for pair, hit in zip(each.compared, each.redisvl, strict=True) if pair.same]
    wrong = [hit for pair, hit in zip(each.compared, each.redisvl, strict=True) if not pair.same]
    return Point(
        threshold=each.redisvl_distance, hits=sum(right), false_hits=sum(wrong), same=len(right), different=len(wrong)
    )
