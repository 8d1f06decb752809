"""Recall, intervals and separation, on cases that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.recall.scoring import interval, mean_at, recalls, separation


def test_recall_is_the_share_of_the_evidence_among_the_first() -> None:
    recalled = recalls(["a", "x", "b", "y"], frozenset("abc"))
    assert recalled[:4].tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert recalled[19] == pytest.approx(2 / 3)
    assert mean_at(np.stack([recalled, np.ones(20)]), 3) == pytest.approx((2 / 3 + 1) / 2)
    assert recalls([], frozenset("a")).tolist() == [0.0] * 20


def test_the_interval_holds_the_difference_and_excludes_none_where_every_question_gained() -> None:
    theirs = np.linspace(0, 0.5, 200)
    low, high = interval(theirs + 0.2 + np.sin(np.arange(200)) / 10, theirs, seed=3)
    assert 0 < low < 0.2 < high < 0.25
    low, high = interval(theirs, theirs, seed=3)
    assert low == high == 0


def test_separation_counts_who_is_answered_and_who_is_refused() -> None:
    split = separation([0.9, 0.8, 0.4], [0.1, 0.2, 0.4, 0.85], threshold=0.3)
    assert split.auc == pytest.approx((4 + 3 + 2.5) / 12)
    assert (split.kept, split.refused, split.precision) == (1.0, 0.5, 1.0)
    assert separation([0.5], [0.5], threshold=0.1).precision == 1.0
