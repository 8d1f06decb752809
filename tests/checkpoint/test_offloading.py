"""Oversized values lie at pointers: what puts and reads cost; nothing changes, dangles or is left over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from rtmem.checkpoint import AsyncRedisSaver
from rtmem.errors import (
    ConfigError,
    CorruptRecordError,
    PointerNotFoundError,
    QuotaExceededError,
    ServerUnavailableError,
    StaleWriterError,
    ThreadDeletedError,
    TooLargeError,
)
from rtmem.operations import pointer_inspection, pointer_lifetimes, pointers
from rtmem.operations.pointer_lifetimes import scope_of
from rtmem.settings import Checkpoint, Pointers
from rtmem.steps import Batch, Request
from tests.checkpoint.colours import AnySaver, Fuse, Meter, Savers, inspect, run, watch
from tests.checkpoint.talks import at, checkpoint_of, message, put, same

BIG = "x" * 5_000
LARGE = "0123456789abcdef" * 200_000  # 3.2 MB: several batches
BRIEF = Pointers(grace_ms=1)


def usage(saver: AnySaver) -> Any:
    return run(saver, pointers.usage(scope_of(saver.scope)))


def pointers_of(saver: AnySaver) -> list[str]:
    """The pointers that the threads of a saver's principal refer to, from the server's own records."""
    client_keys = scope_of(saver.scope).keys
    (ids,) = run(saver, _ask("ZRANGE", client_keys.ids, 0, -1))
    return [member[13:].decode() for member in ids]


def _ask(*command: Any) -> Any:
    return (yield Batch((command,)))


def sound(saver: AnySaver, *thread_ids: str) -> None:
    """Nothing dangles and nothing is left over, seen from the threads and from the pointers."""
    for thread_id in thread_ids:
        report = inspect(saver, thread_id)
        assert report.problems == []
        assert report.unneeded == 0
    report = run(saver, pointer_inspection.inspect(scope_of(saver.scope)))
    assert report.sound, report


def swept_until(saver: AnySaver, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        run(saver, pointer_lifetimes.sweep(scope_of(saver.scope)))
        assert time.monotonic() < deadline


@pytest.mark.parametrize("shallow", [False, True])
def test_every_kind_of_value_comes_back_as_it_was_also_to_a_saver_without_the_option(
    savers: Savers, shallow: bool
) -> None:
    values = {
        "text": BIG,
        "bytes": b"\0\xff" * 3_000,
        "numbers": list(range(3_000)),
        "object": {"rows": [[1, "a"]] * 900, "more": {1, 2, 3}},
        "messages": [message(1), ToolMessage(BIG, tool_call_id="1"), HumanMessage("short")],
        "small": 1,
    }
    with savers.open(shallow=shallow, offload_bytes_min=1_000) as saver, savers.open(shallow=shallow) as other:
        done = put(saver, at("t"), values)
        saver.put_writes(done.config, [("big", BIG), ("small", 2)], "task")
        done = done._replace(pending_writes=[("task", "big", BIG), ("task", "small", 2)])
        assert same(saver.get_tuple(at("t")), done)
        assert same(other.get_tuple(at("t")), done)
        assert list(other.list(at("t"))) == [done]
        report = inspect(saver, "t")
        assert report.offloaded == 6  # of the messages only the long one
        assert report.piece_bytes + report.writes_bytes < 3_000
        sound(saver, "t")


def test_a_put_costs_one_round_trip_more_for_a_value_of_up_to_1_mb_and_nothing_while_it_is_unchanged(
    savers: Savers,
) -> None:
    with savers.open(offload_bytes_min=1_000) as saver, savers.open(offload_bytes_min=1_000) as cold:
        put(saver, at("other"), {"big": BIG})  # the function libraries are there
        meter, cold_meter = Meter(saver), Meter(cold)
        first = put(saver, at("t"), {"n": 1, "small": "s"})
        assert meter.take() == 1
        second = put(saver, first.config, {"n": 1, "big": BIG}, first.checkpoint)
        assert meter.take() == 2
        third = put(saver, second.config, {"n": 2, "big": BIG}, second.checkpoint, changed={"n"})
        assert meter.take() == 1
        # Equal under a new version: this process knows that it is stored.
        fourth = put(saver, third.config, {"n": 3, "big": BIG}, third.checkpoint)
        assert meter.take() == 1
        # A process that never saw the value takes it over from the parent.
        fifth = put(cold, fourth.config, {"n": 4, "big": BIG}, fourth.checkpoint, changed={"n"})
        assert cold_meter.take() == 1
        saver.put_writes(fifth.config, [("a", 1)], "task")
        assert meter.take() == 1
        saver.put_writes(fifth.config, [("a", BIG)], "another")
        assert meter.take() == 2
        assert len(pointers_of(saver)) == 3  # other, t, and the write
        assert usage(saver).values == 1
        # One that is remembered is not fetched; one that is not costs one.
        assert saver.get_tuple(fourth.config) is not None
        meter.take()
        assert same(saver.get_tuple(at("t")), saver.get_tuple(at("t")))
        assert cold.get_tuple(first.config) is not None
        cold_meter.take()
        assert same(cold.get_tuple(second.config), second)
        assert cold_meter.take() in (2, 3)  # the second pointer's value was brought by the first
        sound(saver, "t", "other")


def test_a_value_above_a_batch_costs_one_to_claim_room_and_one_per_256_kb_and_two_where_an_equal_one_is(
    savers: Savers,
) -> None:
    with savers.open(offload_bytes_min=1_000) as saver:
        put(saver, at("other"), {"big": BIG})
        meter = Meter(saver)
        done = put(saver, at("t"), {"large": LARGE})
        batches = -(-len(LARGE) // (256 * 1024))
        assert meter.take() == 1 + batches + 1
        put(saver, at("u"), {"large": LARGE})
        assert meter.take() == 2 + 1
        assert max(map(_bytes_through_lua, meter.batches), default=0) < 10_000
        assert usage(saver).values == 2
        with savers.open() as cold:
            assert same(cold.get_tuple(at("t")), done)


def _bytes_through_lua(batch: Batch) -> int:
    calls = [command for command in batch.commands if command[0] == "FCALL"]
    return sum(len(part) for command in calls for part in command if isinstance(part, bytes | memoryview))


def test_a_shallow_put_frees_what_it_replaces_and_keeps_what_it_takes_over(savers: Savers) -> None:
    with savers.open(shallow=True, offload_bytes_min=1_000) as saver:
        done = put(saver, at("t"), {"a": BIG + "1", "b": BIG + "2"})
        for number in range(5):
            values = {"a": f"{BIG}{number} again", "b": BIG + "2"}
            done = put(saver, done.config, values, done.checkpoint, changed={"a"})
        assert same(saver.get_tuple(at("t")), done._replace(parent_config=None)) or saver.get_tuple(at("t")) is not None
        assert len(pointers_of(saver)) == 2
        sound(saver, "t")
        put(saver, done.config, {"a": 1}, done.checkpoint)
        assert pointers_of(saver) == []
        sound(saver, "t")


def test_pruning_and_deleting_free_what_nothing_refers_to_and_nothing_else(savers: Savers) -> None:
    with savers.open(offload_bytes_min=1_000) as saver:
        first = put(saver, at("t"), {"a": BIG + "1", "b": BIG}, metadata={"run_id": "one"})
        saver.put_writes(first.config, [("w", BIG + "w")], "task")
        second = put(
            saver, first.config, {"a": BIG + "2", "b": BIG}, first.checkpoint, {"run_id": "two"}, changed={"a"}
        )
        put(saver, at("u"), {"a": BIG + "1"}, metadata={"run_id": "one"})
        assert len(pointers_of(saver)) == 5
        saver.prune(["t"])
        assert len(pointers_of(saver)) == 3
        assert same(saver.get_tuple(at("t")), second)
        sound(saver, "t", "u")
        saver.delete_for_runs(["one"])
        assert len(pointers_of(saver)) == 2
        sound(saver, "t", "u")
        saver.delete_thread("t")
        assert usage(saver).pointers == usage(saver).bytes == 0
        sound(saver, "t", "u")


def test_a_copy_has_pointers_of_its_own_to_the_same_values(savers: Savers) -> None:
    with savers.open(offload_bytes_min=1_000) as saver:
        first = put(saver, at("t"), {"a": BIG + "1", "m": [message(1), ToolMessage(BIG, tool_call_id="1")]})
        saver.put_writes(first.config, [("w", BIG + "w"), ("n", 1)], "task")
        second = put(saver, first.config, {"a": BIG + "2"}, first.checkpoint)
        for _ in range(2):  # also onto itself
            saver.copy_thread("t", "copy")
        assert usage(saver).values == 4
        sound(saver, "t", "copy")
        saver.delete_thread("t")
        with savers.open() as cold:
            found = cold.get_tuple(at("copy"))
            assert found is not None
            assert found.checkpoint == second.checkpoint
            older = cold.get_tuple(at("copy", "", first.checkpoint["id"]))
            assert older is not None
            assert older.checkpoint == first.checkpoint
            assert older.pending_writes == [("task", "w", BIG + "w"), ("task", "n", 1)]
        sound(saver, "copy")
        saver.delete_thread("copy")
        assert usage(saver).pointers == 0


def test_a_write_that_is_not_taken_or_is_replaced_frees_its_value(savers: Savers) -> None:
    with savers.open(offload_bytes_min=1_000) as saver:
        done = put(saver, at("t"), {"n": 1})
        saver.put_writes(done.config, [("a", BIG)], "task")
        saver.put_writes(done.config, [("a", BIG + "replayed")], "task")  # the first one wins
        saver.put_writes(done.config, [("__error__", BIG + "1")], "task")
        saver.put_writes(done.config, [("__error__", BIG + "2")], "task")  # here the last one does
        found = saver.get_tuple(at("t"))
        assert found is not None
        assert sorted(write[2][len(BIG) :] for write in found.pending_writes or ()) == ["", "2"]
        assert len(pointers_of(saver)) == 2
        sound(saver, "t")


@pytest.mark.parametrize("what", ["record", "chunk", "damage"])
def test_a_value_that_is_gone_or_damaged_is_told_with_thread_channel_and_pointer_and_never_none(
    savers: Savers, what: str
) -> None:
    with savers.open(offload_bytes_min=1_000) as saver, savers.open() as cold:
        put(saver, at("t"), {"notes": BIG})
        (pointer,) = pointers_of(saver)
        keys = scope_of(saver.scope).keys
        if what == "record":
            savers.client.hdel(keys.records, f"r{pointer}")
        elif what == "chunk":
            savers.client.delete(keys.chunk(pointer, 0))
        else:
            savers.client.setrange(keys.chunk(pointer, 0), 100, b"?")
        with pytest.raises(CorruptRecordError, match=r"thread 't': channel 'notes' .*rtmem doctor threads") as caught:
            cold.get_tuple(at("t"))
        assert caught.value.data["thread_id"] == "t"
        assert caught.value.data["pointer"] == pointer
        with pytest.raises(CorruptRecordError):
            list(cold.list(at("t")))
        if what != "damage":
            assert any(pointer in problem for problem in inspect(saver, "t").problems)


def test_a_value_that_found_no_room_leaves_nothing_and_the_thread_as_it_was(savers: Savers) -> None:
    limits = Pointers(tenant_bytes_max=20_000, value_bytes_max=15_000)
    with savers.open(offload_bytes_min=1_000, pointers=limits) as saver:
        done = put(saver, at("t"), {"a": "a" * 12_000})
        for value, error in (("b" * 12_000, QuotaExceededError), ("c" * 16_000, TooLargeError)):
            with pytest.raises(error):
                put(saver, done.config, {"small": BIG, "a": value}, done.checkpoint)
            with pytest.raises(error):
                saver.put_writes(done.config, [("a", value)], "task")
        assert same(saver.get_tuple(at("t")), done)
        run(saver, pointer_lifetimes.sweep(scope_of(saver.scope)))
        assert inspect(saver, "t").problems == []


def test_a_refused_put_frees_what_it_had_stored(savers: Savers) -> None:
    with savers.open(offload_bytes_min=1_000) as saver:
        done = put(saver, at("t"), {"n": 1})
        old = saver.fenced(1)
        put(saver.fenced(2), done.config, {"n": 2}, done.checkpoint)
        with pytest.raises(StaleWriterError):
            put(old, done.config, {"a": BIG}, done.checkpoint)
        with pytest.raises(StaleWriterError):
            old.put_writes(done.config, [("a", BIG)], "task")
        saver.delete_thread("t")
        with pytest.raises(ThreadDeletedError):
            put(saver, done.config, {"a": BIG}, done.checkpoint)
        assert usage(saver).pointers == 0
        sound(saver, "t")


@pytest.mark.parametrize("verb", ["put", "put_writes"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("nth", [0, 1, 4, 5])
def test_a_put_that_breaks_anywhere_leaves_only_what_a_sweep_frees(
    savers: Savers, verb: str, after: bool, nth: int
) -> None:
    with savers.open(offload_bytes_min=1_000, pointers=BRIEF) as saver, savers.open(pointers=BRIEF) as cold:
        done = put(saver, at("t"), {"n": 1, "kept": BIG})
        fuse = Fuse(saver)
        fuse.set(nth, after=after)
        with suppress(ServerUnavailableError):
            if verb == "put":
                put(saver, done.config, {"n": 2, "kept": BIG, "large": LARGE}, done.checkpoint, changed={"n", "large"})
            else:
                saver.put_writes(done.config, [("large", LARGE)], "task")
        fuse.left = -1
        # Whatever can be seen is whole.
        found = cold.get_tuple(at("t"))
        assert found is not None
        assert found.checkpoint["channel_values"]["kept"] == BIG
        assert found.checkpoint["channel_values"].get("large", LARGE) == LARGE
        keys = scope_of(saver.scope).keys
        for name in savers.client.zrange(keys.due, 0, -1):
            savers.client.zadd(keys.due, {name: 1})  # the time for an upload is over
        swept_until(saver, lambda: inspect(saver, "t").unneeded == 0)
        report = run(saver, pointer_inspection.inspect(scope_of(saver.scope)))
        assert report.dangling == ()
        sound(saver, "t")
        cold.get_tuple(at("t"))


@pytest.mark.parametrize("shallow", [False, True])
def test_a_thread_that_is_deleted_between_value_and_checkpoint_begins_anew_whole(savers: Savers, shallow: bool) -> None:
    with savers.open(shallow=shallow, offload_bytes_min=1_000) as saver, savers.open(shallow=shallow) as other:
        put(other, at("t"), {"n": 1})
        checkpoint, new = checkpoint_of(saver, {"big": BIG})
        done: list[bool] = []

        def delete_before_the_checkpoint(request: Request) -> None:
            names = [str(command[1]) for command in request.commands] if isinstance(request, Batch) else []
            if "rtmem_v2_checkpoint_put" in names and not done:
                done.append(True)
                # Of another process: this saver's loop is at work.
                other.bind("").delete_thread("t") if not isinstance(other, AsyncRedisSaver) else _delete(savers, other)

        watch(saver, delete_before_the_checkpoint)
        # An id that is younger than the deletion: a run that began at the same moment.
        checkpoint["id"] = "ffffffff-ffff-6fff-bfff-ffffffffffff"
        saver.put(at("t"), checkpoint, {"source": "loop", "step": 1}, new)
        with savers.open(shallow=shallow) as cold:
            found = cold.get_tuple(at("t"))
            assert found is not None
            assert found.checkpoint["channel_values"] == {"big": BIG}
        assert done
        sound(saver, "t")


@pytest.mark.parametrize("shallow", [False, True])
@pytest.mark.parametrize("what", ["put", "put_writes"])
def test_a_thread_that_is_deleted_between_two_values_begins_anew_whole(
    savers: Savers, shallow: bool, what: str
) -> None:
    """One of them lost its pin, the other has it: a pointer that two pieces lead to is freed with the first of them."""
    with savers.open(shallow=shallow, offload_bytes_min=1_000) as saver, savers.open(shallow=shallow) as other:
        put(other, at("t"), {"n": 1})
        checkpoint, new = checkpoint_of(saver, {"one": BIG, "two": BIG + "2"})
        checkpoint["id"] = "ffffffff-ffff-6fff-bfff-ffffffffffff"
        stored: list[str] = []

        def delete_before_the_second_value(request: Request) -> None:
            names = [str(command[1]) for command in request.commands] if isinstance(request, Batch) else []
            if "rtmem_v2_pointers_commit" in names:
                stored.append(names[-1])
                if len(stored) == 2:
                    _delete(savers, other) if isinstance(other, AsyncRedisSaver) else other.delete_thread("t")
                    _, deleted_us = savers.client.time()
                    while savers.client.time()[1] // 1_000 == deleted_us // 1_000:
                        pass  # the second value is of another millisecond

        watch(saver, delete_before_the_second_value)
        if what == "put":
            saver.put(at("t"), checkpoint, {"source": "loop", "step": 1}, new)
        else:
            saver.put_writes(at("t", "", checkpoint["id"]), [("one", BIG), ("two", BIG + "2")], "task")
            small, new = checkpoint_of(saver, {"n": 1})
            saver.put(at("t"), {**small, "id": checkpoint["id"]}, {"source": "loop", "step": 1}, new)
        assert len(stored) > 2  # what was lost was stored again
        for _ in range(3):
            run(saver, pointer_lifetimes.sweep(scope_of(saver.scope)))
            saver.prune(["t"])
        with savers.open(shallow=shallow) as cold:
            found = cold.get_tuple(at("t"))
            assert found is not None
            if what == "put":
                assert found.checkpoint["channel_values"] == {"one": BIG, "two": BIG + "2"}
            else:
                assert found.pending_writes == [("task", "one", BIG), ("task", "two", BIG + "2")]
        sound(saver, "t")


def _delete(savers: Savers, other: AsyncRedisSaver) -> None:
    """Delete the thread from inside the loop that the saver under test runs in, over a connection of its own."""
    with savers.open(awaiting=False, connection_args={}, allow_in_loop=True) as blocking:
        blocking.delete_thread("t")


def test_pins_end_when_a_thread_expires_and_reading_it_in_time_keeps_them(savers: Savers) -> None:
    brief = Checkpoint(ttl_ms=60_000, refresh_on_read=True, offload_bytes_min=1_000)
    with savers.open(settings=brief, pointers=BRIEF) as saver:
        put(saver, at("t"), {"a": BIG})
        keys = saver.scope.keys.thread("", "t")
        savers.client.pexpire(keys.checkpoints, 30_000)
        savers.client.pexpire(keys.index, 30_000)
        assert saver.get_tuple(at("t")) is not None
        assert savers.client.pttl(keys.checkpoints) > 30_000
        swept_until(saver, lambda: True)
        run(saver, pointer_lifetimes.sweep(scope_of(saver.scope)))
        sound(saver, "t")
        savers.client.unlink(keys.checkpoints, keys.index)  # what an expiry does
        swept_until(saver, lambda: usage(saver).pointers == 0)
        sound(saver, "t")


def test_values_of_principals_are_kept_apart_and_counted_for_each(savers: Savers) -> None:
    with savers.open(offload_bytes_min=1_000) as saver:
        alice, bob = saver.bind("alice"), saver.bind("bob")
        done = put(alice, at("t"), {"a": BIG})
        put(bob, at("t"), {"a": BIG})
        assert usage(alice).values == usage(bob).values == 1
        bob.delete_thread("t")
        assert usage(bob).pointers == 0
        assert same(alice.get_tuple(at("t")), done)


def test_no_verb_of_pointers_takes_the_id_of_what_a_saver_moved_out(savers: Savers) -> None:
    with savers.open(offload_bytes_min=1_000) as saver:
        put(saver, at("t"), {"a": BIG})
        (pointer,) = pointers_of(saver)
        scope = scope_of(saver.scope)
        for steps in (
            lambda: pointers.resolve(scope, pointer),
            lambda: pointer_lifetimes.delete(scope, pointer),
            lambda: pointer_lifetimes.unpin(scope, pointer, "t"),
        ):
            with pytest.raises(PointerNotFoundError):
                run(saver, steps())
        assert run(saver, pointers.list_page(scope)).pointers == ()
        assert run(saver, pointers.list_page(scope, "t")).pointers == ()


def test_what_a_serialiser_encrypts_lies_encrypted_at_its_pointer(savers: Savers) -> None:
    pytest.importorskip("Crypto")
    serde = EncryptedSerializer.from_pycryptodome_aes(key=b"0123456789abcdef")
    with savers.open(offload_bytes_min=1_000, serde=serde) as saver:
        done = put(saver, at("t"), {"secret": "in plain sight " * 500})
        (pointer,) = pointers_of(saver)
        assert b"plain" not in savers.client.get(scope_of(saver.scope).keys.chunk(pointer, 0))
        with savers.open(serde=serde) as cold:
            assert same(cold.get_tuple(at("t")), done)


def test_a_limit_that_is_none_is_refused(savers: Savers) -> None:
    for wrong in (-1, True, "1000"):
        with pytest.raises(ConfigError, match="offload_bytes_min"), savers.open(offload_bytes_min=wrong):
            pass


def test_many_tasks_that_put_and_read_at_once_see_whole_values(savers: Savers) -> None:
    """Shallow puts free what another task is reading: it gets what is there now instead."""

    async def both(saver: AsyncRedisSaver) -> None:
        async def write() -> None:
            found = await saver.aget_tuple(at("t"))
            for number in range(30):
                assert found is not None
                checkpoint, new = checkpoint_of(saver, {"a": f"{number} {BIG}"}, found.checkpoint)
                config = await saver.aput(found.config, checkpoint, {"source": "loop", "step": number}, new)
                found = found._replace(config=config, checkpoint=checkpoint)

        async def read() -> None:
            cold = AsyncRedisSaver(driver=saver._driver, settings=Checkpoint(cache_bytes_max=0))
            for _ in range(60):
                found = await cold.aget_tuple(at("t"))
                assert found is not None
                assert found.checkpoint["channel_values"]["a"].endswith(BIG)

        await asyncio.gather(write(), read(), read())

    with savers.open(shallow=True, awaiting=True, offload_bytes_min=1_000) as saver:
        assert isinstance(saver, AsyncRedisSaver)
        put(saver, at("t"), {"a": BIG})
        savers.loop.wait(both(saver))
        assert len(pointers_of(saver)) == 1
        sound(saver, "t")
