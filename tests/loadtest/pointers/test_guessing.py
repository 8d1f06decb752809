"""The rank test sees a difference that is there, and none that is not."""

from __future__ import annotations

from random import Random

import pytest

from loadtest.pointers.guessing import FOREIGN, guessing, rank_test, verdicts


def test_known_values() -> None:
    # Mann and Whitney's U is 0 here: scipy.stats.mannwhitneyu(..., method="asymptotic") says 0.0121857803 and 1.
    assert rank_test([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(0.0121857803, rel=1e-6)
    assert rank_test([1, 1, 1], [1, 1, 1]) == 1.0


def test_a_shift_of_a_tenth_is_seen_and_the_same_spread_is_not() -> None:
    random = Random(7)
    first = [random.lognormvariate(0, 0.3) for _ in range(1_000)]
    same = [random.lognormvariate(0, 0.3) for _ in range(1_000)]
    assert rank_test(first, same) > 0.01
    assert rank_test(first, [value * 1.1 for value in same]) < 0.001


def test_strangers_are_timed_with_each_verb(redis_url: str) -> None:
    experiments = guessing(redis_url, 7, count=50)
    assert [experiment.name.split(",")[0] for experiment in experiments] == ["resolve", "slice", "delete"]
    for experiment in experiments:
        row = experiment.row(FOREIGN)
        assert row is not None
        assert row.latency is not None
        assert row.latency.count == 50
    # Whether they pass is for the benchmark to say: on a busy machine one of a hundred does not.
    assert len(verdicts(experiments)) == 3
