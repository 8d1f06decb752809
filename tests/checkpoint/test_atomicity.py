"""All or nothing: lost connections, killed servers, cancelled callers, full servers, races, late writers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import redis
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.base.id import uuid6

from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver, RedisSaver
from rtmem.errors import ServerFullError, ServerUnavailableError, ThreadDeletedError
from tests.checkpoint.colours import AnySaver, Fuse, Savers, inspect
from tests.checkpoint.scissors import Cut, between
from tests.checkpoint.talks import at, checkpoint_of, grow, message, put, same
from tests.conftest import ServerFactory, kill_server

BIG = "x" * 70_000  # travels beside the function, in its transaction

Verb = Callable[[AnySaver, CheckpointTuple], Any]


def put_small(saver: AnySaver, first: CheckpointTuple) -> Any:
    """One message more."""
    values = {"messages": [message(1), message(2)], "big": first.checkpoint["channel_values"]["big"]}
    return put(saver, first.config, values, first.checkpoint, changed={"messages"})


def put_large(saver: AnySaver, first: CheckpointTuple) -> Any:
    """A message and a value of 64 KB or more each."""
    values = {"messages": [message(1), message(2, 70_000)], "big": BIG + "y"}
    return put(saver, first.config, values, first.checkpoint)


def put_writes(saver: AnySaver, first: CheckpointTuple) -> Any:
    saver.put_writes(first.config, [("a", BIG), ("b", 2)], "task", "~1")
    return first._replace(pending_writes=[("task", "a", BIG), ("task", "b", 2)])


@pytest.mark.parametrize("cut", ["before", "torn", "after"])
@pytest.mark.parametrize("verb", [put_small, put_large, put_writes])
@pytest.mark.parametrize("shallow", [False, True])
def test_a_lost_connection_leaves_all_or_nothing(savers: Savers, shallow: bool, verb: Verb, cut: Cut) -> None:
    with between(savers.url) as scissors, savers.open(shallow=shallow) as witness:
        once = {"retries_max": 0}
        with savers.open(shallow=shallow, url=scissors.url, connection_args=once) as saver:
            first = put(saver, at("t"), {"messages": [message(1)], "big": BIG})
            scissors.arm(cut)
            with pytest.raises(ServerUnavailableError):
                verb(saver, first)
            assert scissors.cuts == 1
            found = witness.get_tuple(at("t"))
            assert found is not None
            changed = not same(found, first)
            assert changed == (cut == "after")
            assert inspect(witness, "t").problems == []
            # What is asked for again has its effect once.
            wanted = verb(saver, first)
            assert same(saver.get_tuple(at("t")), wanted)
            assert same(witness.get_tuple(at("t")), wanted)
            assert inspect(witness, "t").problems == []


@pytest.mark.parametrize("cut", ["before", "torn", "after"])
@pytest.mark.parametrize("verb", [put_small, put_large, put_writes])
@pytest.mark.parametrize("shallow", [False, True])
def test_a_call_sent_again_by_the_driver_has_its_effect_once(
    savers: Savers, shallow: bool, verb: Verb, cut: Cut
) -> None:
    with between(savers.url) as scissors, savers.open(shallow=shallow) as witness:
        with savers.open(shallow=shallow, url=scissors.url) as saver:
            first = put(saver, at("t"), {"messages": [message(1)], "big": BIG})
            scissors.arm(cut)
            wanted = verb(saver, first)
            assert scissors.cuts == 1
            for reader in (witness, saver):
                assert same(reader.get_tuple(at("t")), wanted)
            report = inspect(witness, "t")
            assert report.problems == []
            assert report.garbage == 0


def test_a_put_that_was_stored_before_its_writer_was_fenced_off_stays_whole(savers: Savers) -> None:
    """Its reply is lost, a newer runner takes over, and the driver sends it again."""
    with between(savers.url) as scissors, savers.open() as witness:
        with savers.open(url=scissors.url) as saver:
            old, new = saver.fenced(1), witness.fenced(2)
            first = put(old, at("t"), {"n": 1})

            def take_over(_: Any) -> None:
                if scissors.cuts and not took:
                    took.append(True)
                    new.put_writes(first.config, [("a", 1)], "task")

            took: list[bool] = []
            plain: Any = saver._driver
            exchange = plain._wires.exchange if isinstance(saver, RedisSaver) else plain._exchange
            if not isinstance(saver, RedisSaver):

                async def again(batch: Any, deadline: float) -> Any:
                    await asyncio.to_thread(take_over, None)
                    return await exchange(batch, deadline)

                plain._exchange = again
            else:

                def again_sync(*args: Any) -> Any:
                    take_over(None)
                    return exchange(*args)

                plain._wires.exchange = again_sync
            scissors.arm("after")
            second = put(old, first.config, {"n": 2, "big": BIG}, first.checkpoint)
            assert took
            assert same(witness.get_tuple(at("t")), second)
            assert inspect(witness, "t").problems == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("shallow", [False, True])
def test_a_put_broken_off_at_any_of_its_round_trips_leaves_all_or_nothing(
    savers: Savers, shallow: bool, after: bool
) -> None:
    """Of the worst kind: its base is outdated, the thread is new to the indexes, values are large, a sweep follows."""
    with savers.open(shallow=shallow) as saver, savers.open(shallow=shallow) as other, savers.open() as full:
        fuse = Fuse(saver)
        for nth in range(12):
            name = f"t{nth}"
            first = put(full, at(name), {"messages": [message(1)], "big": BIG})
            assert same(saver.get_tuple(at(name)), first)
            second = put(other, first.config, {"messages": [message(2)], "big": BIG + "2"}, first.checkpoint)
            fuse.set(nth, after=after)
            with suppress(ServerUnavailableError):
                put(saver, second.config, {"messages": [message(3)], "big": BIG + "3"}, second.checkpoint)
            found = other.get_tuple(at(name))
            assert found is not None
            assert found.checkpoint["channel_values"]["big"] in (BIG + "2", BIG + "3")
            assert len(found.checkpoint["channel_values"]["messages"]) == 1
            assert inspect(other, name).problems == []
            if not fuse.blown:
                return
        raise AssertionError("a put takes no 12 round trips")


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [AsyncRedisSaver, AsyncShallowRedisSaver])
async def test_a_cancelled_put_happens_whole_or_not_at_all(
    redis_url: str, redis_client: redis.Redis, kind: type[AsyncRedisSaver]
) -> None:
    outcomes = set()
    async with kind.from_conn_string(redis_url) as saver, kind.from_conn_string(redis_url) as other:
        for ticks in range(24):
            config: Any = at(f"t{ticks}")
            checkpoint, new = checkpoint_of(saver, {"messages": [message(1)], "big": BIG})
            metadata: Any = {"source": "loop", "step": 1}
            config = await saver.aput(config, checkpoint, metadata, new)
            second, new = checkpoint_of(saver, {"messages": [message(2)], "big": BIG + "2"}, checkpoint)
            task = asyncio.create_task(saver.aput(config, second, metadata, new))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            # A read on the same connection comes after whatever was sent.
            await saver.aget_tuple(config)
            found = await other.aget_tuple(at(f"t{ticks}"))
            assert found is not None
            assert found.checkpoint in (checkpoint, second)
            outcomes.add(found.checkpoint["id"] == second["id"])
            report = await other._driver.run(_inspection(other, f"t{ticks}"))
            assert report.problems == []
    assert False in outcomes


def contents(client: Any) -> dict[bytes, Any]:
    """Everything on the server."""
    read = {b"hash": client.hgetall, b"zset": lambda key: client.zrange(key, 0, -1), b"set": client.smembers}
    return {key: read[client.type(key)](key) for key in client.keys("*")}


def _inspection(saver: AnySaver, thread_id: str) -> Any:
    from rtmem.operations.inspection import inspect_thread

    return inspect_thread(saver.scope, thread_id)


@pytest.mark.parametrize("shallow", [False, True])
def test_concurrent_puts_end_with_the_highest_id_as_latest(savers: Savers, shallow: bool) -> None:
    ids = [str(uuid6()) for _ in range(60)]
    shuffled = random.Random(7).sample(ids, len(ids))
    with savers.open(shallow=shallow) as one, savers.open(shallow=shallow, awaiting=not savers.awaiting) as other:
        with ThreadPoolExecutor(16) as pool:

            def write(number: int) -> None:
                saver = (one, other)[number % 2]
                put(saver, at("t"), {"id": shuffled[number], "big": BIG}, checkpoint_id=shuffled[number])

            list(pool.map(write, range(len(ids))))
        for saver in (one, other):
            found = saver.get_tuple(at("t"))
            assert found is not None
            assert found.checkpoint["id"] == found.checkpoint["channel_values"]["id"] == ids[-1]
            assert [found.checkpoint["id"] for found in saver.list(at("t"))] == (ids[-1:] if shallow else ids[::-1])
        report = inspect(one, "t")
        assert report.problems == []
        assert report.references == (1 if shallow else len(ids))
        assert not shallow or report.pieces == 1


@pytest.mark.parametrize("shallow", [False, True])
def test_a_full_server_stores_all_or_nothing_still_reads_and_still_deletes(savers: Savers, shallow: bool) -> None:
    client = savers.client
    with savers.open(shallow=shallow) as saver:
        firsts = {
            name: put(saver, at(name), {"messages": [message(1)], "big": BIG}, metadata={"run_id": f"run-{name}"})
            for name in ("a", "b", "c")
        }
        for first in firsts.values():
            put_writes(saver, first)
        firsts = {name: saver.get_tuple(first.config) or first for name, first in firsts.items()}
        maxmemory = client.config_get("maxmemory")["maxmemory"]
        client.config_set("maxmemory", 1_000_000)
        try:
            stored = contents(client)
            for name, first in firsts.items():
                for verb in (put_small, put_large, put_writes):
                    with pytest.raises(ServerFullError, match="maxmemory"):
                        verb(saver, first)
                with pytest.raises(ServerFullError):
                    saver.copy_thread(name, "elsewhere")
                with savers.open(shallow=shallow) as cold:
                    assert same(cold.get_tuple(at(name)), first)
            assert contents(client) == stored
            saver.delete_thread("a")
            saver.delete_for_runs(["run-b"])
            saver.prune(["c"])
            assert saver.get_tuple(at("a")) is saver.get_tuple(at("b")) is None
            assert same(saver.get_tuple(at("c")), firsts["c"])
        finally:
            client.config_set("maxmemory", maxmemory)
        put_large(saver, firsts["c"])
        assert inspect(saver, "c").problems == []


def test_what_was_acknowledged_survives_a_killed_server(redis_server: ServerFactory) -> None:
    server = redis_server(profile="durable", modules=False)
    with RedisSaver.from_conn_string(server.url) as saver:
        config = grow(saver, "t", 5)
        last = put(saver, config, {"messages": [message(1)], "big": BIG})
        saver.put_writes(last.config, [("a", 1)], "task")
        kill_server(server.data_dir)
        with pytest.raises(ServerUnavailableError):
            put(saver, last.config, {"big": BIG + "2"}, last.checkpoint)
        redis_server(profile="durable", modules=False, data_dir=server.data_dir)
        # The functions are there again too, and the saver goes on where it was.
        assert same(saver.get_tuple(at("t")), last._replace(pending_writes=[("task", "a", 1)]))
        later = put(saver, last.config, {"big": BIG + "3"}, last.checkpoint)
        assert same(saver.get_tuple(at("t")), later)
        assert len([*saver.list(at("t"))]) == 7
        assert inspect(saver, "t").problems == []


def test_a_server_that_lost_its_functions_gets_them_again(savers: Savers) -> None:
    with savers.open() as saver:
        first = put(saver, at("t"), {"n": 1})
        for verb in (put_writes, lambda s, f: s.get_tuple(f.config), lambda s, f: [*s.list(at("t"))]):
            savers.client.function_flush()
            verb(saver, first)
        savers.client.function_flush()
        second = put(saver, first.config, {"n": 2, "big": BIG}, first.checkpoint)
        assert same(saver.get_tuple(at("t")), second)
        assert inspect(saver, "t").problems == []


@pytest.mark.parametrize("shallow", [False, True])
def test_a_run_that_began_before_its_thread_was_deleted_cannot_bring_it_back(savers: Savers, shallow: bool) -> None:
    with savers.open(shallow=shallow) as runner, savers.open(shallow=shallow) as other:
        first = put(runner, at("t"), {"n": 1, "big": BIG})
        planned, new = checkpoint_of(runner, {"n": 2, "big": BIG + "2"}, first.checkpoint)
        other.delete_thread("t")
        metadata: Any = {}
        with pytest.raises(ThreadDeletedError):
            runner.put(first.config, planned, metadata, new)
        with pytest.raises(ThreadDeletedError):
            runner.put_writes(first.config, [("a", 1)], "task")
        with pytest.raises(ThreadDeletedError):  # a step that began afterwards, of the run that began before
            put(runner, first.config, {"n": 3, "big": BIG}, first.checkpoint)
        assert savers.client.keys("rtmem:t:*") == [b"rtmem:t:{/t}:d"]
        assert savers.client.ttl("rtmem:t:{/t}:d") > 0


@pytest.mark.parametrize("shallow", [False, True])
def test_a_deleted_thread_can_begin_anew_at_once_also_with_writes_first(savers: Savers, shallow: bool) -> None:
    with savers.open(shallow=shallow) as saver:
        grow(saver, "t", 3)
        saver.delete_thread("t")
        assert saver.get_tuple(at("t")) is None
        assert [*saver.list(None)] == []
        own_id = str(uuid6())
        saver.put_writes(at("t", "", own_id), [("a", 1)], "task")
        first = put(saver, at("t"), {"n": 1}, checkpoint_id=own_id)
        wanted = first._replace(pending_writes=[("task", "a", 1)])
        assert same(saver.get_tuple(at("t")), wanted)
        assert [*saver.list(None)] == [wanted]
        assert inspect(saver, "t").problems == []
