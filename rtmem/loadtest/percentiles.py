"""Percentiles as numpy computes them by default, without importing numpy."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value below which `percent` of `ordered` lies, interpolated between its two neighbours.

    Args:
        ordered: at least one value, ascending.
        percent: 0 to 100.
    """
    assert ordered, "no value has no percentile"
    assert 0 <= percent <= 100, f"percent {percent} is not in 0..100"
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
