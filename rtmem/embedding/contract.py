"""What all embedders do with what goes in and comes out: texts that can be encoded, rows of unit length."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rtmem.errors import EmbeddingError

PASSING: Final = frozenset({408, 409, 425, 429, *range(500, 600)})
"""HTTP statuses after which the same request may succeed."""

_NOTHING: Final = 1e-12
"""A vector that is shorter has no direction."""


def encodable(text: str) -> str:
    """`text` without lone surrogates: Python's strings can hold them, UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def unit_rows(vectors: ArrayLike, count: int, dims: int, name: str) -> NDArray[np.float32]:
    """`vectors` of the model `name`, scaled to unit length: float32, shape (count, dims), C-contiguous.

    Raises:
        EmbeddingError: there are more or fewer, they are of another size, or they have no direction.
    """
    if not count:
        return np.empty((0, dims), np.float32)
    try:
        rows = np.ascontiguousarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as exc:
        raise EmbeddingError(
            f"model {name!r} answered {count} texts with something that is not rows of numbers ({exc}): is it a model "
            "for embeddings?",
            model=name,
        ) from exc
    if rows.shape != (count, dims):
        raise EmbeddingError(
            f"model {name!r} answered {count} texts with vectors of shape {rows.shape} instead of {(count, dims)}: set "
            "dims to what the model gives, and reindex what was stored",
            model=name,
        )
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not (np.isfinite(lengths).all() and (lengths > _NOTHING).all()):
        raise EmbeddingError(f"model {name!r} gave a vector without direction (zero, infinite or NaN)", model=name)
    scaled: NDArray[np.float32] = rows / lengths
    return scaled
