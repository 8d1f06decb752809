"""The cache of vectors: bounded, shared by threads and tasks, and no text is computed twice at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio.to_thread
import numpy as np
import pytest

from rtmem.embedding import CachingEmbedder
from rtmem.embedding.caching import ENTRY_BYTES
from rtmem.errors import EmbeddingError, EmbeddingUnavailableError
from rtmem.steps import TextKind

pytestmark = pytest.mark.anyio

DIMS = 4
ENTRY = DIMS * 4 + ENTRY_BYTES


class Counting:
    """Says what it was asked, and waits until it may answer."""

    name = "counting"
    fingerprint = "counting"
    dims = DIMS

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], TextKind]] = []
        self.error: Exception | None = None
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.go.set()
        self.closed = 0

    def vectors(self, texts: Sequence[str], what: TextKind) -> Any:
        if self.error is not None:
            raise self.error
        numbers = [[len(text), what == "query", text.count("a"), 1] for text in texts]
        return np.array(numbers, dtype=np.float32)

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> Any:
        self.asked.append((tuple(texts), what))
        self.begun.release()
        assert self.go.wait(60)
        return self.vectors(texts, what)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> Any:
        self.asked.append((tuple(texts), what))
        self.begun.release()
        assert await anyio.to_thread.run_sync(self.go.wait, 60, abandon_on_cancel=True)
        return self.vectors(texts, what)

    def close(self) -> None:
        self.closed += 1

    async def aclose(self) -> None:
        self.closed += 1


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def embedder(counting: Counting) -> CachingEmbedder:
    return CachingEmbedder(counting, 100 * ENTRY)


async def begun(counting: Counting) -> None:
    assert await anyio.to_thread.run_sync(partial(counting.begun.acquire, timeout=60))


async def turns() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_text_is_computed_once_and_its_vector_stays_the_same(
    counting: Counting, embedder: CachingEmbedder
) -> None:
    first = embedder.embed(["a", "bb", "a"])
    assert np.array_equal(first, counting.vectors(["a", "bb", "a"], "document"))
    again = await embedder.aembed(["bb", "ccc", "a"])
    assert np.array_equal(again, counting.vectors(["bb", "ccc", "a"], "document"))
    assert counting.asked == [(("a", "bb"), "document"), (("ccc",), "document")]
    first[:] = 0  # a caller's own copy
    assert np.array_equal(embedder.embed(["a"]), counting.vectors(["a"], "document"))
    assert embedder.embed([]).shape == (0, DIMS)


def test_a_question_and_a_document_of_the_same_words_are_two(counting: Counting, embedder: CachingEmbedder) -> None:
    embedder.embed(["a"], "document")
    assert np.array_equal(embedder.embed(["a"], "query"), counting.vectors(["a"], "query"))
    assert len(counting.asked) == 2


def test_any_string_can_be_remembered(counting: Counting, embedder: CachingEmbedder) -> None:
    texts = ["\ud800", "\ud801", "\0", "", "?", "document\0a", "a"]
    embedder.embed(texts)
    embedder.embed(texts)
    assert counting.asked == [(tuple(texts), "document")]


def test_it_shows_the_face_of_its_embedder_and_closes_it(counting: Counting, embedder: CachingEmbedder) -> None:
    assert (embedder.name, embedder.fingerprint, embedder.dims) == ("counting", "counting", DIMS)
    embedder.close()
    asyncio.run(embedder.aclose())
    assert counting.closed == 2


def test_memory_is_bounded_and_the_least_recently_used_goes_first(counting: Counting) -> None:
    embedder = CachingEmbedder(counting, 3 * ENTRY)
    for text in ("a", "b", "c", "a", "d"):  # b goes
        embedder.embed([text])
    assert embedder.cached_bytes == 3 * ENTRY
    counting.asked.clear()
    embedder.embed(["a", "c", "d"])
    assert counting.asked == []
    embedder.embed(["b"])
    assert counting.asked == [(("b",), "document")]
    embedder.embed([str(n) for n in range(1_000)])
    assert embedder.cached_bytes == 3 * ENTRY


def test_a_remembered_vector_does_not_keep_its_whole_batch_in_memory(embedder: CachingEmbedder) -> None:
    embedder.embed([str(n) for n in range(50)])
    assert all(vector.base is None for vector in embedder._known.values())


def test_nothing_is_remembered_with_no_bytes(counting: Counting) -> None:
    embedder = CachingEmbedder(counting, 0)
    embedder.embed(["a"])
    embedder.embed(["a"])
    assert (len(counting.asked), embedder.cached_bytes) == (2, 0)


async def test_tasks_that_ask_for_one_text_at_the_same_time_share_its_computing(
    counting: Counting, embedder: CachingEmbedder
) -> None:
    counting.go.clear()
    tasks = [asyncio.create_task(embedder.aembed(["a", f"own {n}"])) for n in range(20)]
    await begun(counting)
    await turns()
    counting.go.set()
    vectors = await asyncio.gather(*tasks)
    assert all(np.array_equal(row[0], vectors[0][0]) for row in vectors)
    assert sum(texts.count("a") for texts, _ in counting.asked) == 1


def test_threads_that_ask_for_one_text_at_the_same_time_share_its_computing(
    counting: Counting, embedder: CachingEmbedder
) -> None:
    counting.go.clear()
    meet = threading.Barrier(8)

    def ask(_: int) -> Any:
        meet.wait(60)
        return embedder.embed(["a"])

    with ThreadPoolExecutor(9) as threads:
        answers = [threads.submit(ask, n) for n in range(8)]
        assert counting.begun.acquire(timeout=60)
        counting.go.set()
        assert all(np.array_equal(answer.result(60), counting.vectors(["a"], "document")) for answer in answers)
    assert len(counting.asked) == 1


async def test_threads_and_tasks_share_with_each_other(counting: Counting, embedder: CachingEmbedder) -> None:
    counting.go.clear()
    thread = asyncio.create_task(asyncio.to_thread(embedder.embed, ["a"]))
    await begun(counting)
    task = asyncio.create_task(embedder.aembed(["a"]))
    await turns()
    counting.go.set()
    assert np.array_equal(await thread, await task)
    assert len(counting.asked) == 1


async def test_two_who_wait_for_each_others_texts_both_get_them(counting: Counting, embedder: CachingEmbedder) -> None:
    counting.go.clear()
    tasks = [asyncio.create_task(embedder.aembed(texts)) for texts in (["a", "b"], ["b", "c"], ["c", "a"])]
    await turns()
    counting.go.set()
    for task in tasks:
        assert len(await asyncio.wait_for(task, 60)) == 2
    assert sorted(text for texts, _ in counting.asked for text in texts) == ["a", "b", "c"]


async def test_who_waits_for_a_cancelled_caller_computes_the_text_itself(
    counting: Counting, embedder: CachingEmbedder
) -> None:
    counting.go.clear()
    first = asyncio.create_task(embedder.aembed(["a"]))
    await begun(counting)
    second, third = (asyncio.create_task(embedder.aembed(["a"])) for _ in range(2))
    await turns()
    first.cancel()
    await begun(counting)
    counting.go.set()
    assert len(await second) == len(await third) == 1
    assert first.cancelled()
    assert len(counting.asked) == 2


async def test_a_cancelled_waiter_takes_nothing_from_the_others(counting: Counting, embedder: CachingEmbedder) -> None:
    counting.go.clear()
    tasks = [asyncio.create_task(embedder.aembed(["a"])) for _ in range(3)]
    await begun(counting)
    await turns()
    tasks[1].cancel()
    await turns()
    counting.go.set()
    assert len(await tasks[0]) == len(await tasks[2]) == 1
    assert len(counting.asked) == 1


async def test_a_failure_is_told_to_all_who_wait_and_is_not_remembered(
    counting: Counting, embedder: CachingEmbedder
) -> None:
    counting.error = EmbeddingUnavailableError("overloaded", model="counting")
    counting.go.clear()
    tasks = [asyncio.create_task(embedder.aembed(["a"])) for _ in range(3)]
    await begun(counting)
    await turns()
    counting.go.set()
    errors = await asyncio.gather(*tasks, return_exceptions=True)
    assert [(type(exc), str(exc)) for exc in errors] == [(EmbeddingUnavailableError, "overloaded")] * 3
    assert len({id(exc) for exc in errors}) == 3  # each its own: a shared one would collect all their tracebacks
    assert len(counting.asked) == 1
    counting.error = None
    assert len(await embedder.aembed(["a"])) == 1


async def test_an_unexpected_failure_is_raised_where_it_happened_and_leaves_nobody_waiting(
    counting: Counting, embedder: CachingEmbedder
) -> None:
    counting.error = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        embedder.embed(["a"])
    with pytest.raises(ZeroDivisionError):
        await embedder.aembed(["a"])
    counting.error = None
    assert len(await asyncio.wait_for(embedder.aembed(["a"]), 60)) == 1


async def test_a_blocking_call_on_the_event_loop_never_waits_for_a_task_of_that_loop(
    counting: Counting, embedder: CachingEmbedder
) -> None:
    counting.go.clear()
    task = asyncio.create_task(embedder.aembed(["a"]))
    await begun(counting)
    counting.go.set()
    assert len(embedder.embed(["a"])) == 1  # the task cannot go on before this returns
    assert len(await task) == 1
    assert len(counting.asked) == 2


def test_vectors_of_a_wrong_count_are_an_error_and_not_mixed_up(counting: Counting, embedder: CachingEmbedder) -> None:
    counting.vectors = lambda texts, what: np.ones((1, DIMS), np.float32)  # type: ignore[method-assign]
    with pytest.raises((EmbeddingError, ValueError)):
        embedder.embed(["a", "b"])
    assert embedder.cached_bytes == 0
