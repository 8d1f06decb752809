"""The ways to rank that are compared, and the grid that is chosen from."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadtest.recall.memory import WINDOW_MAX
from loadtest.recall.scoring import DEPTH_MAX, DEPTHS, mean_at, recalls
from rtmem.operations.retrieval import Ranked, rank
from rtmem.settings import Retrieval

BM25, VECTORS, OURS, STORE = "BM25", "vectors", "rtmem", "rtmem store"
_BARE: Final = Retrieval(
    window=WINDOW_MAX, vector_weight=0.5, sharpness=1.0, smoothing=0.0, recency_weight=0.0, importance_weight=0.0
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was found for a question, and where its answer is."""

    conversation: str
    category: int
    evidence: frozenset[str]
    ranked: list[str]  # what `Memory.retrieve` gave, best first
    stored: list[str]  # what `RedisStore.search` gave
    text: Ranked
    vector: Ranked
    now_ms: int  # when the conversation ended


def ways() -> Mapping[str, Retrieval]:
    """Name -> settings. Ours is end to end; the others rank the lists it was made of, BM25 and vectors one each."""
    changed = msgspec.structs.replace
    return {
        BM25: _BARE,
        VECTORS: _BARE,
        "RRF k=60": changed(_BARE, fusion="rrf", rrf_k=60),
        "RRF k=5, window 30": changed(_BARE, fusion="rrf", rrf_k=5, window=30),
        "rtmem, no neighbours": changed(Retrieval(), smoothing=0.0),
        "rtmem, fusion rrf": Retrieval(fusion="rrf"),
        STORE: Retrieval(),
        OURS: Retrieval(),
    }


def ranking(name: str, settings: Retrieval, asked: Asked) -> list[str]:
    """Ids of turns, best first."""
    if name in (OURS, STORE):
        return asked.ranked if name == OURS else asked.stored
    text = [] if name == VECTORS else asked.text
    vector = [] if name == BM25 else asked.vector
    return [hit.candidate.id for hit in rank(text, vector, asked.now_ms, settings, hits_max=DEPTH_MAX)]


def recall_of(name: str, settings: Retrieval, questions: Sequence[Asked]) -> NDArray[np.float64]:
    """float64, shape (questions, 20)."""
    return np.stack([recalls(ranking(name, settings, asked), asked.evidence) for asked in questions])


def grid() -> Iterator[Retrieval]:
    """What the defaults were chosen from."""
    for alpha, window, sharpness, smoothing, span in itertools.product(
        (0.3, 0.4, 0.5), (30, 50, 100), (1.0, 2.0, 3.0), (0.0, 0.3, 0.4), (1, 2, 3)
    ):
        if smoothing or span == 1:
            yield msgspec.structs.replace(
                Retrieval(),
                vector_weight=alpha,
                window=window,
                sharpness=sharpness,
                smoothing=smoothing,
                smoothing_span=span,
            )


def goodness(recalled: NDArray[np.float64]) -> float:
    """What the choice maximises: the mean of R@5, R@10 and R@20."""
    return sum(mean_at(recalled, depth) for depth in DEPTHS) / len(DEPTHS)
