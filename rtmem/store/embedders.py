"""What LangGraph's IndexConfig calls `embed`, as an rtmem embedder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langgraph.store.base import ensure_embeddings
from numpy.typing import NDArray

from rtmem.errors import ConfigError, EmbeddingError
from rtmem.steps import Embedder, TextKind


def embedder_of(embed: Any, dims: int | None) -> Embedder:
    """An embedder of rtmem as it is; LangChain's, a function or `provider:model` with an adapter around it.

    Raises ConfigError.
    """
    if hasattr(embed, "fingerprint") and hasattr(embed, "aembed"):
        if dims is not None and dims != embed.dims:
            raise ConfigError(f"index['dims'] is {dims}, and {embed.name} has {embed.dims}: leave dims out")
        ours: Embedder = embed
        return ours
    if type(dims) is not int or dims < 1:
        raise ConfigError(f"index['dims'] is {dims!r}: how many numbers a vector of this embedder has")
    try:
        return LangChainEmbedder(ensure_embeddings(embed), dims)
    except ValueError as exc:
        raise ConfigError(f"index['embed']: {exc}") from exc


class LangChainEmbedder:
    """LangChain's Embeddings, or what LangGraph makes of a function, behind the face of rtmem's."""

    def __init__(self, embeddings: Embeddings, dims: int) -> None:
        self._embeddings = embeddings
        self._dims = dims
        func = getattr(embeddings, "func", None) or getattr(embeddings, "afunc", None)
        kind = func if func is not None else type(embeddings)
        model = getattr(embeddings, "model", None) or getattr(embeddings, "model_name", None) or ""
        self._name = f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', repr(kind))} {model}".strip()

    @property
    def name(self) -> str:
        """Class or function, and the model if it has that attribute."""
        return self._name

    @property
    def fingerprint(self) -> str:
        """By name and dims: LangChain's embeddings tell no more."""
        return f"{self._name} {self._dims}"

    @property
    def dims(self) -> int:
        """How many numbers a vector has."""
        return self._dims

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        with _typed(self._name):
            if what == "query":
                return self._rows([self._embeddings.embed_query(text) for text in texts])
            return self._rows(self._embeddings.embed_documents(list(texts)))

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        with _typed(self._name):
            if what == "query":
                return self._rows([await self._embeddings.aembed_query(text) for text in texts])
            return self._rows(await self._embeddings.aembed_documents(list(texts)))

    def _rows(self, vectors: list[list[float]]) -> NDArray[np.float32]:
        rows = np.asarray(vectors, dtype=np.float32)
        if rows.ndim != 2 or rows.shape[1] != self._dims:
            raise EmbeddingError(f"{self._name} gave vectors of shape {rows.shape}, index['dims'] is {self._dims}")
        return rows


@contextmanager
def _typed(name: str) -> Iterator[None]:
    try:
        yield
    except EmbeddingError:
        raise
    except Exception as exc:  # every provider has errors of its own
        raise EmbeddingError(f"{name} failed: {type(exc).__name__}: {exc}") from exc
