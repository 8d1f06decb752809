"""Turns, ratios and failures of the engine, on contenders whose cost is known to the microsecond."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from rtmem.loadtest import Contender, Plan, measure, turn_orders

pytestmark = pytest.mark.anyio


class Clock:
    """Time passes only when a contender says so."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s

    def taking(self, *costs_ms: float) -> Callable[[int], Awaitable[None]]:
        """An operation that costs `costs_ms` in turn, again and again."""

        async def operation(number: int) -> None:
            await anyio.lowlevel.checkpoint()
            self.now_s += costs_ms[number % len(costs_ms)] / 1000

        return operation


async def test_ratio_is_taken_to_the_named_baseline() -> None:
    clock = Clock()
    contenders = [
        Contender("slow", clock.taking(9)),
        Contender("floor", clock.taking(3)),
        Contender("fast", clock.taking(1)),
    ]

    found = await measure(Plan("x", baseline="floor", rounds=3, operations=4), contenders, clock=clock)

    assert [row.contender for row in found.rows] == ["slow", "floor", "fast"]
    assert [row.ratio for row in found.rows] == pytest.approx([3, 1, 1 / 3])
    slow = found.row("slow")
    assert slow is not None
    assert slow.latency is not None
    assert slow.latency.count == 12
    assert slow.latency.p50_us == pytest.approx(9_000)
    assert slow.operations_per_s == pytest.approx(1000 / 9)


async def test_a_machine_that_slows_down_for_a_round_does_not_move_the_ratio() -> None:
    clock = Clock()
    turns = 0

    def drifting(cost_ms: float) -> Callable[[int], Awaitable[None]]:
        async def operation(_number: int) -> None:
            # Everything in the second of three rounds takes forty times as long, as when a neighbour wakes up.
            clock.now_s += cost_ms / 1000 * (40 if 2 <= turns < 4 else 1)

        return operation

    def count(_name: str) -> None:
        nonlocal turns
        turns += 1

    contenders = [Contender("floor", drifting(2)), Contender("ours", drifting(5))]
    plan = Plan("x", baseline="floor", rounds=3, operations=4, warmup=0)

    found = await measure(plan, contenders, clock=clock, on_turn=count)

    ours = found.row("ours")
    assert ours is not None
    assert (ours.ratio_low, ours.ratio, ours.ratio_high) == pytest.approx((2.5, 2.5, 2.5))


async def test_every_round_gives_everyone_one_turn_in_the_order_of_the_seed() -> None:
    seen: list[str] = []
    clock = Clock()
    names = ["a", "b", "c", "d"]
    plan = Plan("x", baseline="a", rounds=5, operations=1, seed=11)

    await measure(plan, [Contender(name, clock.taking(1)) for name in names], clock=clock, on_turn=seen.append)

    rounds = [seen[start : start + 4] for start in range(0, 20, 4)]
    assert rounds == turn_orders(names, rounds=5, seed=11)
    assert all(sorted(order) == names for order in rounds)


def test_orders_repeat_with_their_seed_and_differ_without() -> None:
    names = [f"contender {number}" for number in range(8)]

    assert turn_orders(names, 20, seed=3) == turn_orders(names, 20, seed=3)
    assert turn_orders(names, 20, seed=3) != turn_orders(names, 20, seed=4)
    # Nobody always follows the same neighbour, whose garbage or cache it might inherit.
    assert len({tuple(order) for order in turn_orders(names, 20, seed=3)}) == 20


async def test_warm_up_is_not_counted_and_inputs_never_repeat() -> None:
    given: list[int] = []
    clock = Clock()

    async def operation(number: int) -> None:
        given.append(number)
        clock.now_s += 100 if number < 5 else 0.001

    plan = Plan("x", baseline="a", rounds=2, operations=3, warmup=5)

    found = await measure(plan, [Contender("a", operation)], clock=clock)

    assert given == list(range(5 + 2 * 3))
    (row,) = found.rows
    assert row.latency is not None
    assert row.latency.count == 6
    assert row.latency.max_us == pytest.approx(1_000)


async def test_preparation_is_not_timed() -> None:
    clock = Clock()

    def prepare(number: int) -> int:
        clock.now_s += 50
        return number

    found = await measure(
        Plan("x", baseline="a", rounds=2, operations=3), [Contender("a", clock.taking(4), prepare)], clock=clock
    )

    (row,) = found.rows
    assert row.latency is not None
    assert row.latency.max_us == pytest.approx(4_000)


@pytest.mark.parametrize(("operations", "concurrency", "at_once"), [(12, 4, 4), (3, 8, 3), (5, 1, 1)])
async def test_concurrency_is_the_number_of_operations_in_flight(
    operations: int, concurrency: int, at_once: int
) -> None:
    flying = most = 0
    given: list[Any] = []

    async def operation(number: int) -> None:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        given.append(number)
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        flying -= 1

    plan = Plan("x", baseline="a", rounds=1, operations=operations, warmup=0, concurrency=concurrency)

    await measure(plan, [Contender("a", operation)])

    assert most == at_once
    assert sorted(given) == list(range(operations))


