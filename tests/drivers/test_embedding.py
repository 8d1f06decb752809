"""Requests for embeddings: who answers them, what is thrown into the steps, and what goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import redis

from rtmem.drivers import AsyncDriver
from rtmem.errors import ConfigError, EmbeddingError, EmbeddingUnavailableError
from rtmem.steps import Batch, Begin, Embed, Steps
from tests.drivers.colours import COLOURS, Colour, talking

pytestmark = pytest.mark.anyio
BOTH_COLOURS = pytest.mark.parametrize("colour", COLOURS)


class Letters:
    """Vectors that tell how many a and b a text has: nothing that a language model would say, and easy to check."""

    name = "letters"
    fingerprint = "letters"
    dims = 2

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], str]] = []
        self.error: Exception | None = None

    def embed(self, texts: Sequence[str], what: str = "document") -> Any:
        self.asked.append((tuple(texts), what))
        if self.error:
            raise self.error
        counts = np.array([[text.count("a"), text.count("b")] for text in texts], dtype=np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)

    async def aembed(self, texts: Sequence[str], what: str = "document") -> Any:
        return self.embed(texts, what)


class Held(Letters):
    """Answers when it is told to, and says when it was asked and cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def aembed(self, texts: Sequence[str], what: str = "document") -> Any:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return self.embed(texts, what)


def embeddings(*texts: str, what: Any = "document") -> Steps[list[Any]]:
    return (yield Embed(texts, what))


@BOTH_COLOURS
async def test_texts_are_answered_with_one_vector_each_in_order(colour: Colour, redis_url: str) -> None:
    letters = Letters()
    async with talking(colour, redis_url, lazy=True) as talker:
        vectors = await talker.run(embeddings("b", "a", "ba", what="query"), letters)
        assert await talker.run(embeddings(), letters) == []
    assert [vector.tolist() for vector in vectors[:2]] == [[0, 1], [1, 0]]
    assert [(vector.dtype.name, vector.shape, vector.flags.c_contiguous) for vector in vectors] == [
        ("float32", (2,), True)
    ] * 3
    assert letters.asked == [(("b", "a", "ba"), "query")]  # no texts: nobody is asked


@BOTH_COLOURS
async def test_steps_that_embed_need_an_embedder(colour: Colour, redis_url: str) -> None:
    async with talking(colour, redis_url, lazy=True) as talker:
        with pytest.raises(ConfigError, match="no embedder was given"):
            await talker.run(embeddings("a"))


@BOTH_COLOURS
async def test_a_failure_to_embed_is_thrown_into_the_steps_which_may_go_on(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    def stored_anyway() -> Steps[Exception | None]:
        try:
            yield Embed(("a",))
        except EmbeddingError as exc:
            yield Batch((("SET", "k", "not embedded"),))
            return exc
        return None

    letters = Letters()
    letters.error = EmbeddingUnavailableError("model 'letters' is overloaded: try again")
    async with talking(colour, redis_url) as talker:
        assert await talker.run(stored_anyway(), letters) is letters.error
        with pytest.raises(EmbeddingUnavailableError):
            await talker.run(embeddings("a"), letters)
    assert redis_client.get("k") == b"not embedded"


@BOTH_COLOURS
async def test_vectors_of_another_size_or_type_never_reach_redis(colour: Colour, redis_url: str) -> None:
    wide, doubles = Letters(), Letters()
    wide.dims = 3
    doubles.embed = lambda texts, what="document": np.ones((len(texts), 2))  # type: ignore[method-assign]
    async with talking(colour, redis_url, lazy=True) as talker:
        with pytest.raises(EmbeddingError, match=r"float32 of shape \(1, 2\) instead of float32 of shape \(1, 3\)"):
            await talker.run(embeddings("a"), wide)
        with pytest.raises(EmbeddingError, match="float64"):
            await talker.run(embeddings("a"), doubles)


@BOTH_COLOURS
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.array([[np.nan, 1]], np.float32), "NaN"),
        (np.array([[np.inf, 1]], np.float32), "infinite"),
        (np.array([[1e30, 1]], np.float32), "too large"),
        (np.array([[1e-30, 0]], np.float32), "small"),
        ([[0.0, 1.0]], "with list of shape None"),
        (None, "with NoneType"),
    ],
)
async def test_vectors_that_would_never_be_found_are_failures_to_embed(
    colour: Colour, redis_url: str, answer: Any, words: str
) -> None:
    letters = Letters()
    letters.embed = lambda texts, what="document": answer  # type: ignore[method-assign]
    async with talking(colour, redis_url, lazy=True) as talker:
        with pytest.raises(EmbeddingError, match=words):
            await talker.run(embeddings("a"), letters)


