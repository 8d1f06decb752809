"""Recall by depth, and how sure one can be, as one picture. Needs the extra `loadtest` (matplotlib)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from loadtest.recall.findings import KNOWN, OTHER_PERSON, OTHER_TALK, Found
from loadtest.recall.scoring import DEPTH_MAX, DEPTHS
from loadtest.recall.ways import BM25, OURS, STORE, VECTORS, recall_of, ways
from rtmem.settings import Retrieval

_COLOURS: Final = {OURS: "#c6302b", BM25: "#444444", VECTORS: "#5b7fa6"}
_OTHERS: Final = "#5f8a5b"
_APART: Final = 0.024
_KINDS: Final = {KNOWN: "#c6302b", OTHER_PERSON: "#e0a030", OTHER_TALK: "#444444"}


def write_picture(found: Found, path: Path) -> None:
    """Left: the share of the evidence among the first k. Right: confidence of questions with and without an answer."""
    import matplotlib

    # A file needs no window, and a server has none.
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5), layout="constrained")
    depth, doubt = figure.subplots(1, 2)
    _draw_recall(depth, found)
    _draw_doubt(doubt, found)
    figure.suptitle(f"LoCoMo, conversations that nothing was chosen on: {', '.join(found.held_out)}", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def _draw_recall(panel: Any, found: Found) -> None:
    questions = found.of(found.held_out)
    depths = np.arange(1, DEPTH_MAX + 1)
    ends: list[tuple[float, str, str]] = []
    for name, settings in ways().items():
        if name == STORE:  # the same line as ours
            continue
        mean = recall_of(name, settings, questions).mean(axis=0)
        colour, wide = _COLOURS.get(name, _OTHERS), name == OURS
        panel.plot(depths, mean, color=colour, linewidth=2.4 if wide else 1.2, zorder=3 if wide else 2)
        ends.append((float(mean[-1]), name, colour))
        if wide:
            for at in DEPTHS:
                mark = (at, mean[at - 1])
                panel.annotate(f"{mean[at - 1]:.2f}", mark, (-14, 5), textcoords="offset points", fontsize=9)
    place = 0.0
    for end, name, colour in sorted(ends):
        place = max(end, place + _APART)  # names of lines that end together stand apart
        panel.annotate(
            name, (DEPTH_MAX, place), (5, 0), textcoords="offset points", fontsize=8, va="center", color=colour
        )
    panel.set_xlim(1, DEPTH_MAX * 1.32)
    panel.margins(y=0.09)
    panel.set_xticks([1, *DEPTHS])
    panel.set_xlabel("turns that are looked at")
    panel.set_title(f"share of the evidence among them, {len(questions)} questions", fontsize=10)
    panel.grid(alpha=0.25)


def _draw_doubt(panel: Any, found: Found) -> None:
    edges = np.linspace(0, 1, 41)
    for kind, colour in _KINDS.items():
        sure = found.doubts(kind, found.held_out)
        share = np.histogram(sure, edges)[0] / len(sure)
        panel.stairs(share, edges, color=colour, fill=True, alpha=0.35, label=f"{kind} ({len(sure)})")
    panel.axvline(Retrieval().confidence_min, color="black", linestyle=":", linewidth=1)
    panel.set_xlabel("confidence; left of the dotted line, the default, nothing is known")
    panel.set_title("questions by confidence", fontsize=10)
    panel.legend(fontsize=8)
    panel.grid(alpha=0.25)
