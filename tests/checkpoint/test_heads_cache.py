"""What a process remembers of a head: bounded, never stale, never shared with a caller."""

from __future__ import annotations

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel, PrivateAttr

from rtmem.settings import Checkpoint
from tests.checkpoint.colours import Savers, inspect
from tests.checkpoint.talks import at, grow, message, put, same


class Noted(BaseModel):
    """A model whose private part is not stored."""

    text: str
    _note: list[int] = PrivateAttr(default_factory=list)


def values() -> dict[str, Any]:
    return {
        "messages": [message(k) for k in range(9)],
        "notes": [{"a": [1, {"b": 2}]}, "text", 3, None],
        "odd": [{"set": {1, 2}}, Noted(text="t")],
        "dict": {"deep": {"er": [1]}},
        "big": {"text": "x" * 70_000, "list": [1]},
    }


def wreck(found: Any) -> None:
    """Change everything that was handed out."""
    state = found.checkpoint["channel_values"]
    state["messages"][0].content = "changed"
    state["messages"][1].additional_kwargs["n"]["at"].append("changed")
    state["messages"][1].tool_calls[0]["args"]["q"].append("changed")
    state["messages"][2].additional_kwargs.clear()
    state["messages"][3].an_extra_field = "changed"
    state["messages"].append("changed")
    state["notes"][0]["a"][1]["b"] = "changed"
    state["odd"][0]["set"].add("changed")
    state["odd"][1].text = "changed"
    state["odd"][1]._note.append(1)
    state["dict"]["deep"]["er"].append("changed")
    state["big"]["list"].append("changed")
    state["new"] = "changed"
    found.checkpoint["channel_versions"]["messages"] = "changed"
    found.checkpoint["versions_seen"]["node"] = {"messages": "changed"}
    found.metadata["changed"] = True
    found.config["configurable"]["checkpoint_id"] = "changed"
    found.pending_writes[0][2]["w"].append("changed")


@pytest.mark.parametrize("reads_first", [False, True])
def test_mutating_what_was_put_or_read_never_changes_what_is_read_next(savers: Savers, reads_first: bool) -> None:
    with savers.open() as saver, savers.open() as witness:
        state = values()
        done = put(saver if not reads_first else witness, at("t"), state)
        writes: list[tuple[str, Any]] = [("a", {"w": [1]})]
        saver.put_writes(done.config, writes, "task")
        wanted = done._replace(pending_writes=[("task", "a", {"w": [1]})])
        if not reads_first:
            state["messages"][1].additional_kwargs["n"]["at"].append("changed")
            state["dict"]["deep"]["er"].append("changed")
        for _ in range(3):
            found = saver.get_tuple(at("t"))
            assert same(found, wanted)
            assert found is not None
            assert found.checkpoint["channel_values"]["odd"][1]._note == []
            wreck(found)
        assert same(witness.get_tuple(at("t")), wanted)


