"""What both drivers demand of an embedder: that there is one, and that it answers what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rtmem.errors import ConfigError, EmbeddingError, RtmemError
from rtmem.steps import Embedder


def required(embedder: Embedder | None) -> Embedder:
    """`embedder`. Raises ConfigError if there is none."""
    if embedder is None:
        raise ConfigError(
            "this call compares texts by meaning, and no embedder was given: make one with "
            "rtmem.embedding.from_settings() and pass it on"
        )
    return embedder


@dataclass(frozen=True, slots=True)
class FailingAsTold:  # contextlib's generators take 1 us of each put and search
    """Whatever an embedder raises is an EmbeddingError, which steps expect: no text is lost by it."""

    embedder: Embedder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, Exception) and not isinstance(exc, RtmemError):
            raise EmbeddingError(
                f"embedder {self.embedder.name!r} failed with {type(exc).__name__}: {exc}", embedder=self.embedder.name
            ) from exc


def rows(vectors: Any, count: int, embedder: Embedder) -> list[Any]:
    """One vector for each of `count` texts. Raises EmbeddingError if they are not what the embedder said.

    Redis would take vectors of another size or type, and leave their documents out of its index without a word; with
    infinite numbers or NaN, it would never find them.
    """
    dtype, shape = getattr(vectors, "dtype", type(vectors).__name__), getattr(vectors, "shape", None)
    if shape != (count, embedder.dims) or dtype != "float32":
        raise EmbeddingError(
            f"embedder {embedder.name!r} answered {count} texts with {dtype} of shape {shape} instead "
            f"of float32 of shape {(count, embedder.dims)}: check its dims",
            embedder=embedder.name,
        )
    if not _have_lengths(vectors):
        raise EmbeddingError(
            f"embedder {embedder.name!r} answered {count} texts with numbers that are infinite, NaN, or too large or "
            "small to tell a direction: normalise its vectors",
            embedder=embedder.name,
        )
    return list(vectors)


def _have_lengths(vectors: Any) -> bool:
    """Whether the engine can compute a length of each, as it does, in float32; only that of zeros may be 0."""
    import numpy as np  # whoever embeds has it; the drivers alone do without

    with np.errstate(all="ignore"):
        squares = np.vecdot(vectors, vectors)
    # Of few numbers Python is the fastest judge, and this is done at each put and search.
    if all(0 < each < np.inf for each in squares.tolist()):
        return True
    return bool((np.isfinite(squares) & ((squares > 0) | ~vectors.any(axis=1))).all())
