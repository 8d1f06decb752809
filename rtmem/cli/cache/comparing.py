"""Pairs of texts become distances and refusals: each text is embedded once, each pair shown to the guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from rtmem.operations.calibration import Compared
from rtmem.operations.labelled_pairs import LabelledPair
from rtmem.operations.lexical_guard import compare
from rtmem.steps import Embedder, TextKind

EMBEDDED_AS: Final[TextKind] = "query"
"""As the cache embeds what it is asked and what it stores: both are questions."""

_LOT: Final = 32  # texts between two looks at the progress

Guard = Callable[[str, str], str]
"""Why one text must not be answered with what is stored for the other; empty: it may."""


def guard_reason(asked: str, cached: str) -> str:
    """The guard that a cache uses."""
    refusal = compare(asked, cached)
    return "" if refusal is None else refusal.reason


def texts_of(pairs: Sequence[LabelledPair]) -> list[str]:
    """Every text once."""
    return list(dict.fromkeys(text for pair in pairs for text in (pair.first, pair.second)))


def compare_pairs(
    pairs: Sequence[LabelledPair],
    embedder: Embedder,
    guard: Guard | None,
    on_texts: Callable[[int], object] = lambda _count: None,
) -> list[Compared]:
    """What a cache would look at, of each pair; the first text is stored, and the second asked.

    Args:
        guard: None lets everything pass.
        on_texts: told how many texts were embedded just now.

    Raises:
        EmbeddingError: see steps.Embedder.
    """
    texts = texts_of(pairs)
    place = {text: number for number, text in enumerate(texts)}
    vectors = np.empty((len(texts), embedder.dims), np.float32)
    for lot in _lots(len(texts)):
        vectors[lot] = embedder.embed(texts[lot], EMBEDDED_AS)
        on_texts(lot.stop - lot.start)
    first = vectors[[place[pair.first] for pair in pairs]]
    second = vectors[[place[pair.second] for pair in pairs]]
    distances = np.maximum(0.0, 1.0 - np.einsum("ij,ij->i", first, second)).tolist()
    return [
        Compared(pair.kind, distance, guard(pair.second, pair.first) if guard else "")
        for pair, distance in zip(pairs, distances, strict=True)
    ]


def _lots(count: int) -> Iterator[slice]:
    for first in range(0, count, _LOT):
        yield slice(first, min(first + _LOT, count))
