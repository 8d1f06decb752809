"""After a crash: what is gone of what was acknowledged, and is everything whole that is still there."""

from __future__ import annotations

import operator
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, TypedDict

import anyio
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import END, START, StateGraph

from loadtest.crash.fleet import TASK_ID, config_of, writes_of
from loadtest.crash.ledger import Acked, Thread
from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver
from rtmem.drivers import AsyncDriver
from rtmem.errors import PersistenceError, RtmemError
from rtmem.operations.inspection import inspect_thread
from rtmem.settings import Checkpoint

_REPLICAS_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class Checked:
    """What was found. Empty lists are good."""

    lost: list[Acked] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    first_read_s: float = 0.0  # monotonic
    threads: int = 0
    checkpoints: int = 0
    resumed: int = 0


async def check(url: str, acked: Sequence[Acked]) -> Checked:
    """Compare a server that has come back with the ledger, look through every thread in it, and let a graph resume on
    one thread of each kind."""
    checked = Checked()
    by_thread: dict[Thread, list[Acked]] = {}
    for one in acked:
        by_thread.setdefault(one.thread, []).append(one)
    async with await AsyncDriver.connect(url) as driver:
        if by_thread:
            thread = next(iter(by_thread))
            with suppress(RtmemError):  # told below
                await _saver(driver, thread).aget_tuple(config_of(thread))
        checked.first_read_s = time.monotonic()
        resumed: set[tuple[bool, bool, str]] = set()
        for thread, its_acked in by_thread.items():
            await _check_thread(driver, thread, its_acked, checked)
            kind = (thread.turns, thread.shallow, thread.name.partition("-")[0])
            if kind not in resumed:
                resumed.add(kind)
                await _resume(driver, thread, checked)
    return checked


def _saver(driver: AsyncDriver, thread: Thread) -> AsyncRedisSaver:
    # No memory of heads: every byte has to come from the server.
    kind = AsyncShallowRedisSaver if thread.shallow else AsyncRedisSaver
    return kind(driver=driver, principal=thread.principal, settings=Checkpoint(cache_bytes_max=0))


async def _check_thread(driver: AsyncDriver, thread: Thread, acked: list[Acked], checked: Checked) -> None:
    saver = _saver(driver, thread)
    try:
        report = await driver.run(inspect_thread(saver.scope, thread.name))
        found = {one.checkpoint["id"]: one async for one in saver.alist(config_of(thread))}
        latest = await saver.aget_tuple(config_of(thread))
    except RtmemError as exc:
        checked.faults.append(f"{thread.name}: {type(exc).__name__}: {exc}")
        checked.lost += acked
        return
    checked.threads += 1
    checked.checkpoints += len(found)
    checked.faults += [f"{thread.name}: {problem}" for problem in report.problems]
    if (latest.checkpoint["id"] if latest else None) != max(found, default=None):
        checked.faults.append(f"{thread.name}: its latest checkpoint is not the last one that is listed")
    checked.faults += _torn(thread, found.values())
    checked.lost += lost_of(thread, acked, found)


def _torn(thread: Thread, found: Iterable[CheckpointTuple]) -> list[str]:
    """What is half there; contents are compared with what the writer of this thread must have written."""
    faults = []
    ids = {one.checkpoint["id"] for one in found}
    for one in found:
        name = f"{thread.name}: checkpoint {one.checkpoint['id']}"
        parent = one.parent_config["configurable"]["checkpoint_id"] if one.parent_config else None
        if parent is not None and parent not in ids and not thread.shallow:
            faults.append(f"{name}: its parent {parent} is gone")
        if thread.turns:
            continue
        number = int(one.metadata["step"])
        if one.checkpoint["channel_values"] != thread.state(number):
            faults.append(f"{name}: is not what was put as number {number}")
        whole = [(TASK_ID, channel, value) for channel, value in writes_of(number)]
        if one.pending_writes and one.pending_writes != whole:
            faults.append(f"{name}: its writes are not those that were put")
    return faults


def lost_of(thread: Thread, acked: Iterable[Acked], found: dict[str, CheckpointTuple]) -> list[Acked]:
    """Which acknowledged calls left nothing. A shallow thread keeps its latest checkpoint only, and later ones replace
    what was acknowledged before (ids sort by time)."""
    newest = max(found, default="")

    def there(one: Acked) -> bool:
        if thread.shallow and one.checkpoint_id < newest:
            return True
        stored = found.get(one.checkpoint_id)
        return stored is not None and (one.verb != "put_writes" or bool(stored.pending_writes))

    return [one for one in acked if not there(one)]


class _State(TypedDict, total=False):
    number: int
    text: str
    messages: list[Any]
    visited: Annotated[int, operator.add]


async def _resume(driver: AsyncDriver, thread: Thread, checked: Checked) -> None:
    """A graph goes on from the latest checkpoint, with its state, and its own checkpoints are stored."""
    saver = _saver(driver, thread)
    seen: list[Any] = []

    def visit(state: _State) -> _State:
        seen.append(dict(state))
        return {"visited": 1}

    builder = StateGraph(_State)
    builder.add_node("visit", visit)
    builder.add_edge(START, "visit")
    builder.add_edge("visit", END)
    config: RunnableConfig = config_of(thread)
    try:
        before = await saver.aget_tuple(config)
        if before is None:
            return
        await _once_replicas_follow(partial(builder.compile(checkpointer=saver).ainvoke, {"visited": 0}, config))
        after = await saver.aget_tuple(config)
    except Exception as exc:  # noqa: BLE001 - see below
        # Whatever a graph raises here, for whatever reason, is a thread that cannot be continued.
        checked.faults.append(f"{thread.name}: a graph does not resume: {type(exc).__name__}: {exc}")
        return
    checked.resumed += 1
    kept = before.checkpoint["channel_values"].get("messages")
    went_on = after is not None and after.checkpoint["id"] > before.checkpoint["id"]
    if not went_on or seen[0].get("messages") != kept:
        checked.faults.append(f"{thread.name}: a graph resumed without the state of its latest checkpoint")


async def _once_replicas_follow(write: Callable[[], Awaitable[object]]) -> None:
    """A new master refuses writes, as it is told to, until a replica follows it closely enough."""
    deadline_s = time.monotonic() + _REPLICAS_TIMEOUT_S
    while True:
        try:
            await write()
            return
        except PersistenceError as exc:
            if "NOREPLICAS" not in exc.message or time.monotonic() > deadline_s:
                raise
            await anyio.sleep(0.1)
