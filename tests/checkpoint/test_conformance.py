"""LangChain's own contract tests (langgraph-checkpoint-conformance) on all four savers, one pytest item per promise.

The package calls async methods only, so the sync savers come through `InThread`. It has no case for delta channels;
the last tests here add them: a real graph, compared with what LangGraph's own default walk finds in InMemorySaver.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
import pytest
import redis
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.spec import (
    test_copy_thread as copy_thread,
)
from langgraph.checkpoint.conformance.spec import (
    test_delete_for_runs as delete_for_runs,
)
from langgraph.checkpoint.conformance.spec import (
    test_delete_thread as delete_thread,
)
from langgraph.checkpoint.conformance.spec import (
    test_get_tuple as get_tuple,
)
from langgraph.checkpoint.conformance.spec import (
    test_list as list_,
)
from langgraph.checkpoint.conformance.spec import (
    test_prune as prune,
)
from langgraph.checkpoint.conformance.spec import (
    test_put as put,
)
from langgraph.checkpoint.conformance.spec import (
    test_put_writes as put_writes,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
from rtmem.errors import UnsupportedError

pytestmark = pytest.mark.anyio

Promise = Callable[[BaseCheckpointSaver[Any]], Awaitable[None]]

PROMISES: dict[Capability, Sequence[Promise]] = {
    Capability.PUT: put.ALL_PUT_TESTS,
    Capability.PUT_WRITES: put_writes.ALL_PUT_WRITES_TESTS,
    Capability.GET_TUPLE: get_tuple.ALL_GET_TUPLE_TESTS,
    Capability.LIST: list_.ALL_LIST_TESTS,
    Capability.DELETE_THREAD: delete_thread.ALL_DELETE_THREAD_TESTS,
    Capability.DELETE_FOR_RUNS: delete_for_runs.ALL_DELETE_FOR_RUNS_TESTS,
    Capability.COPY_THREAD: copy_thread.ALL_COPY_THREAD_TESTS,
    Capability.PRUNE: prune.ALL_PRUNE_TESTS,
}
assert set(PROMISES) == set(Capability), "the conformance package tests a capability that this file does not know"

# What a saver that keeps one checkpoint per (thread, namespace) cannot promise, and why. Each is asserted to fail, so
# that this list cannot outlive its reasons.
_ONE_KEPT = "lists several checkpoints of a (thread, namespace); one is kept"
_OLD_GONE = "reads a checkpoint by its id after a newer one has replaced it"
_RUNS = "expects checkpoints of several runs in one thread; the last run's is kept"
SHALLOW_CANNOT = {
    "test_put_multiple_checkpoints_same_thread": _OLD_GONE,
    "test_put_incremental_channel_update": _OLD_GONE,
    "test_get_tuple_specific_checkpoint_id": _OLD_GONE,
    "test_list_all": _ONE_KEPT,
    "test_list_by_thread": _ONE_KEPT,
    "test_list_ordering": _ONE_KEPT,
    "test_list_metadata_filter_single_key": _ONE_KEPT,
    "test_list_metadata_filter_step": _ONE_KEPT,
    "test_list_metadata_custom_keys": _ONE_KEPT,
    "test_list_before": _ONE_KEPT,
    "test_list_limit": _ONE_KEPT,
    "test_list_limit_plus_before": _ONE_KEPT,
    "test_list_combined_thread_and_filter": _ONE_KEPT,
    "test_copy_thread_basic": _ONE_KEPT,
    "test_delete_for_runs_single": _RUNS,
    "test_delete_for_runs_multiple": _RUNS,
    "test_delete_for_runs_preserves_other_runs": _RUNS,
}


class InThread(BaseCheckpointSaver[Any]):
    """A sync saver behind async methods: each call runs in a worker thread, as sync code under asyncio does."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await anyio.to_thread.run_sync(partial(method, *args, **kwargs))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found: CheckpointTuple | None = await self._call(self.saver.get_tuple, config)
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        def collect() -> list[CheckpointTuple]:
            return list(self.saver.list(config, filter=filter, before=before, limit=limit))

        for found in await self._call(collect):
            yield found

    async def aput(self, *args: Any) -> RunnableConfig:
        config: RunnableConfig = await self._call(self.saver.put, *args)
        return config

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        # Not *args: LangGraph looks at the signature and leaves task_path out if it finds no such parameter.
        await self._call(self.saver.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._call(self.saver.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._call(self.saver.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._call(self.saver.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._call(self.saver.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(self, *, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = await self._call(
            self.saver.get_delta_channel_history, config=config, channels=channels
        )
        return found

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.saver.get_next_version(current, channel)


@asynccontextmanager
async def open_saver(name: str, redis_url: str, **options: Any) -> AsyncIterator[BaseCheckpointSaver[Any]]:
    """One of the four savers by its class name, ready for async calls."""
    if name in ("AsyncRedisSaver", "AsyncShallowRedisSaver"):
        kind: Any = {"AsyncRedisSaver": AsyncRedisSaver, "AsyncShallowRedisSaver": AsyncShallowRedisSaver}[name]
        async with kind.from_conn_string(redis_url, **options) as saver:
            await saver.asetup()
            yield saver
    else:
        sync_kind: Any = {"RedisSaver": RedisSaver, "ShallowRedisSaver": ShallowRedisSaver}[name]
        context = sync_kind.from_conn_string(redis_url, **options)
        saver = await anyio.to_thread.run_sync(context.__enter__)
        try:
            await anyio.to_thread.run_sync(saver.setup)
            yield InThread(saver)
        finally:
            await anyio.to_thread.run_sync(partial(context.__exit__, None, None, None))


FULL = ["AsyncRedisSaver", "RedisSaver"]
SHALLOW = ["AsyncShallowRedisSaver", "ShallowRedisSaver"]
ALL_PROMISES = [pytest.param(promise, id=promise.__name__) for tests in PROMISES.values() for promise in tests]


@pytest.mark.parametrize("promise", ALL_PROMISES)
@pytest.mark.parametrize("name", FULL)
async def test_full_saver_keeps_every_promise(
    name: str, promise: Promise, redis_url: str, redis_client: redis.Redis
) -> None:
    async with open_saver(name, redis_url) as saver:
        await promise(saver)


@pytest.mark.parametrize("promise", ALL_PROMISES)
@pytest.mark.parametrize("name", SHALLOW)
async def test_shallow_saver_keeps_every_promise_but_the_named_ones(
    name: str, promise: Promise, redis_url: str, redis_client: redis.Redis
) -> None:
    async with open_saver(name, redis_url) as saver:
        if promise.__name__ in SHALLOW_CANNOT:
            with pytest.raises((AssertionError, UnsupportedError)):
                await promise(saver)
        else:
            await promise(saver)


@pytest.mark.parametrize("promise", ALL_PROMISES)
@pytest.mark.parametrize("name", ["AsyncRedisSaver", "ShallowRedisSaver"])
async def test_a_saver_that_moves_every_value_out_keeps_the_same_promises(
    name: str, promise: Promise, redis_url: str, redis_client: redis.Redis
) -> None:
    async with open_saver(name, redis_url, offload_bytes_min=1) as saver:
        if name in SHALLOW and promise.__name__ in SHALLOW_CANNOT:
            with pytest.raises((AssertionError, UnsupportedError)):
                await promise(saver)
        else:
            await promise(saver)


def test_every_shallow_exclusion_names_a_promise() -> None:
    assert SHALLOW_CANNOT.keys() <= {promise.__name__ for tests in PROMISES.values() for promise in tests}


@pytest.mark.parametrize("name", FULL)
async def test_langchain_calls_the_full_saver_full(name: str, redis_url: str, redis_client: redis.Redis) -> None:
    @checkpointer_test(name=name)
    async def factory() -> AsyncIterator[BaseCheckpointSaver[Any]]:
        async with open_saver(name, redis_url) as saver:
            yield saver

    report = await validate(factory)

    assert {capability: result.failures for capability, result in report.results.items() if not result.passed} == {}
    assert all(result.detected for result in report.results.values())
    assert report.conformance_level() == "FULL"


def _extended(left: list[str] | None, right: Sequence[list[str]]) -> list[str]:
    return [*(left or []), *(item for part in right for item in part)]


class Talk(TypedDict):
    messages: Annotated[list[str], DeltaChannel(_extended, snapshot_frequency=7)]
    words: Annotated[list[str], DeltaChannel(_extended, snapshot_frequency=1_000)]
    turns: Annotated[int, operator.add]


def talking_graph(saver: BaseCheckpointSaver[Any]) -> Any:
    """Two parallel speakers that write both delta channels, then a third: order within a step matters."""

    def speaker(name: str) -> Callable[[Talk], dict[str, Any]]:
        def speak(state: Talk) -> dict[str, Any]:
            line = f"{name} after {len(state['messages'])}"
            return {"messages": [line], "words": line.split(), "turns": 1}

        return speak

    builder: Any = StateGraph(Talk)
    for name in ("left", "right", "last"):
        builder.add_node(name, speaker(name))
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    builder.add_edge(["left", "right"], "last")
    builder.add_edge("last", END)
    return builder.compile(checkpointer=saver)


async def _talk(saver: BaseCheckpointSaver[Any], turns: int) -> tuple[Any, RunnableConfig]:
    graph = talking_graph(saver)
    config: RunnableConfig = {"configurable": {"thread_id": "delta"}}
    for turn in range(turns):
        await graph.ainvoke({"messages": [f"question {turn}"], "words": [], "turns": 0}, config)
    return graph, config


def _without_ids(history: Mapping[str, Any]) -> dict[str, Any]:
    """Task ids are hashes of checkpoint ids, which differ from thread to thread; channel, value and order must not."""
    return {
        channel: {"writes": [write[1:] for write in entry["writes"]], "seed": entry.get("seed")}
        for channel, entry in history.items()
    }


@pytest.mark.parametrize("turns", [1, 6])
@pytest.mark.parametrize("name", FULL)
async def test_delta_history_is_what_the_default_walk_finds(
    name: str, turns: int, redis_url: str, redis_client: redis.Redis
) -> None:
    channels = ["messages", "words", "never_written"]
    reference = InMemorySaver()
    _, config = await _talk(reference, turns)
    async with open_saver(name, redis_url) as saver:
        graph, _ = await _talk(saver, turns)
        ours = [found async for found in saver.alist(config)]
        theirs = [found async for found in reference.alist(config)]
        assert len(ours) == len(theirs)
        # At the head and at every older checkpoint: each has other writes behind it and maybe another seed.
        for our, their in zip(ours, theirs, strict=True):
            found = await saver.aget_delta_channel_history(config=our.config, channels=channels)
            default = await BaseCheckpointSaver.aget_delta_channel_history(saver, config=our.config, channels=channels)
            wanted = await reference.aget_delta_channel_history(config=their.config, channels=channels)
            assert _without_ids(found) == _without_ids(wanted)
            assert found == default
        assert len((await graph.aget_state(config)).values["messages"]) == 4 * turns


@pytest.mark.parametrize("move", ["prune", "copy"])
@pytest.mark.parametrize("name", FULL)
async def test_delta_channels_survive(name: str, move: str, redis_url: str, redis_client: redis.Redis) -> None:
    async with open_saver(name, redis_url) as saver:
        graph, config = await _talk(saver, 5)
        before = (await graph.aget_state(config)).values
        if move == "prune":
            await saver.aprune(["delta"], strategy="keep_latest")
        else:
            await saver.acopy_thread("delta", "copied")
            await saver.adelete_thread("delta")
            config = {"configurable": {"thread_id": "copied"}}

        assert (await graph.aget_state(config)).values == before
        await graph.ainvoke({"messages": ["one more"], "words": [], "turns": 0}, config)
        assert len((await graph.aget_state(config)).values["messages"]) == len(before["messages"]) + 4


@pytest.mark.parametrize("name", SHALLOW)
async def test_shallow_saver_says_that_it_has_no_delta_history(
    name: str, redis_url: str, redis_client: redis.Redis
) -> None:
    async with open_saver(name, redis_url) as saver:
        with pytest.raises(UnsupportedError):
            await saver.aget_delta_channel_history(
                config={"configurable": {"thread_id": "delta"}}, channels=["messages"]
            )
