"""Any `Embeddings` of LangChain, and with it any provider that LangChain knows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from rtmem.embedding.contract import PASSING, encodable, unit_rows
from rtmem.errors import EmbeddingError, EmbeddingUnavailableError
from rtmem.steps import TextKind


class LangChainEmbedder:
    """`embeddings` as rtmem uses them. They retry by themselves, or not at all.

    Args:
        dims: how many numbers their vectors have, as in LangGraph's IndexConfig.
        fingerprint: tells vectors of this model from those of any other. By default the class and its `model`, or the
            function that LangGraph made it of; give one where these do not tell two models apart.
    """

    def __init__(self, embeddings: Embeddings, dims: int, *, fingerprint: str = "") -> None:
        self.embeddings = embeddings
        self.dims = dims
        self.name = _name(embeddings)
        self.fingerprint = f"{fingerprint or f'langchain:{self.name}'}:{dims}"

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder."""
        texts = [encodable(text) for text in texts]
        try:
            if what == "query":
                vectors = [self.embeddings.embed_query(text) for text in texts]
            else:
                vectors = self.embeddings.embed_documents(texts)
        except Exception as exc:
            raise self._translated(exc, len(texts)) from exc
        return unit_rows(vectors, len(texts), self.dims, self.name)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        """See steps.Embedder. Embeddings that can only block do so in a thread (LangChain's own default)."""
        texts = [encodable(text) for text in texts]
        try:
            if what == "query":
                vectors = [await self.embeddings.aembed_query(text) for text in texts]
            else:
                vectors = await self.embeddings.aembed_documents(texts)
        except Exception as exc:
            raise self._translated(exc, len(texts)) from exc
        return unit_rows(vectors, len(texts), self.dims, self.name)

    def _translated(self, exc: Exception, count: int) -> EmbeddingError:
        # Providers' SDKs agree on the attribute, not on a class.
        passing = isinstance(exc, TimeoutError | ConnectionError) or getattr(exc, "status_code", 0) in PASSING
        kind = EmbeddingUnavailableError if passing else EmbeddingError
        return kind(
            f"{self.name} gave no vectors for {count} texts: {type(exc).__name__}: {exc}: "
            + ("try again later" if passing else "check its model and key"),
            model=self.name,
        )


def _name(embeddings: Embeddings) -> str:
    # LangGraph's `ensure_embeddings` puts functions into a class of its own.
    kind = getattr(embeddings, "func", None) or getattr(embeddings, "afunc", None) or type(embeddings)
    model = next(
        (str(found) for name in ("model", "model_name", "model_id") if (found := getattr(embeddings, name, ""))), ""
    )
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', type(kind).__qualname__)} {model}".strip()
