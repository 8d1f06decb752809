"""Nothing crosses: neither between principals nor between threads, whatever their names are."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from rtmem.errors import IdTooLongError, InvalidRequestError
from rtmem.operations import histories
from tests.checkpoint.colours import AnySaver, Savers, inspect, run
from tests.checkpoint.talks import at, put, same

NAMES = [
    "alice", "Alice", "ALICE", "", " ", "a b", "{a}", "}", "{", "a:b", "a*", "a?", "[a]", "a|b", "a,b", "a.b", "a-b",
    "@a", "a\\b", "\\", '"', "'", "a/b", "/", "%2F", "%", "ü", "Ü", "u\u0308", "😀", "\0", "a\0", "\0a", "\1", "\1\1",
    "\n", "\r\n", "x" * 512, "é" * 256, "c", "i", "log", "ǅ", "\ud800",
]  # fmt: skip


def named(name: str) -> dict[str, Any]:
    return {"n": repr(name), "items": [{"of": repr(name)}]}


def test_hostile_and_similar_thread_ids_are_threads_of_their_own(savers: Savers) -> None:
    with savers.open() as saver:
        made = {name: put(saver, at(name), named(name)) for name in NAMES}
        for name, wanted in made.items():
            assert same(saver.get_tuple(at(name)), wanted)
            assert [*saver.list(at(name))] == [wanted]
        assert len([*saver.list(None)]) == len(NAMES)
        for name in NAMES[::2]:
            saver.delete_thread(name)
        left = {found.config["configurable"]["thread_id"] for found in saver.list(None)}
        assert left == set(NAMES[1::2])
        for name in NAMES[1::2]:
            assert same(saver.get_tuple(at(name)), made[name])
            assert inspect(saver, name).problems == []
        assert run(saver, histories.rebuild_index(saver.scope)) == len(left)


def test_hostile_namespaces_and_checkpoint_and_task_and_channel_names_are_kept_apart(savers: Savers) -> None:
    names = [name for name in NAMES if name and name != "\ud800"]
    with savers.open() as saver:
        made = []
        for name in names:
            done = put(saver, at("t", name), {name: name}, checkpoint_id=name)
            saver.put_writes(done.config, [(name, name)], name, name)
            made.append(done._replace(pending_writes=[(name, name, name)]))
        for name, wanted in zip(names, made, strict=True):
            assert same(saver.get_tuple(at("t", name)), wanted)
            assert same(saver.get_tuple(at("t", name, name)), wanted)
            assert [*saver.list(at("t", name))] == [wanted]
            assert [*saver.list(at("t", name, name))] == [wanted]
            others = saver.get_tuple(at("t", name, "another"))
            assert others is None
        assert inspect(saver, "t").problems == []
        saver.copy_thread("t", "u")
        saver.prune(["t"])
        for name, wanted in zip(names, made, strict=True):
            assert same(saver.get_tuple(at("t", name)), wanted)
            assert same(saver.get_tuple(at("u", name)), wanted._replace(config=at("u", name, name)))


def test_checkpoints_sort_by_the_bytes_of_their_ids_whatever_is_in_them(savers: Savers) -> None:
    names = sorted((name for name in NAMES if name and name != "\ud800"), key=lambda name: name.encode())
    with savers.open() as saver:
        for name in names:
            put(saver, at("t"), {"n": name}, checkpoint_id=name)
        assert [found.checkpoint["id"] for found in saver.list(at("t"))] == names[::-1]
        for place, name in enumerate(names):
            found = [one.checkpoint["id"] for one in saver.list(at("t"), before=at("t", "", name))]
            assert found == names[:place][::-1]


def test_principals_never_see_each_other(savers: Savers) -> None:
    principals = ["", "alice", "Alice", "a/b", "a", "b", "{a}", "*", "ü", "\0", "alice/t"]
    with savers.open() as base:
        bound: dict[str, AnySaver] = {name: base.bind(name) for name in principals}
        made = {}
        for name, thread_id in product(principals, ("t", "b/t", "*")):
            made[name, thread_id] = put(bound[name], at(thread_id), named(name), metadata={"run_id": "same run"})
        for (name, thread_id), wanted in made.items():
            assert same(bound[name].get_tuple(at(thread_id)), wanted)
            assert len([*bound[name].list(None)]) == 3
        bound["alice"].delete_for_runs(["same run"])
        bound["a"].delete_thread("t")
        bound["b"].prune(["t", "b/t", "*"], strategy="delete")
        bound["*"].copy_thread("t", "only here")
        for (name, thread_id), wanted in made.items():
            gone = name in ("alice", "b") or (name, thread_id) == ("a", "t")
            assert bound[name].get_tuple(at(thread_id)) == (None if gone else wanted)
        assert [name for name in principals if bound[name].get_tuple(at("only here"))] == ["*"]
        for name in principals:
            count = len([*bound[name].list(None)])
            assert run(base, histories.rebuild_index(bound[name].scope)) == count


def test_the_principal_is_never_read_from_a_config(savers: Savers) -> None:
    with savers.open(principal="alice") as alice, savers.open(principal="bob") as bob:
        put(alice, at("t"), {"n": 1})
        config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "principal": "alice", "user": "alice"}}
        assert bob.get_tuple(config) is None
        assert [*bob.list(config)] == []


def test_ids_of_512_bytes_are_taken_and_of_513_refused_before_anything_is_sent(savers: Savers) -> None:
    fits, too_long = "é" * 256, "é" * 256 + "x"
    with savers.open() as saver:
        done = put(saver, at(fits), {"n": 1}, checkpoint_id=fits)
        saver.put_writes(done.config, [("a", 1)], fits)
        assert saver.get_tuple(at(fits)) is not None
        stored = sorted(savers.client.keys("*"))
        calls: list[Any] = [
            lambda: put(saver, at(too_long), {"n": 1}),
            lambda: put(saver, at("t"), {"n": 1}, checkpoint_id=too_long),
            lambda: saver.get_tuple(at(too_long)),
            lambda: saver.get_tuple(at("t", "", too_long)),
            lambda: saver.put_writes(at("t", "", "1"), [("a", 1)], too_long),
            lambda: saver.delete_thread(too_long),
            lambda: [*saver.list(at(too_long))],
            lambda: saver.bind(too_long),
        ]
        for call in calls:
            with pytest.raises(IdTooLongError, match="513"):
                call()
        with pytest.raises(InvalidRequestError, match="thread_id"):
            saver.get_tuple({"configurable": {}})
        assert sorted(savers.client.keys("*")) == stored
