"""A stream that several may wait for: the one who asked first hears the model speak, the cache keeps what was said.

`ask` is a cache's get_or_compute that lacks only what computes; `live` is the model's own stream.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Any, TypeAlias

from langchain_core.outputs import ChatGenerationChunk

from rtmem.agent.cache.chunks import copy_of, kept_stream
from rtmem.cache import Outcome

Chunk: TypeAlias = ChatGenerationChunk
Replay: TypeAlias = Callable[[Outcome], Iterator[Chunk] | None]
"""None: there is nothing in it that could be streamed."""


class _Left(Exception):
    """Nobody listens to the stream any more."""


def shared(
    ask: Callable[[Callable[[], Any]], Outcome], live: Callable[[], Iterator[Chunk]], replay: Replay
) -> Generator[Chunk, None, None]:
    """The model's stream as it comes, or that of an answer which somebody else asked for.

    The model is read in a thread, in which the cache waits for the whole of it. Who stops listening stops it at its
    next chunk, and nothing is kept.
    """
    heard: queue.SimpleQueue[Chunk | None] = (
        queue.SimpleQueue()
    )  # no longer than the answer, which is kept whole anyway
    left = threading.Event()
    ended: Future[Outcome] = Future()
    is_live = threading.Event()

    def compute() -> Any:
        is_live.set()
        whole = []
        for chunk in () if left.is_set() else live():
            whole.append(copy_of(chunk))
            heard.put(chunk)
            if left.is_set():
                break
        if left.is_set():
            raise _Left
        return kept_stream(whole)

    def run() -> None:
        try:
            ended.set_result(ask(compute))
        except BaseException as exc:  # noqa: BLE001 - raised again where the answer is waited for
            ended.set_exception(exc)
        finally:
            heard.put(None)

    run_here = contextvars.copy_context().run
    threading.Thread(target=run_here, args=(run,), daemon=True, name="rtmem-cached-model").start()
    try:
        while (chunk := heard.get()) is not None:
            yield chunk
        outcome = ended.result()
    finally:
        left.set()
    if not is_live.is_set():
        chunks = replay(outcome)
        yield from live() if chunks is None else chunks


async def ashared(
    ask: Callable[[Callable[[], Any]], Awaitable[Outcome]], live: Callable[[], AsyncIterator[Chunk]], replay: Replay
) -> AsyncGenerator[Chunk, None]:
    """See `shared`. The model is read in a task; who stops listening cancels it."""
    heard: asyncio.Queue[Chunk | None] = asyncio.Queue()
    is_live = asyncio.Event()

    async def compute() -> Any:
        is_live.set()
        whole = []
        async for chunk in live():
            whole.append(copy_of(chunk))
            heard.put_nowait(chunk)
        return kept_stream(whole)

    async def run() -> Outcome:
        return await ask(compute)

    def end(task: asyncio.Task[Outcome]) -> None:
        heard.put_nowait(None)
        if not task.cancelled():
            task.exception()  # who has left does not want to hear of it

    task = asyncio.create_task(run())
    task.add_done_callback(end)
    try:
        while (chunk := await heard.get()) is not None:
            yield chunk
        outcome = await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
    if is_live.is_set():
        return
    chunks = replay(outcome)
    if chunks is None:
        async for chunk in live():
            yield chunk
        return
    for chunk in chunks:
        yield chunk
