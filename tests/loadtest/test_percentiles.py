"""Percentiles against known values and, where it is installed, against numpy."""

from __future__ import annotations

import random

import pytest

from rtmem.loadtest import Latency, percentile


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([7.0], 99, 7.0),
        ([1.0, 2.0], 50, 1.5),
        ([1.0, 2.0, 3.0, 4.0], 25, 1.75),
        ([float(number) for number in range(101)], 95, 95.0),
        ([0.0, 10.0], 100, 10.0),
        ([0.0, 10.0], 0, 0.0),
    ],
)
def test_percentile_interpolates_between_neighbours(values: list[float], percent: float, expected: float) -> None:
    assert percentile(values, percent) == pytest.approx(expected)


def test_percentile_is_numpys() -> None:
    numpy = pytest.importorskip("numpy", reason="numpy comes with matplotlib, extra `loadtest`")
    source = random.Random(5)
    for size in (1, 2, 3, 10, 997):
        values = sorted(source.lognormvariate(0, 2) for _ in range(size))
        for percent in (0, 1, 25, 50, 95, 99, 99.9, 100):
            assert percentile(values, percent) == pytest.approx(float(numpy.percentile(values, percent)))


def test_latency_sums_up_durations_in_any_order() -> None:
    found = Latency.of([5.0, 1.0, 3.0, 2.0, 4.0])

    assert found == Latency(count=5, mean_us=3.0, p50_us=3.0, p95_us=4.8, p99_us=4.96, max_us=5.0)
