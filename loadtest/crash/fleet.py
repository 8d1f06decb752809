"""Writers through rtmem's own savers, in both colours and both kinds, and turns through a gateway, until the crash.

A writer is `async (Ledger, Event) -> None` that writes until it is told to stop or a call fails; a store's writer would
be one more in `Fleet.writers`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, empty_checkpoint

from loadtest.crash.ledger import Ledger, Thread
from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
from rtmem.errors import RtmemError
from rtmem.settings import Ack

T = TypeVar("T")

Writer: TypeAlias = Callable[[Ledger, threading.Event], Coroutine[Any, Any, None]]

TASK_ID: Final = "task"
_QUIET_PAUSE_S: Final = 0.01
_CLOSE_TIMEOUT_S: Final = 10.0
# Nothing is tried again: what did not return is not acknowledged. The deadline only bounds the end of a run.
_CONNECTION: Final = {"deadline_ms": 10_000, "retries_max": 0}


@dataclass(frozen=True, slots=True)
class Crew:
    """How many threads each kind of saver writes at once."""

    asynchronous: int = 12
    asynchronous_shallow: int = 6
    synchronous: int = 3
    synchronous_shallow: int = 2
    quiet: bool = False  # small states, and a pause after each call

    def times(self, factor: int) -> Crew:
        """A crew that is larger by a factor."""
        return replace(
            self,
            asynchronous=self.asynchronous * factor,
            asynchronous_shallow=self.asynchronous_shallow * factor,
            synchronous=self.synchronous * factor,
            synchronous_shallow=self.synchronous_shallow * factor,
        )


async def run_fleet(
    url: str,
    ack: Ack,
    *,
    seed: str,
    crew: Crew,
    crash: Callable[[Ledger], Awaitable[float]],
    others: Sequence[Writer] = (),
) -> tuple[Ledger, float]:
    """Let a crew, and `others`, write until `crash` has done its work.

    Args:
        crash: is given the ledger as it grows; returns the moment (monotonic, in seconds) until which
            acknowledgements count.

    Returns:
        The ledger, and that moment.
    """
    ledger, over = Ledger(), threading.Event()
    async with AsyncExitStack() as stack:
        writers = [*(await _crew(stack, url, ack, seed, crew)), *others]
        async with anyio.create_task_group() as fleet:
            for writer in writers:
                fleet.start_soon(writer, ledger, over)
            try:
                moment_s = await crash(ledger)
            finally:
                over.set()
                fleet.cancel_scope.cancel()
    return ledger, moment_s


async def _crew(stack: AsyncExitStack, url: str, ack: Ack, seed: str, crew: Crew) -> list[Writer]:
    """A writer per thread; the savers are closed with the stack."""
    options: dict[str, Any] = {"ack": ack, "connection_args": _CONNECTION}
    full = await stack.enter_async_context(AsyncRedisSaver.from_conn_string(url, **options))
    shallow = await stack.enter_async_context(AsyncShallowRedisSaver.from_conn_string(url, **options))
    blocking = stack.enter_context(ExitStack())
    sync_full = blocking.enter_context(RedisSaver(url, **options))
    sync_shallow = blocking.enter_context(ShallowRedisSaver(url, **options))
    thread = partial(Thread, seed=seed, small=crew.quiet)
    shallow_thread = partial(thread, shallow=True)
    pause_s = _QUIET_PAUSE_S if crew.quiet else 0.0
    return [
        *(_asynchronous(full, thread(f"async-{n}"), pause_s) for n in range(crew.asynchronous)),
        *(
            _asynchronous(shallow, shallow_thread(f"async-shallow-{n}"), pause_s)
            for n in range(crew.asynchronous_shallow)
        ),
        *(_synchronous(sync_full, thread(f"sync-{n}"), pause_s) for n in range(crew.synchronous)),
        *(
            _synchronous(sync_shallow, shallow_thread(f"sync-shallow-{n}"), pause_s)
            for n in range(crew.synchronous_shallow)
        ),
    ]


@asynccontextmanager
async def undisturbed(context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """`context`, which a fleet that is called off leaves in peace: else its sockets would stay open."""
    entered = await context.__aenter__()
    try:
        yield entered
    finally:
        with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await context.__aexit__(None, None, None)


def config_of(thread: Thread) -> RunnableConfig:
    return {"configurable": {"thread_id": thread.name, "checkpoint_ns": ""}}


def checkpoint_of(thread: Thread, number: int) -> Checkpoint:
    """A checkpoint of LangGraph's shape with the thread's state in it."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = thread.state(number)
    checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], f"{number:07}.aaaaaa")
    return checkpoint


def writes_of(number: int) -> list[tuple[str, Any]]:
    """What put_writes is given for checkpoint `number`."""
    return [("text", f"write-{number}")]


def _asynchronous(saver: AsyncRedisSaver, thread: Thread, pause_s: float) -> Writer:
    async def write(ledger: Ledger, over: threading.Event) -> None:
        config, number = config_of(thread), 0
        try:
            while not over.is_set():
                number += 1
                checkpoint = checkpoint_of(thread, number)
                config = await saver.aput(config, checkpoint, {"step": number}, checkpoint["channel_versions"])
                ledger.add("put", thread, checkpoint["id"], number)
                await anyio.sleep(pause_s)
                await saver.aput_writes(config, writes_of(number), TASK_ID)
                ledger.add("put_writes", thread, checkpoint["id"], number)
                await anyio.sleep(pause_s)
        except RtmemError as exc:
            ledger.refused.append(f"{type(exc).__name__}: {exc}")

    return write


def _synchronous(saver: RedisSaver, thread: Thread, pause_s: float) -> Writer:
    def write(ledger: Ledger, over: threading.Event) -> None:
        config, number = config_of(thread), 0
        try:
            while not over.is_set():
                number += 1
                checkpoint = checkpoint_of(thread, number)
                config = saver.put(config, checkpoint, {"step": number}, checkpoint["channel_versions"])
                ledger.add("put", thread, checkpoint["id"], number)
                time.sleep(pause_s)
                saver.put_writes(config, writes_of(number), TASK_ID)
                ledger.add("put_writes", thread, checkpoint["id"], number)
                time.sleep(pause_s)
        except RtmemError as exc:
            ledger.refused.append(f"{type(exc).__name__}: {exc}")

    async def in_a_thread(ledger: Ledger, over: threading.Event) -> None:
        # Not abandoned at the end: the server is dead by then, so the call that is under way fails at once.
        await anyio.to_thread.run_sync(write, ledger, over, limiter=anyio.CapacityLimiter(1))

    return in_a_thread