def test_what_was_mutated_after_a_read_is_stored_by_the_next_put(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as witness:
        put(saver, at("t"), values())
        for round_ in range(3):
            found = saver.get_tuple(at("t"))
            assert found is not None
            state = found.checkpoint["channel_values"]
            state["messages"][1].additional_kwargs["n"]["at"].append(round_)
            state["messages"][1].tool_calls[0]["args"]["q"].append(round_)
            state["messages"][3] = AIMessage(f"{round_}", id="m3")
            state["odd"][0]["set"].add(round_ + 10)
            wanted = put(saver, found.config, state, found.checkpoint)
            for reader in (saver, witness):
                assert same(reader.get_tuple(at("t")), wanted)


def test_a_head_that_another_saver_moved_on_is_never_returned(savers: Savers) -> None:
    with savers.open() as saver, savers.open(awaiting=not savers.awaiting) as other:
        first = put(saver, at("t"), values())
        assert same(saver.get_tuple(at("t")), first)
        second = put(other, first.config, {**values(), "n": 1}, first.checkpoint)
        assert same(saver.get_tuple(at("t")), second)
        other.put_writes(second.config, [("a", 1)], "task")
        assert same(saver.get_tuple(at("t")), second._replace(pending_writes=[("task", "a", 1)]))
        other.put_writes(second.config, [("b", 2)], "task 2")
        wanted = second._replace(pending_writes=[("task", "a", 1), ("task 2", "b", 2)])
        assert same(saver.get_tuple(at("t")), wanted)
        # Under the same id, with the same versions.
        own_id = second.checkpoint["id"]
        again = put(other, first.config, {"n": 3}, first.checkpoint, checkpoint_id=own_id)
        assert same(saver.get_tuple(at("t")), again._replace(pending_writes=wanted.pending_writes))
        other.prune(["t"])
        assert same(saver.get_tuple(at("t")), again._replace(pending_writes=wanted.pending_writes))
        other.delete_thread("t")
        assert saver.get_tuple(at("t")) is None
        third = put(other, at("t"), {"n": 4})
        assert same(saver.get_tuple(at("t")), third)


def test_a_fork_does_not_inherit_from_a_head_it_does_not_build_on(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as witness:
        root = put(saver, at("t"), values())
        left = put(saver, root.config, {**values(), "dict": {"left": 1}}, root.checkpoint, changed={"dict"})
        right = put(saver, root.config, {**values(), "notes": ["right"]}, root.checkpoint, changed={"notes"})
        for wanted in (root, left, right):
            for reader in (saver, witness):
                assert same(reader.get_tuple(wanted.config), wanted)


def test_memory_is_bounded_in_bytes_and_the_least_recent_leave_first(savers: Savers) -> None:
    with savers.open(settings=Checkpoint(cache_bytes_max=200_000)) as saver:
        heads: Any = saver.scope.heads
        for number in range(30):
            put(saver, at(f"t{number}"), {"messages": [message(k, 100) for k in range(20)]})
            assert heads._bytes <= 200_000
        kept = [key[0] for key in heads._heads]
        assert kept == [saver.scope.keys.thread("", f"t{k}").checkpoints for k in range(30 - len(kept), 30)]
        assert 2 <= len(kept) < 20
        assert heads._bytes == sum(size for _, size in heads._heads.values())
        put(saver, at("huge"), {"big": "x" * 300_000})
        assert same(saver.get_tuple(at("huge")), saver.get_tuple(at("huge")))
        assert heads._bytes <= 200_000


def test_the_bound_holds_for_what_is_really_in_memory(savers: Savers) -> None:
    """The estimate may be off, but not by more than twice."""
    with savers.open() as saver:
        grow(saver, "t", 60)
        saver.get_tuple(at("t"))
        saver.get_tuple(at("t"))
        heads: Any = saver.scope.heads
        (head, estimate), *_ = heads._heads.values()
        really = _deep_size([head.body, head.metadata, head.writes, *head.channels.values()], set())
        assert really <= 2 * estimate


def _deep_size(value: Any, seen: set[int]) -> int:
    if id(value) in seen or isinstance(value, type):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    parts = [getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple | set):
        parts = list(value)
    elif isinstance(value, BaseModel):
        parts = [value.__dict__]
    return size + sum(_deep_size(part, seen) for part in parts if not isinstance(part, weakref.ref))


def test_threads_of_one_process_may_share_a_saver(savers: Savers) -> None:
    with savers.open() as saver, ThreadPoolExecutor(16) as pool:
        wanted = put(saver, at("t"), values())

        def read(_: int) -> bool:
            found = saver.get_tuple(at("t"))
            ok = same(found, deepcopy(wanted))
            assert found is not None
            found.checkpoint["channel_values"]["messages"][1].additional_kwargs["n"]["at"].append("changed")
            return ok

        assert all(pool.map(read, range(200)))
        assert inspect(saver, "t").problems == []
    gc.collect()
