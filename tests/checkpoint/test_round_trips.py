"""How often each verb asks the server, and what travels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rtmem.settings import Checkpoint
from tests.checkpoint.colours import Meter, Savers
from tests.checkpoint.talks import at, grow, message, put, same

BIG = "x" * 70_000


def wire_bytes(savers: Savers, call: Callable[[], Any]) -> int:
    """Bytes in and out of the server for one call, without those of asking for the count."""

    def total() -> int:
        stats = savers.client.info("stats")
        return int(stats["total_net_input_bytes"] + stats["total_net_output_bytes"])

    # The reply to INFO is counted after it was written, so a pair of questions around nothing is the measure.
    first = total()
    idle = total() - first
    before = total()
    call()
    return total() - before - idle


@pytest.mark.parametrize("shallow", [False, True])
def test_put_put_writes_and_get_tuple_are_one_round_trip_each(savers: Savers, shallow: bool) -> None:
    with savers.open(shallow=shallow) as saver, savers.open(shallow=shallow) as cold:
        saver.put(at("other"), *_first(saver))  # the function library is there
        meter, cold_meter = Meter(saver), Meter(cold)
        savers.client.config_resetstat()
        first = put(saver, at("t"), {"messages": [message(1)], "n": 1}, metadata={"run_id": "r"})
        assert meter.take() == 1
        second = put(saver, first.config, {"messages": [message(1), message(2)], "n": 1}, first.checkpoint)
        assert meter.take() == 1
        saver.put_writes(second.config, [("a", 1), ("b", 2)], "task")
        assert meter.take() == 1
        for config in (at("t"), at("t"), second.config):
            assert saver.get_tuple(config) is not None
            assert meter.take() == 1
            assert cold.get_tuple(config) is not None
            assert cold_meter.take() == 1
        # A process that takes a thread over sends only what is new, in one.
        third = put(cold, second.config, {"messages": [message(1), message(2), message(3)], "n": 1}, second.checkpoint)
        assert cold_meter.take() == 1
        assert third.checkpoint["id"] > second.checkpoint["id"]
        calls = savers.client.info("commandstats")["cmdstat_fcall"]["calls"]
        assert calls == 3 + 6 + 1


def _first(saver: Any) -> tuple[Any, ...]:
    from tests.checkpoint.talks import checkpoint_of

    checkpoint, new = checkpoint_of(saver, {"n": 1})
    return checkpoint, {}, new


def test_values_of_64_kb_and_more_cost_a_read_one_round_trip_more_and_a_put_none(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as cold:
        first = put(saver, at("t"), {"n": 1})
        meter, cold_meter = Meter(saver), Meter(cold)
        second = put(saver, first.config, {"big": BIG, "messages": [message(1), message(2, 70_000)]}, first.checkpoint)
        assert meter.take() == 1
        assert same(cold.get_tuple(at("t")), second)
        assert cold_meter.take() == 2
        assert same(cold.get_tuple(at("t")), second)
        assert cold_meter.take() == 1
        # Such a value never passes through the function, in either direction.
        for command in [command for batch in meter.batches for command in batch.commands if command[0] == "FCALL"]:
            assert max(len(str(part)) for part in command) < 65_536


def test_list_is_one_round_trip_a_page(savers: Savers) -> None:
    with savers.open(settings=Checkpoint(page_size=20)) as saver:
        grow(saver, "t", 50)
        meter = Meter(saver)
        assert len([*saver.list(at("t"), limit=10)]) == 10
        assert meter.take() == 1
        assert len([*saver.list(at("t"))]) == 50
        assert meter.take() == 3
        assert len([*saver.list(at("t"), filter={"step": 7})]) == 1
        assert meter.take() <= 3


def test_list_with_a_text_filter_does_not_transfer_what_cannot_match(savers: Savers) -> None:
    with savers.open() as saver:
        config, before = at("t"), None
        for number in range(20):
            done = put(saver, config, {"n": "x" * 5_000 + str(number)}, before, {"who": f"user-{number}"})
            config, before = done.config, done.checkpoint
        assert wire_bytes(savers, lambda: [*saver.list(at("t"), filter={"who": "user-3"})]) < 8_000


def test_delete_thread_is_one_round_trip(savers: Savers) -> None:
    with savers.open() as saver:
        grow(saver, "t", 30)
        meter = Meter(saver)
        saver.delete_thread("t")
        assert meter.take() == 1


def test_appending_a_message_sends_and_stores_one_message(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as cold:
        messages = [message(k, 200) for k in range(600)]
        first = put(saver, at("t"), {"messages": messages, "blob": "b" * 50_000})
        whole = wire_bytes(savers, lambda: cold.get_tuple(at("t")))
        assert whole > 250_000
        found = cold.get_tuple(at("t"))
        assert found is not None
        values = {"messages": [*messages, message(600, 200)], "blob": "b" * 50_000}

        def append() -> None:
            put(saver, first.config, values, first.checkpoint, changed={"messages"})

        sent = wire_bytes(savers, append)
        assert sent < 2_500
        # The other process knows the pieces only once it has read them again.
        found = cold.get_tuple(at("t"))
        assert found is not None
        later = {**found.checkpoint["channel_values"]}
        later["messages"] = [*later["messages"], message(601, 200)]
        assert (
            wire_bytes(savers, lambda: put(cold, found.config, later, found.checkpoint, changed={"messages"})) < 2_500
        )


def test_editing_one_old_message_in_place_sends_only_its_neighbourhood(savers: Savers) -> None:
    with savers.open() as saver:
        put(saver, at("t"), {"messages": [message(k, 200) for k in range(600)]})
        found = saver.get_tuple(at("t"))
        assert found is not None
        values = found.checkpoint["channel_values"]
        values["messages"][100].additional_kwargs["n"]["at"].append("edited")

        def edit() -> None:
            put(saver, found.config, values, found.checkpoint)

        assert wire_bytes(savers, edit) < 20_000


@pytest.mark.parametrize("shallow", [False, True])
def test_reading_a_head_that_is_held_takes_300_bytes_of_wire(savers: Savers, shallow: bool) -> None:
    thread_id = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    with savers.open(shallow=shallow) as saver:
        put(saver, at(thread_id), {"messages": [message(k, 200) for k in range(600)], "blob": BIG})
        assert saver.get_tuple(at(thread_id)) is not None
        assert wire_bytes(savers, lambda: saver.get_tuple(at(thread_id))) <= 300


def test_growth_is_linear_in_what_is_said(savers: Savers) -> None:
    """200 super-steps, a list that grows to 50 x 400 B, 2 writes a step: at most 0.5 MB, shallow 0.1 MB."""
    for shallow, bytes_max in ((False, 500_000), (True, 100_000)):
        name = f"t{shallow}"
        with savers.open(shallow=shallow) as saver:
            config, before = at(name), None
            messages: list[Any] = []
            for step in range(200):
                if step % 4 == 0:
                    messages = [*messages, {"role": "user", "content": f"{step:03}" + "x" * 380}]
                values = {"messages": messages, "step": step}
                changed = {"step", *({"messages"} if step % 4 == 0 else ())}
                done = put(saver, config, values, before, {"step": step}, changed=changed)
                config, before = done.config, done.checkpoint
                saver.put_writes(config, [("step", step)], f"task-{step}")
                saver.put_writes(config, [("branch:to:node", None)], f"other-{step}")
            keys = savers.client.keys(f"rtmem:t:{{/{name}}}:*")
            used = sum(savers.client.memory_usage(key, samples=0) for key in keys)
            print(f"growth, shallow={shallow}: {used} bytes")
            assert used <= bytes_max
