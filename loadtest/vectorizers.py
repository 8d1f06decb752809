"""rtmem's embedders as RedisVL and LangChain take them, so that peers embed with the same model."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from rtmem.steps import Embedder, TextKind


def redisvl_vectorizer(embedder: Embedder, what: TextKind) -> Any:
    """RedisVL's own way to bring a model along: two functions, blocking and awaiting."""
    from redisvl.utils.vectorize import CustomVectorizer

    def embed(text: str) -> list[float]:
        vector: list[float] = embedder.embed([text], what)[0].tolist()
        return vector

    async def aembed(text: str) -> list[float]:
        vector: list[float] = (await embedder.aembed([text], what))[0].tolist()
        return vector

    return CustomVectorizer(embed=embed, aembed=aembed)


class LangChainEmbeddings(Embeddings):
    """For LangChain's classes. Questions and stored texts are embedded alike, as a cache needs it."""

    def __init__(self, embedder: Embedder, what: TextKind) -> None:
        self._embedder = embedder
        self._what = what

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """See langchain_core.embeddings.Embeddings."""
        vectors: list[list[float]] = self._embedder.embed(texts, self._what).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """See langchain_core.embeddings.Embeddings."""
        return self.embed_documents([text])[0]
