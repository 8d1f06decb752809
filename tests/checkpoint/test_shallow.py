"""Exactly one checkpoint per (thread, namespace), with its writes and nothing else."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.base.id import uuid6

from rtmem.errors import ServerUnavailableError, UnsupportedError
from tests.checkpoint.colours import Fuse, Meter, Savers, inspect
from tests.checkpoint.talks import at, grow, message, put, same


def test_one_checkpoint_with_its_own_writes_stays_however_long_the_talk(savers: Savers) -> None:
    with savers.open(shallow=True) as saver, savers.open(shallow=True) as cold:
        sizes = []
        for _ in range(4):
            grow(saver, "t", 10)
            found = cold.get_tuple(at("t"))
            assert found is not None
            step = found.checkpoint["channel_values"]["step"]
            assert [write[:2] for write in found.pending_writes or ()] == [
                (f"task-{step}", "messages"), (f"task-{step}", "step"),
            ]  # fmt: skip
            assert [*cold.list(at("t"))] == [found]
            report = inspect(saver, "t")
            assert report.problems == []
            assert report.checkpoints == {"": 1}
            assert report.garbage == 0
            assert report.pieces == report.references
            sizes.append(report.writes_bytes)
        assert max(sizes) - min(sizes) < 64


def test_another_id_than_the_latest_is_none(savers: Savers) -> None:
    with savers.open(shallow=True) as saver, savers.open(shallow=True) as cold:
        first = put(saver, at("t"), {"n": 1})
        second = put(saver, first.config, {"n": 2}, first.checkpoint)
        for reader in (saver, cold):
            assert reader.get_tuple(first.config) is None
            assert reader.get_tuple(at("t", "", str(uuid6()))) is None
            assert same(reader.get_tuple(second.config), second)
            assert same(reader.get_tuple(at("t")), second)


def test_late_writes_of_a_replaced_checkpoint_are_dropped(savers: Savers) -> None:
    with savers.open(shallow=True) as saver, savers.open(shallow=True) as other:
        first = put(saver, at("t"), {"n": 1})
        early_id = str(uuid6())
        saver.put_writes(at("t", "", early_id), [("a", 1)], "never followed by its checkpoint")
        second = put(saver, first.config, {"n": 2}, first.checkpoint)
        for late in (saver, other):
            late.put_writes(first.config, [("a", 1)], "late")
            late.put_writes(at("t", "", early_id), [("a", 1)], "late")
        assert same(other.get_tuple(at("t")), second)
        report = inspect(saver, "t")
        assert report.problems == []
        assert (report.early, report.writes_bytes) == (0, 0)


def test_namespaces_keep_one_each(savers: Savers) -> None:
    with savers.open(shallow=True) as saver:
        for ns in ("", "a", "a|b"):
            grow(saver, "t", 3, ns)
        assert inspect(saver, "t").checkpoints == {"": 1, "a": 1, "a|b": 1}
        found = [*saver.list({"configurable": {"thread_id": "t"}})]
        assert [one.config["configurable"]["checkpoint_ns"] for one in found] == ["a|b", "a", ""]


def test_a_full_history_shrinks_to_one_checkpoint_per_namespace_with_the_first_shallow_put(savers: Savers) -> None:
    with savers.open() as full, savers.open(shallow=True) as shallow:
        config = grow(full, "t", 12)
        sub = grow(full, "t", 4, "sub")
        found = shallow.get_tuple(config)
        assert found is not None
        messages = [*found.checkpoint["channel_values"]["messages"], message(50)]
        last = put(shallow, config, {"messages": messages, "step": 13}, found.checkpoint)
        assert [*shallow.list(at("t"))] == [last]
        assert shallow.get_tuple(config) is None
        assert len([*full.list(at("t", "sub"))]) == 4  # nobody has put there yet
        put(shallow, sub, {"n": 1})
        report = inspect(shallow, "t")
        assert report.problems == []
        assert report.checkpoints == {"": 1, "sub": 1}
        assert report.garbage == 0
        assert report.pieces == report.references


def test_a_long_full_history_shrinks_in_bounded_steps_that_may_be_broken_off(savers: Savers) -> None:
    with savers.open() as full, savers.open(shallow=True) as shallow:
        config = grow(full, "t", 250)
        found = full.get_tuple(config)
        assert found is not None
        fuse = Fuse(shallow)
        fuse.set(2, after=True)
        with pytest.raises(ServerUnavailableError):
            put(shallow, config, {"step": 1}, found.checkpoint)
        halfway = inspect(full, "t")
        assert halfway.problems == []
        assert 1 < halfway.checkpoints[""] < 250
        latest = shallow.get_tuple(at("t"))
        assert latest is not None
        last = put(shallow, latest.config, {"step": 2}, latest.checkpoint)
        assert [*full.list(at("t"))] == [last]
        report = inspect(full, "t")
        assert report.problems == []
        assert report.pieces == report.references


def test_a_thread_that_was_full_once_costs_one_round_trip_again(savers: Savers) -> None:
    with savers.open() as full, savers.open(shallow=True) as shallow:
        config = grow(full, "t", 5)
        found = shallow.get_tuple(config)
        assert found is not None
        last = put(shallow, config, found.checkpoint["channel_values"], found.checkpoint)
        meter = Meter(shallow)
        put(shallow, last.config, {"messages": [message(1)], "step": 2}, last.checkpoint)
        assert meter.take() == 1
        assert inspect(shallow, "t").problems == []


def test_a_full_saver_can_go_on_where_a_shallow_one_stopped(savers: Savers) -> None:
    with savers.open() as full, savers.open(shallow=True) as shallow:
        config = grow(shallow, "t", 4)
        grow(full, "t", 3)
        assert len([*full.list(at("t"))]) == 4
        assert full.get_tuple(config) is not None
        assert inspect(full, "t").problems == []


def test_an_older_id_does_not_replace_a_newer_one_and_leaves_nothing(savers: Savers) -> None:
    with savers.open(shallow=True) as saver:
        older = str(uuid6())
        newer = put(saver, at("t"), {"n": 2, "big": "x" * 70_000})
        before = savers.client.hgetall(saver.scope.keys.thread("", "t").checkpoints)
        put(saver, at("t"), {"n": 1, "big": "y" * 70_000}, checkpoint_id=older)
        assert savers.client.hgetall(saver.scope.keys.thread("", "t").checkpoints) == before
        assert same(saver.get_tuple(at("t")), newer)


def test_verbs_that_need_history_say_so(savers: Savers) -> None:
    with savers.open(shallow=True) as saver:
        with pytest.raises(UnsupportedError, match="delta channels"):
            saver.get_delta_channel_history(config=at("t"), channels=["a"])
        assert saver.get_delta_channel_history(config=at("t"), channels=[]) == {}
