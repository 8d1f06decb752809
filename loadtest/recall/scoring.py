"""From ranked answers to figures: evidence recall, its confidence against another way, and how well doubt separates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

DEPTH_MAX: Final = 20
DEPTHS: Final = (5, 10, 20)
_RESAMPLES: Final = 10_000


def recalls(ranked: Sequence[str], evidence: frozenset[str]) -> NDArray[np.float64]:
    """The share of the evidence among the first 1, 2, ... 20: float64, shape (20,)."""
    first = list(ranked[:DEPTH_MAX])
    hits = np.array([turn in evidence for turn in first] + [False] * (DEPTH_MAX - len(first)))
    share: NDArray[np.float64] = np.cumsum(hits) / len(evidence)
    return share


def mean_at(recalled: NDArray[np.float64], depth: int) -> float:
    """The mean recall at a depth. recalled: float64, shape (questions, 20)."""
    return float(recalled[:, depth - 1].mean())


def interval(ours: NDArray[np.float64], theirs: NDArray[np.float64], seed: int) -> tuple[float, float]:
    """Where 95 % of the mean differences lie when the questions are drawn anew (paired bootstrap): low, high.

    ours, theirs: recall of the same questions, float64, shape (questions,).
    """
    random = np.random.default_rng(seed)
    differences = ours - theirs
    drawn = random.integers(len(differences), size=(_RESAMPLES, len(differences)))
    low, high = np.percentile(differences[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True, slots=True)
class Separation:
    """How well a confidence tells questions that can be answered from others."""

    auc: float  # the chance that a question with an answer has the higher one; 0.5 is none
    kept: float  # of the answerable, how many are answered
    refused: float  # of the others, how many are not
    precision: float  # of those that are refused, how many had no answer


def separation(answerable: Sequence[float], others: Sequence[float], threshold: float) -> Separation:
    """What refusing below `threshold` does."""
    known, unknown = np.sort(np.asarray(answerable)), np.sort(np.asarray(others))
    below, up_to = np.searchsorted(unknown, known, "left"), np.searchsorted(unknown, known, "right")
    refused, wrongly = (unknown < threshold).sum(), (known < threshold).sum()
    return Separation(
        auc=float((below + up_to).mean() / 2 / len(unknown)),
        kept=float(1 - wrongly / len(known)),
        refused=float(refused / len(unknown)),
        precision=float(refused / (refused + wrongly)) if refused + wrongly else 1.0,
    )