async def test_a_turn_that_ends_by_time_counts_whatever_was_done_in_it() -> None:
    clock = Clock()
    contenders = [Contender("floor", clock.taking(2)), Contender("slow", clock.taking(300))]
    plan = Plan("x", baseline="floor", rounds=3, operations=10_000, warmup=0, turn_s=0.999)

    found = await measure(plan, contenders, clock=clock)

    floor, slow = found.row("floor"), found.row("slow")
    assert floor is not None
    assert slow is not None
    assert floor.latency is not None
    assert slow.latency is not None
    # The fourth of the slow one begins at 0.9 s and is waited for, so it counts, with the time that it took.
    assert (floor.latency.count, slow.latency.count) == (3 * 500, 3 * 4)
    assert slow.operations_per_s == pytest.approx(1000 / 300)
    assert slow.throughput_ratio == pytest.approx(2 / 300)
    assert floor.throughput_ratio == 1


async def test_a_turn_that_ends_by_time_begins_when_everybody_is_in_step() -> None:
    clock = Clock()
    given: list[int] = []

    async def operation(number: int) -> None:
        given.append(number)
        # The first of a turn are answered at once, as by a server that was idle.
        clock.now_s += 0.001 if number < 2 else 1

    plan = Plan("x", baseline="a", rounds=1, operations=4, warmup=0, concurrency=2, turn_s=9)

    found = await measure(plan, [Contender("a", operation)], clock=clock)

    (row,) = found.rows
    assert row.latency is not None
    assert (row.latency.count, row.latency.p50_us) == (4, pytest.approx(1e6))
    assert sorted(given) == list(range(6))


async def test_what_is_done_between_turns_is_not_timed() -> None:
    clock = Clock()
    tidied = 0

    def tidy() -> None:
        nonlocal tidied
        tidied += 1
        clock.now_s += 50

    contenders = [Contender("a", clock.taking(1)), Contender("b", clock.taking(1))]

    found = await measure(Plan("x", baseline="a", rounds=3, between_turns=tidy), contenders, clock=clock)

    assert tidied == 3 * 2
    assert [row.operations_per_s for row in found.rows] == pytest.approx([1000, 1000])


async def test_a_failing_operation_is_counted_and_not_timed() -> None:
    clock = Clock()

    async def operation(number: int) -> None:
        clock.now_s += 0.002
        if number % 2:
            raise ConnectionError("pool is empty")

    contenders = [Contender("floor", clock.taking(2)), Contender("half", operation)]
    plan = Plan("x", baseline="floor", rounds=2, operations=4, warmup=2)

    found = await measure(plan, contenders, clock=clock)

    half = found.row("half")
    assert half is not None
    assert half.latency is not None
    assert half.latency.count == 4
    assert half.errors == 1 + 4  # the warm-up's included
    assert half.first_error == "ConnectionError: pool is empty"


async def test_a_contender_that_cannot_even_warm_up_sits_out_and_says_why() -> None:
    clock = Clock()
    turns: list[str] = []

    async def broken(_number: int) -> None:
        raise RuntimeError("no such module")

    contenders = [Contender("floor", clock.taking(2)), Contender("broken", broken)]

    found = await measure(Plan("x", baseline="floor", rounds=3), contenders, clock=clock, on_turn=turns.append)

    row = found.row("broken")
    assert row is not None
    assert row.latency is None
    assert row.ratio is None
    assert row.first_error == "RuntimeError: no such module"
    assert turns == ["floor"] * 3


async def test_cpu_is_counted_per_operation_for_the_client_and_for_a_server_process() -> None:
    async def spin(_number: int) -> None:
        sum(range(20_000))

    async def rest(_number: int) -> None:
        await anyio.lowlevel.checkpoint()

    # This process stands for the server: what the client burns, the "server" burns too.
    contenders = [Contender("spin", spin, server_pid=os.getpid()), Contender("rest", rest)]

    found = await measure(Plan("x", baseline="rest", rounds=4, operations=100), contenders)

    spinning, resting = found.row("spin"), found.row("rest")
    assert spinning is not None
    assert resting is not None
    assert spinning.client_cpu_us is not None
    assert resting.client_cpu_us is not None
    assert spinning.client_cpu_us > resting.client_cpu_us
    assert spinning.server_cpu_us is not None
    assert spinning.server_cpu_us == pytest.approx(spinning.client_cpu_us, rel=0.5)
    assert spinning.client_cpu_ratio == pytest.approx(spinning.client_cpu_us / resting.client_cpu_us)
    assert resting.client_cpu_ratio == 1
    assert resting.server_cpu_us is None


def test_the_baseline_must_take_part() -> None:
    with pytest.raises(AssertionError, match="does not take part"):
        anyio.run(measure, Plan("x", baseline="floor"), [Contender("a", Clock().taking(1))])
