"""put, put_writes and get_tuple: what is put is what is read, in LangGraph's order, by either colour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

from rtmem.checkpoint import AsyncRedisSaver, RedisSaver
from rtmem.errors import (
    ConfigError,
    InvalidRequestError,
    NewerLayoutError,
    StaleWriterError,
    UnsupportedError,
    WrongColourError,
)
from tests.checkpoint.colours import Savers, inspect
from tests.checkpoint.talks import at, checkpoint_of, grow, message, put, same


def test_what_is_put_is_read_and_another_process_reads_it_too(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as other:
        first = put(saver, at("t"), {"messages": [message(1)], "n": 1})
        second = put(saver, first.config, {"messages": [message(1), message(2)], "n": True}, first.checkpoint)
        for reader in (saver, other, saver, other):
            assert same(reader.get_tuple(at("t")), second)
            assert same(reader.get_tuple(first.config), first)
            assert reader.get(at("t")) == second.checkpoint


def test_both_colours_read_what_the_other_wrote(savers: Savers) -> None:
    with savers.open() as one, savers.open(awaiting=not savers.awaiting) as other:
        first = put(one, at("t"), {"messages": [message(1)]})
        second = put(other, first.config, {"messages": [message(1), message(2)]}, first.checkpoint)
        one.put_writes(second.config, [("n", 1)], "b", "~1")
        other.put_writes(second.config, [("n", 2)], "a", "~1")
        wanted = second._replace(pending_writes=[("a", "n", 2), ("b", "n", 1)])
        assert same(one.get_tuple(at("t")), wanted)
        assert same(other.get_tuple(at("t")), wanted)
        assert [*one.list(at("t"))] == [*other.list(at("t"))] == [wanted, first]


def test_a_missing_thread_namespace_or_checkpoint_is_none(savers: Savers) -> None:
    with savers.open() as saver:
        done = put(saver, at("t"), {"n": 1})
        assert saver.get_tuple(at("other")) is None
        assert saver.get_tuple(at("t", "ns")) is None
        assert saver.get_tuple(at("t", "", str(uuid6()))) is None
        assert saver.get_tuple(at("t", "ns", done.config["configurable"]["checkpoint_id"])) is None


def test_metadata_of_the_config_is_merged_like_langgraph_does(savers: Savers) -> None:
    with savers.open() as saver:
        config: Any = {**at("t"), "metadata": {"user": "u1", "nul": "a\0b", "deep": {"no": 1}}}
        config["configurable"] |= {"tenant": "blue", "__secret": "x"}
        put(saver, config, {"n": 1})
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.metadata == {"source": "loop", "step": 1, "user": "u1", "nul": "ab", "tenant": "blue"}


def test_pending_writes_come_in_the_order_of_task_path_task_id_and_index(savers: Savers) -> None:
    with savers.open() as saver:
        done = put(saver, at("t"), {"n": 1})
        saver.put_writes(done.config, [("a", 1), ("b", 2)], "z-task", "~1")
        saver.put_writes(done.config, [("c", 3)], "a-task", "~2")
        saver.put_writes(done.config, [("d", 4)], "m-task", "~1")
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert found.pending_writes == [
            ("m-task", "d", 4), ("z-task", "a", 1), ("z-task", "b", 2), ("a-task", "c", 3),
        ]  # fmt: skip


def test_put_writes_keeps_first_value_on_replay_and_last_of_special_channels(savers: Savers) -> None:
    with savers.open() as saver:
        done = put(saver, at("t"), {"n": 1})
        for value in ("first", "second"):
            saver.put_writes(done.config, [("a", value), ("__interrupt__", value), ("__error__", value)], "task")
            saver.put_writes(done.config, [("__resume__", value)], "task")
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert {channel: value for _, channel, value in found.pending_writes or ()} == {
            "a": "first",
            "__interrupt__": "second",
            "__error__": "second",
            "__resume__": "second",
        }


def test_writes_that_come_before_their_checkpoint_are_there_with_it_and_do_not_break_list(savers: Savers) -> None:
    with savers.open() as saver:
        first = put(saver, at("t"), {"n": 1})
        own_id = str(uuid6())
        saver.put_writes(at("t", "", own_id), [("a", 1)], "task")
        assert [*saver.list(at("t"))] == [first]
        assert same(saver.get_tuple(at("t")), first)
        assert inspect(saver, "t").early == 1
        second = put(saver, first.config, {"n": 2}, first.checkpoint, checkpoint_id=own_id)
        wanted = second._replace(pending_writes=[("task", "a", 1)])
        assert same(saver.get_tuple(at("t")), wanted)
        assert [*saver.list(at("t"))] == [wanted, first]
        report = inspect(saver, "t")
        assert report.problems == []
        assert report.early == 0


def test_a_checkpoint_put_again_under_its_id_replaces_the_first_and_keeps_its_writes(savers: Savers) -> None:
    with savers.open() as saver:
        first = put(saver, at("t"), {"messages": [message(1)]})
        saver.put_writes(first.config, [("a", 1)], "task")
        own_id = first.config["configurable"]["checkpoint_id"]
        again = put(saver, at("t"), {"messages": [message(2)]}, checkpoint_id=own_id)
        assert same(saver.get_tuple(at("t")), again._replace(pending_writes=[("task", "a", 1)]))
        assert len([*saver.list(at("t"))]) == 1
        saver.prune(["t"])
        report = inspect(saver, "t")
        assert report.problems == []
        assert report.garbage == 0


def test_a_value_that_appears_without_a_new_version_is_stored(savers: Savers) -> None:
    """A delta channel stores its value only now and then."""
    with savers.open() as saver, savers.open() as cold:
        first = put(saver, at("t"), {"n": 1}, absent=("delta",))
        for writer, name in ((saver, "t"), (cold, "u")):
            if name == "u":
                first = put(saver, at(name), {"n": 1}, absent=("delta",))
            second = put(writer, first.config, {"n": 1, "delta": {"x": 1}}, first.checkpoint, changed={"n"})
            versions = second.checkpoint["channel_versions"]
            assert "delta" in versions
            assert same(cold.get_tuple(at(name)), second)


def test_forks_that_count_to_the_same_version_do_not_mix(savers: Savers) -> None:
    with savers.open() as saver:
        root = put(saver, at("t"), {"messages": [message(1)], "n": 0})
        forks = [
            put(saver, root.config, {"messages": [message(1), message(k)], "n": k}, root.checkpoint) for k in (5, 6, 7)
        ]
        # Back on the first fork, with what another fork remembers: "n" does not change here.
        later = put(
            saver, forks[0].config, {"messages": [message(9)], "n": 5}, forks[0].checkpoint, changed={"messages"}
        )
        for fork in (*forks, later):
            assert same(saver.get_tuple(fork.config), fork)


def test_integer_and_float_versions_survive_and_forks_of_them_do_not_mix(savers: Savers) -> None:
    with savers.open() as saver:
        root = put(saver, at("t"), {"n": "root", "m": 1})
        root.checkpoint["channel_versions"] = {"n": 1, "m": 1.5}
        root = put(saver, at("t"), {"n": "root", "m": 1}, root.checkpoint)
        assert root.checkpoint["channel_versions"] == {"n": 2, "m": 2.5}
        left = put(saver, root.config, {"n": "left", "m": 1}, root.checkpoint, changed={"n"})
        right = put(saver, root.config, {"n": "right", "m": 2}, root.checkpoint, changed={"n", "m"})
        child = put(saver, left.config, {"n": "left", "m": 3}, left.checkpoint, changed={"m"})
        for wanted in (root, left, right, child):
            assert same(saver.get_tuple(wanted.config), wanted)


def test_thread_ids_may_be_ints_and_uuids(savers: Savers) -> None:
    number, name = 7, UUID(int=7)
    with savers.open() as saver:
        for thread_id in (number, name):
            config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
            put(saver, config, {"n": str(thread_id)})
            found = saver.get_tuple(at(str(thread_id)))
            assert found is not None
            assert found.checkpoint["channel_values"] == {"n": str(thread_id)}
            assert saver.get_tuple(config) == found


def test_put_writes_without_checkpoint_id_says_what_is_missing(savers: Savers) -> None:
    with savers.open() as saver, pytest.raises(InvalidRequestError, match="checkpoint_id"):
        saver.put_writes(at("t"), [("a", 1)], "task")


def test_a_thread_in_a_newer_layout_is_refused_by_every_verb_and_left_alone(savers: Savers) -> None:
    with savers.open() as saver:
        done = put(saver, at("t"), {"n": 1, "big": "x" * 100_000})
        key = saver.scope.keys.thread("", "t").checkpoints
        savers.client.hset(key, "v", 99)
        before = savers.client.hgetall(key)
        verbs: list[Any] = [
            lambda: saver.get_tuple(at("t")),
            lambda: put(saver, done.config, {"n": 2, "big": "y" * 100_000}, done.checkpoint),
            lambda: saver.put_writes(done.config, [("a", 1)], "task"),
            lambda: list(saver.list(at("t"))),
            lambda: saver.prune(["t"]),
            lambda: saver.copy_thread("t", "u"),
            lambda: saver.get_delta_channel_history(config=done.config, channels=["a"]),
        ]
        for verb in verbs:
            with pytest.raises(NewerLayoutError, match="99"):
                verb()
        assert savers.client.hgetall(key) == before
        assert "layout 99" in inspect(saver, "t").problems[0]


@pytest.mark.parametrize("shallow", [False, True])
def test_a_stale_runner_is_refused_and_leaves_nothing(savers: Savers, shallow: bool) -> None:
    with savers.open(shallow=shallow) as saver:
        old, new = saver.fenced(9), saver.fenced(10)
        first = put(old, at("t"), {"big": "a" * 100_000}, metadata={"run_id": "r"})
        second = put(new, first.config, {"big": "b" * 100_000}, first.checkpoint)
        stored = savers.client.hgetall(saver.scope.keys.thread("", "t").checkpoints)
        with pytest.raises(StaleWriterError, match="10"):
            put(old, second.config, {"big": "c" * 100_000}, second.checkpoint)
        with pytest.raises(StaleWriterError, match="10"):
            old.put_writes(second.config, [("a", 1)], "task")
        verbs: list[Callable[[], None]] = [
            lambda: old.prune(["t"], strategy="delete"),
            lambda: old.delete_thread("t"),
        ]
        if not shallow:  # which keeps nothing that could be pruned
            verbs += [lambda: old.prune(["t"]), lambda: old.delete_for_runs(["r"])]
        for verb in verbs:
            with pytest.raises(StaleWriterError, match="10"):
                verb()
        assert savers.client.hgetall(saver.scope.keys.thread("", "t").checkpoints) == stored
        assert same(new.get_tuple(at("t")), second)
        new.put_writes(second.config, [("a", 1)], "task")


def test_many_threads_of_one_process_read_and_write_at_once(savers: Savers) -> None:
    with savers.open() as saver, ThreadPoolExecutor(64) as pool:

        def turn(number: int) -> CheckpointTuple | None:
            done = put(saver, at(f"t{number}"), {"n": number})
            assert done.config["configurable"]["thread_id"] == f"t{number}"
            return saver.get_tuple(at(f"t{number}"))

        found = list(pool.map(turn, range(256)))
        assert [tuple_ and tuple_.checkpoint["channel_values"]["n"] for tuple_ in found] == list(range(256))


@pytest.mark.anyio
async def test_256_concurrent_reads_on_a_default_saver_all_answer(redis_url: str, redis_client: Any) -> None:
    async with AsyncRedisSaver.from_conn_string(redis_url) as saver:
        await asyncio.to_thread(grow, saver, "t", 3)
        found = await asyncio.gather(*(saver.aget_tuple(at("t")) for _ in range(256)))
        assert all(tuple_ is not None for tuple_ in found)
        assert len({id(tuple_) for tuple_ in found}) == 256


@pytest.mark.anyio
async def test_what_is_appended_to_a_channel_after_a_put_began_is_not_in_it(redis_url: str, redis_client: Any) -> None:
    async with AsyncRedisSaver.from_conn_string(redis_url) as saver:
        log = ["first"]
        checkpoint, new = checkpoint_of(saver, {"long": [message(number) for number in range(10_000)], "log": log})
        checkpoint["channel_versions"] = {"long": new["long"], "log": new["log"]}  # the order in which they are encoded
        putting = asyncio.create_task(saver.aput(at("t"), checkpoint, {"step": 1}, new))
        await asyncio.sleep(0)  # it has begun, and may be anywhere in the long list
        log.append("second")
        await putting
        found = await saver.aget_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"]["log"] == ["first"]


@pytest.mark.anyio
async def test_a_sync_call_inside_a_running_loop_names_its_twin(redis_url: str, redis_client: Any) -> None:
    with RedisSaver.from_conn_string(redis_url) as saver:
        with pytest.raises(WrongColourError, match=r"AsyncRedisSaver\.aget_tuple"):
            saver.get_tuple(at("t"))
        with pytest.raises(UnsupportedError, match="AsyncRedisSaver"):
            await saver.aget_tuple(at("t"))
    async with AsyncRedisSaver.from_conn_string(redis_url) as awaiting:
        with pytest.raises(WrongColourError, match="await aget_tuple"):
            awaiting.get_tuple(at("t"))


@pytest.mark.anyio
async def test_a_notebook_may_allow_blocking_calls_in_its_loop(redis_url: str, redis_client: Any) -> None:
    with RedisSaver.from_conn_string(redis_url, allow_in_loop=True) as saver:
        assert saver.get_tuple(at("t")) is None


def test_constructor_conventions_of_langgraph_checkpoint_redis_work(savers: Savers) -> None:
    options: dict[str, Any] = {
        "ttl": {"default_ttl": 60, "refresh_on_read": True},
        "checkpoint_prefix": "mine",
        "checkpoint_write_prefix": "ignored",
    }
    with savers.open(**options) as saver:
        put(saver, at("t"), {"n": 1})
        keys = savers.client.keys("mine:*")
        assert sorted(keys) == [b"mine:t:{/t}:c", b"mine:t:{/t}:i", b"mine:threads:"]
        assert savers.client.dbsize() == 3
        assert 3_500_000 < savers.client.pttl("mine:t:{/t}:c") <= 3_600_000
    with RedisSaver(redis_client=savers.client) as saver:
        assert saver.get_tuple(at("t")) is None
    with pytest.raises(ConfigError, match="default_tll"):
        RedisSaver(savers.url, ttl={"default_tll": 1})
    with pytest.raises(ConfigError, match="minutes"):
        RedisSaver(savers.url, ttl={"default_ttl": -1})
    with pytest.raises(ConfigError, match=r'ttl is 60: write ttl=\{"default_ttl": minutes\}'):
        RedisSaver(savers.url, ttl=60)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"redis_url.*`rtmem up --redis-only`"):
        RedisSaver()


def test_versions_sort_like_their_numbers_and_continue_another_savers_form() -> None:
    saver = RedisSaver("redis://unused")
    versions = [saver.get_next_version(None, None)]
    for _ in range(70):
        versions.append(saver.get_next_version(versions[-1], None))
    assert versions == sorted(versions)
    assert len(set(versions)) == 71
    assert len(versions[0]) == 14
    langgraph = "00000000000000000000000000000041.0.4"
    assert saver.get_next_version(langgraph, None).startswith("00000000000000000000000000000042.")
    assert saver.get_next_version(3, None) == 4
