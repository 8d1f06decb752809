"""What both drivers demand of an embedder: that there is one, and that it answers what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtmem.errors import ConfigError, EmbeddingError
from rtmem.steps import Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def required(embedder: Embedder | None) -> Embedder:
    """`embedder`. Raises ConfigError if there is none."""
    if embedder is None:
        raise ConfigError(
            "this call compares texts by meaning, and no embedder was given: make one with "
            "rtmem.embedding.from_settings() and pass it on"
        )
    return embedder


def rows(vectors: NDArray[np.float32], count: int, embedder: Embedder) -> list[Any]:
    """One vector for each of `count` texts. Raises EmbeddingError if they are not what the embedder said.

    Redis would take vectors of another size or type, and leave their documents out of its index without a word.
    """
    if vectors.shape != (count, embedder.dims) or vectors.dtype != "float32":
        raise EmbeddingError(
            f"embedder {embedder.name!r} answered {count} texts with {vectors.dtype} of shape {vectors.shape} instead "
            f"of float32 of shape {(count, embedder.dims)}: check its dims",
            embedder=embedder.name,
        )
    return list(vectors)
