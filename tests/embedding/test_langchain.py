"""LangChain's Embeddings as rtmem's: a real provider's client, classes that can only block, functions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_openai import OpenAIEmbeddings
from langgraph.store.base import ensure_embeddings

from rtmem.embedding import LangChainEmbedder
from rtmem.errors import EmbeddingError, EmbeddingUnavailableError
from tests.embedding.embedding_server import DIMS, Script, serving, vector

pytestmark = pytest.mark.anyio


@pytest.fixture
def script() -> Iterator[Script]:
    with serving() as script:
        yield script


@asynccontextmanager
async def openai(script: Script) -> AsyncIterator[OpenAIEmbeddings]:
    """With connections of its own: those that all OpenAIEmbeddings share are never closed."""
    async with httpx.AsyncClient() as awaiting:
        with httpx.Client() as blocking:
            yield OpenAIEmbeddings(
                model="tiny",
                base_url=script.url,
                api_key="none",
                check_embedding_ctx_length=False,
                max_retries=0,
                http_client=blocking,
                http_async_client=awaiting,
            )


class Blocking(Embeddings):
    """Embeddings with nothing but the blocking half, as most local ones are."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.error: Exception | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.threads.append(threading.current_thread())
        if self.error is not None:
            raise self.error
        return [vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0, *vector(text)[1:]]


async def test_a_providers_client_embeds_documents_and_questions_in_both_colours(script: Script) -> None:
    async with openai(script) as embeddings:
        embedder = LangChainEmbedder(embeddings, DIMS)
        rows = embedder.embed(["a", "bb"])
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
        assert np.array_equal(rows, await embedder.aembed(["a", "bb"]))
        assert np.array_equal(embedder.embed(["a"], "query"), await embedder.aembed(["a"], "query"))
    assert [body["input"] for body in script.bodies] == [["a", "bb"], ["a", "bb"], ["a"], ["a"]]


@pytest.mark.parametrize(
    ("status", "kind"), [(429, EmbeddingUnavailableError), (503, EmbeddingUnavailableError), (401, EmbeddingError)]
)
async def test_what_a_provider_refuses_is_typed(status: int, kind: type[EmbeddingError], script: Script) -> None:
    script.always = (status, {}, {"error": {"message": "no"}})
    async with openai(script) as embeddings:
        embedder = LangChainEmbedder(embeddings, DIMS)
        with pytest.raises(EmbeddingError, match="OpenAIEmbeddings tiny gave no vectors for 1 texts") as blocking:
            embedder.embed(["a"])
        with pytest.raises(EmbeddingError) as awaiting:
            await embedder.aembed(["a"])
    assert type(blocking.value) is type(awaiting.value) is kind


async def test_embeddings_that_can_only_block_do_so_in_a_thread() -> None:
    blocking = Blocking()
    embedder = LangChainEmbedder(blocking, DIMS)
    await embedder.aembed(["a", "\ud800"])
    assert blocking.threads[0] is not threading.current_thread()
    assert not np.array_equal(await embedder.aembed(["aa"], "query"), await embedder.aembed(["aa"]))


async def test_any_failure_is_an_embedding_error_with_its_cause() -> None:
    blocking = Blocking()
    embedder = LangChainEmbedder(blocking, DIMS)
    for error, kind in ((ValueError("too long"), EmbeddingError), (TimeoutError(), EmbeddingUnavailableError)):
        blocking.error = error
        with pytest.raises(EmbeddingError) as raised:
            await embedder.aembed(["a"])
        assert type(raised.value) is kind
        assert type(raised.value.__cause__) is type(error)  # asyncio makes a TimeoutError anew


async def test_vectors_of_another_size_are_refused() -> None:
    with pytest.raises(EmbeddingError, match=r"shape \(1, 3\) instead of \(1, 4\)"):
        LangChainEmbedder(Blocking(), 4).embed(["a"])
    assert LangChainEmbedder(Blocking(), 4).embed([]).shape == (0, 4)


async def first(texts: list[str]) -> list[list[float]]:
    await asyncio.sleep(0)
    return [vector(text) for text in texts]


def second(texts: list[str]) -> list[list[float]]:
    return [vector(text) for text in texts]


async def test_functions_embed_too_and_are_told_apart() -> None:
    embedders = [LangChainEmbedder(ensure_embeddings(function), DIMS) for function in (first, second)]
    here, there = [await embedder.aembed(["a", "bb"]) for embedder in embedders]
    assert np.array_equal(here, there)
    assert len({embedder.fingerprint for embedder in embedders}) == 2


def test_two_models_or_sizes_are_told_apart_and_a_given_fingerprint_counts() -> None:
    tiny, large = Blocking(), Blocking()
    tiny.model, large.model = "tiny", "large"  # type: ignore[attr-defined]
    embedders = [
        LangChainEmbedder(tiny, 3),
        LangChainEmbedder(large, 3),
        LangChainEmbedder(tiny, 4),
        LangChainEmbedder(tiny, 3, fingerprint="mine"),
        LangChainEmbedder(Blocking(), 3),
    ]
    assert len({embedder.fingerprint for embedder in embedders}) == len(embedders)
    assert LangChainEmbedder(tiny, 3).fingerprint == embedders[0].fingerprint