@BOTH_COLOURS
async def test_whatever_an_embedder_raises_is_a_failure_to_embed(colour: Colour, redis_url: str) -> None:
    letters = Letters()
    letters.error = KeyError("data")
    async with talking(colour, redis_url, lazy=True) as talker:
        with pytest.raises(EmbeddingError, match="embedder 'letters' failed with KeyError: 'data'") as caught:
            await talker.run(embeddings("a"), letters)
    assert caught.value.__cause__ is letters.error


def beside(text: str) -> Steps[tuple[list[Any], list[Any]]]:
    (begun,) = yield Begin(Embed((text,), "query"))
    replies = yield Batch((("GET", "k"),))
    return (yield begun), replies


@BOTH_COLOURS
async def test_what_was_begun_is_answered_when_it_is_asked_for(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    redis_client.set("k", "v")
    async with talking(colour, redis_url) as talker:
        (vector,), replies = await talker.run(beside("a"), Letters())
    assert (vector.tolist(), replies) == ([1, 0], [b"v"])


@BOTH_COLOURS
async def test_the_error_of_what_was_begun_is_thrown_where_it_is_asked_for(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    def exact_at_least() -> Steps[list[Any]]:
        (begun,) = yield Begin(Embed(("a",)))
        replies = yield Batch((("GET", "k"),))
        try:
            yield begun
        except EmbeddingError:
            return replies
        return []

    redis_client.set("k", "v")
    letters = Letters()
    letters.error = EmbeddingError("no")
    async with talking(colour, redis_url) as talker:
        assert await talker.run(exact_at_least(), letters) == [b"v"]


async def test_redis_is_asked_while_an_embedding_is_under_way(redis_url: str, redis_client: redis.Redis) -> None:
    held = Held()

    def overlapping() -> Steps[list[Any]]:
        (begun,) = yield Begin(Embed(("a",)))
        yield Batch((("GET", "k"),))
        # Redis has answered, and the embedding was not waited for; only now it may end.
        held.go.set()
        return (yield begun)

    async with await AsyncDriver.connect(redis_url) as driver:
        (vector,) = await asyncio.wait_for(driver.run(overlapping(), held), 30)
    assert held.begun.is_set()
    assert vector.tolist() == [1, 0]


async def test_an_embedding_that_nobody_needs_any_more_is_cancelled(redis_url: str, redis_client: redis.Redis) -> None:
    held = Held()

    def exact_hit() -> Steps[list[Any]]:
        yield Begin(Embed(("a",)))
        return (yield Batch((("GET", "k"),)))

    redis_client.set("k", "v")
    async with await AsyncDriver.connect(redis_url) as driver:
        assert await driver.run(exact_hit(), held) == [b"v"]
        await asyncio.wait_for(held.cancelled.wait(), 30)


async def test_cancelling_the_caller_cancels_what_it_began(redis_url: str) -> None:
    held = Held()
    async with await AsyncDriver.connect(redis_url) as driver:
        caller = asyncio.create_task(driver.run(beside("a"), held))
        await asyncio.wait_for(held.begun.wait(), 30)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await asyncio.wait_for(held.cancelled.wait(), 30)


async def test_the_blocking_driver_does_not_begin_what_nobody_asks_for(
    redis_url: str, redis_client: redis.Redis
) -> None:
    letters = Letters()

    def exact_hit() -> Steps[list[Any]]:
        yield Begin(Embed(("a",)))
        return (yield Batch((("GET", "k"),)))

    async with talking("sync", redis_url) as talker:
        assert await talker.run(exact_hit(), letters) == [None]
    assert letters.asked == []
