"""The curve of hits against false hits as a picture. Needs the extra `loadtest` (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rtmem.cli.cache.calibration_report import Calibration
from rtmem.errors import ExtraMissingError
from rtmem.operations.calibration import Point

OURS, WITHOUT = "#c6302b", "#5b7fa6"
_FALSE_HITS_MIN: Final = 0.05  # of the width: what matters happens at few false hits


def require() -> None:
    """Raises ExtraMissingError: no matplotlib. Better before a long run than after it."""
    if find_spec("matplotlib") is None:
        raise ExtraMissingError(
            "the picture needs matplotlib: pip install 'rtmem[loadtest]', or leave it out with --no-picture",
            extra="loadtest",
        )


def draw_curve(panel: Any, points: Sequence[Point], label: str, **style: Any) -> None:
    """One line of hit rate over false-hit rate, from no hits at all."""
    wrong = [0.0, *(point.false_hit_rate for point in points)]
    right = [0.0, *(point.hit_rate for point in points)]
    panel.plot(wrong, right, label=label, drawstyle="steps-post", **style)


def mark(panel: Any, point: Point, text: str, colour: str, marker: str = "o") -> None:
    """One threshold on its curve."""
    panel.plot([point.false_hit_rate], [point.hit_rate], marker, color=colour, markersize=6, zorder=4)
    panel.annotate(
        text, (point.false_hit_rate, point.hit_rate), (7, -9), textcoords="offset points", fontsize=8, color=colour
    )


def name_axes(panel: Any, title: str, false_hits_max: float) -> None:
    """Everything around the curves. As much of the false hits is shown as `false_hits_max` needs."""
    panel.set_xlim(-0.002, max(_FALSE_HITS_MIN, false_hits_max))
    panel.set_ylim(0, 1)
    panel.set_xlabel("false hits, share of the pairs with another answer", fontsize=9)
    panel.set_ylabel("hits, share of the paraphrases", fontsize=9)
    panel.set_title(title, fontsize=10)
    panel.grid(alpha=0.25)
    panel.legend(fontsize=8, loc="lower right")


def write_picture(path: Path, made: Calibration, bare: Sequence[Point]) -> None:
    """The curve that was calibrated on, the one without the guard (`bare`), and the threshold that was chosen."""
    import matplotlib

    # A file needs no window, and a server has none.
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5), layout="constrained")
    panel = figure.subplots()
    draw_curve(panel, bare, "without the guard", color=WITHOUT, linewidth=1.2)
    if made.guard:
        draw_curve(panel, made.points, "with the guard", color=OURS, linewidth=2)
    if made.choice is not None:
        mark(panel, made.choice.point, f"{made.choice.threshold:.4f}", OURS if made.guard else WITHOUT)
    title = f"{made.embedder}: {made.paraphrases:,} paraphrases, {made.others:,} others"
    name_axes(panel, title, 1.15 * max((point.false_hit_rate for point in made.points), default=0.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
