"""What a delta channel is rebuilt from: complete, in order, in one round trip, and never severed."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from rtmem.errors import CorruptRecordError
from tests.checkpoint.colours import AnySaver, Meter, Savers, inspect
from tests.checkpoint.talks import at, put

CHANNELS = ["messages", "events", "never"]


def talk(saver: AnySaver, steps: int, snapshot_every: int, seed: Any = None, ns: str = "") -> list[RunnableConfig]:
    """A chain whose checkpoints store `messages` now and then, and `events` only at the first; oldest first."""
    config, before, configs = at("t", ns), None, []
    for step in range(steps):
        values: dict[str, Any] = {"n": step}
        if step % snapshot_every == 0:
            values["messages"] = {"seed": seed or step}
        if step == 0:
            values["events"] = ["first"]
        absent = tuple(name for name in ("messages", "events") if name not in values)
        counters = {"messages": [step % snapshot_every, 0], "events": [step, 0]}
        metadata = {"counters_since_delta_snapshot": counters, "run_id": f"r{step}"}
        done = put(saver, config, values, before, metadata, absent=absent)
        saver.put_writes(done.config, [("messages", {"m": step}), ("n", step)], f"z{step}", "~2")
        saver.put_writes(done.config, [("messages", {"before": step}), ("events", step)], f"a{step}", "~1")
        config, before = done.config, done.checkpoint
        configs.append(config)
    return configs


def history(saver: AnySaver, config: RunnableConfig) -> Any:
    return saver.get_delta_channel_history(config=config, channels=CHANNELS)


def test_the_history_is_what_langgraphs_own_walk_finds_at_every_checkpoint(savers: Savers) -> None:
    with savers.open() as saver:
        configs = talk(saver, 23, 5)
        for config in (*configs, at("t")):
            found = history(saver, config)
            assert found == BaseCheckpointSaver.get_delta_channel_history(saver, config=config, channels=CHANNELS)
        latest = history(saver, at("t"))
        assert latest["messages"]["seed"] == {"seed": 20}
        assert [write[2] for write in latest["messages"]["writes"]] == [
            {"before": 20}, {"m": 20}, {"before": 21}, {"m": 21},
        ]  # fmt: skip
        assert latest["events"] == {"seed": ["first"], "writes": [(f"a{k}", "events", k) for k in range(22)]}
        assert latest["never"] == {"writes": []}


@pytest.mark.parametrize("length", [2, 60, 300])
def test_it_is_one_round_trip_at_any_length_and_two_with_a_large_seed(savers: Savers, length: int) -> None:
    with savers.open() as saver:
        talk(saver, length, 1_000)
        talk(saver, length, 1_000, seed="x" * 70_000, ns="large")
        meter = Meter(saver)
        found = history(saver, at("t"))
        assert meter.take() == 1
        assert len(found["messages"]["writes"]) == 2 * (length - 1)
        found = history(saver, at("t", "large"))
        assert meter.take() == 2
        assert found["messages"]["seed"] == {"seed": "x" * 70_000}


def test_prune_keeps_every_write_between_a_kept_checkpoint_and_the_values_it_starts_from(savers: Savers) -> None:
    with savers.open() as saver:
        talk(saver, 23, 5)
        wanted = history(saver, at("t"))
        saver.prune(["t"])
        assert history(saver, at("t")) == wanted
        # "events" is stored by the first checkpoint only, so all of them are needed.
        assert inspect(saver, "t").checkpoints == {"": 23}


def test_prune_drops_what_lies_before_the_snapshots(savers: Savers) -> None:
    with savers.open() as saver:
        config, before = at("t"), None
        for step in range(23):
            values = {"messages": [step]} if step % 5 == 0 else {}
            counters = {"counters_since_delta_snapshot": {"messages": [step % 5, 0]}}
            done = put(saver, config, values, before, counters, absent=() if values else ("messages",))
            saver.put_writes(done.config, [("messages", step)], "task")
            config, before = done.config, done.checkpoint
        wanted = history(saver, at("t"))
        saver.prune(["t"])
        assert history(saver, at("t")) == wanted
        assert len([*saver.list(at("t"))]) == 3
        report = inspect(saver, "t")
        assert report.problems == []
        assert report.garbage == 0


def test_a_copy_has_the_same_history_after_its_source_is_gone(savers: Savers) -> None:
    with savers.open() as saver:
        talk(saver, 23, 5)
        wanted = history(saver, at("t"))
        saver.copy_thread("t", "u")
        saver.delete_thread("t")
        assert history(saver, at("u")) == wanted
        saver.prune(["u"])
        assert history(saver, at("u")) == wanted


def test_a_history_whose_large_seed_is_gone_is_an_error(savers: Savers) -> None:
    with savers.open() as saver:
        talk(saver, 3, 1_000, seed="x" * 70_000)
        key = saver.scope.keys.thread("", "t").checkpoints
        savers.client.hdel(key, *[name for name in savers.client.hkeys(key) if name.isdigit() and int(name) >= 2**51])
        with pytest.raises(CorruptRecordError, match="delta channel"):
            history(saver, at("t"))


def test_no_channels_and_no_checkpoint_are_an_empty_history(savers: Savers) -> None:
    with savers.open() as saver:
        assert saver.get_delta_channel_history(config=at("t"), channels=[]) == {}
        assert saver.get_delta_channel_history(config=at("t"), channels=["a", "a"]) == {"a": {"writes": []}}
