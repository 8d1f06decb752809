"""One conversation, kept by LangGraph's in-memory saver and by each of ours: what is kept is the same.

The demo agent holds it: English and Russian, tool calls, two questions to the user, content blocks, a message of 1 MB.
Sync savers are entered through invoke, async ones through ainvoke, and each has an InMemorySaver beside it that was
entered the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, StateSnapshot

from rtmem import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver, ShallowRedisSaver
from rtmem.agent import demo

CONFIG: RunnableConfig = {"configurable": {"thread_id": "conversation"}}
MEGABYTE = "длинное сообщение, long message; " * 25_000


def said(content: str | list[str | dict[Any, Any]], number: int) -> dict[str, Any]:
    return {"messages": [HumanMessage(content, id=f"user-{number}")]}


def conversation() -> Iterator[Any]:
    """Inputs in order; a Command answers the question that the turn before it ended with."""
    blocks: list[str | dict[Any, Any]] = [
        {"type": "text", "text": "What is 6 * 7?"},
        {"type": "image", "base64": "aGVsbG8=", "mime_type": "image/png"},
    ]
    yield said("Hello, my name is Ann and I live in Oslo", 1)
    yield said("what is 17 * 23? and what is 1/0?", 2)
    yield said("Меня зовут Анна, я люблю чай и мне нравится джаз", 3)
    yield said("напиши Бобу: встретимся в пять", 4)
    yield Command(resume={"approve": True})
    yield said(blocks, 5)
    yield said(MEGABYTE, 6)
    yield said("What do you know about me?", 7)
    yield said("send a message to Bob: never mind", 8)
    yield Command(resume="no")
    yield said("forget my name", 9)
    yield said("forget everything", 10)


class Seen:
    """What a checkpointer keeps, with the ids that LangChain draws at random replaced in the order they appear."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def snapshot(self, snapshot: StateSnapshot) -> dict[str, Any]:
        return {
            "values": self._plain(snapshot.values),
            "next": snapshot.next,
            "step": (snapshot.metadata or {}).get("step"),
            "source": (snapshot.metadata or {}).get("source"),
            "tasks": [(task.name, task.path, _without_ids(self._plain(task.result))) for task in snapshot.tasks],
            "questions": [interrupt.value for interrupt in snapshot.interrupts],
            "has_parent": snapshot.parent_config is not None,
        }

    def _plain(self, value: Any) -> Any:
        if isinstance(value, BaseMessage):
            return (type(value).__name__, self._plain(dict(value)))
        if isinstance(value, dict):
            return {key: self._id(each) if key == "id" else self._plain(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        return value

    def _id(self, value: Any) -> Any:
        known = str(value).startswith(("user-", "call-"))
        return value if value is None or known else self._ids.setdefault(value, f"id-{len(self._ids)}")


def _without_ids(plain: Any) -> Any:
    """A task's writes are stored in the background while add_messages gives their messages ids, in place: either."""
    if isinstance(plain, dict):
        return {key: _without_ids(each) for key, each in plain.items() if key != "id"}
    if isinstance(plain, list | tuple):
        return [_without_ids(each) for each in plain]
    return plain


def kept_by(saver: BaseCheckpointSaver[Any], *, history: bool) -> list[dict[str, Any]]:
    """What the saver has kept after each turn, and of the whole history at the end; oldest first."""
    graph, seen = demo.graph(saver), Seen()
    kept = []
    for turn in conversation():
        graph.invoke(turn, CONFIG)
        kept.append(seen.snapshot(graph.get_state(CONFIG)))
    if history:
        kept += [seen.snapshot(snapshot) for snapshot in reversed(list(graph.get_state_history(CONFIG)))]
    return kept


async def kept_by_async(saver: BaseCheckpointSaver[Any], *, history: bool) -> list[dict[str, Any]]:
    graph, seen = demo.graph(saver), Seen()
    kept = []
    for turn in conversation():
        await graph.ainvoke(turn, CONFIG)
        kept.append(seen.snapshot(await graph.aget_state(CONFIG)))
    if history:
        snapshots = [snapshot async for snapshot in graph.aget_state_history(CONFIG)]
        kept += [seen.snapshot(snapshot) for snapshot in reversed(snapshots)]
    return kept


def without_parents(kept: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A shallow saver has no parents to point at."""
    return [{key: value for key, value in snapshot.items() if key != "has_parent"} for snapshot in kept]


@pytest.mark.parametrize("saver_class", [RedisSaver, ShallowRedisSaver])
def test_a_sync_saver_keeps_what_memory_keeps(saver_class: type[RedisSaver], redis_url: str, redis_client: Any) -> None:
    history = saver_class is RedisSaver
    with saver_class.from_conn_string(redis_url) as saver:
        ours = kept_by(saver, history=history)
    theirs = kept_by(InMemorySaver(), history=history)
    assert_same(ours, theirs, history)


@pytest.mark.anyio
@pytest.mark.parametrize("saver_class", [AsyncRedisSaver, AsyncShallowRedisSaver])
async def test_an_async_saver_keeps_what_memory_keeps(
    saver_class: type[AsyncRedisSaver], redis_url: str, redis_client: Any
) -> None:
    history = saver_class is AsyncRedisSaver
    async with saver_class.from_conn_string(redis_url) as saver:
        ours = await kept_by_async(saver, history=history)
    theirs = await kept_by_async(InMemorySaver(), history=history)
    assert_same(ours, theirs, history)


def assert_same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], history: bool) -> None:
    if not history:
        ours, theirs = without_parents(ours), without_parents(theirs)
    assert len(ours) == len(theirs)
    # One at a time: a difference of two lists with 1 MB in them is not readable.
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        for key in one:
            assert one[key] == other[key], f"snapshot {number}: {key}"
    last_turn = ours[len(list(conversation())) - 1]
    assert last_turn["questions"] == [
        {"action": "forget_everything", "question": "Forget every fact and this conversation so far?"}
    ]
    assert len(str(last_turn["values"]).encode()) > 1_000_000
    assert last_turn["values"]["outbox"] == [{"recipient": "Бобу", "text": "встретимся в пять"}]
