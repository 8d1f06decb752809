"""The stall probe sees work that hogs the loop, wherever it hides."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from rtmem.loadtest import Contender, Plan, longest_stall_ms, measure

pytestmark = pytest.mark.anyio


def _hog(duration_ms: float) -> None:
    end_s = time.perf_counter() + duration_ms / 1000
    while time.perf_counter() < end_s:
        pass


async def test_a_hog_between_two_awaits_is_seen() -> None:
    async def work() -> None:
        await asyncio.sleep(0.005)
        _hog(30)
        await asyncio.sleep(0.005)

    # At least the hog; the machine may add to it, never take away. (One tick of 0.5 ms may hide its beginning.)
    assert await longest_stall_ms(work) > 29


async def test_work_that_never_yields_is_seen() -> None:
    async def work() -> None:
        _hog(30)

    assert await longest_stall_ms(work) > 29


async def test_work_in_a_thread_that_releases_the_lock_stalls_less_than_on_the_loop() -> None:
    async def threaded() -> None:
        await asyncio.to_thread(time.sleep, 0.1)

    async def on_loop() -> None:
        _hog(100)

    # The machine may stall everybody, but not five times for as long.
    assert min([await longest_stall_ms(threaded) for _ in range(5)]) < await longest_stall_ms(on_loop)


async def test_the_garbage_collector_is_kept_out_and_let_in_again() -> None:
    states: list[bool] = []

    async def work() -> None:
        states.append(gc.isenabled())

    await longest_stall_ms(work, collect_garbage=False)
    states.append(gc.isenabled())
    await longest_stall_ms(work)

    assert states == [False, True, True]


async def test_the_garbage_collector_comes_back_after_a_failure() -> None:
    async def work() -> None:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await longest_stall_ms(work, collect_garbage=False)
    assert gc.isenabled()


async def test_stalls_are_part_of_a_measurement_when_asked_for() -> None:
    async def hog(_number: int) -> None:
        _hog(10)

    contenders = [Contender("a", hog)]

    without = await measure(Plan("x", baseline="a", rounds=1, operations=1, warmup=0), contenders)
    found = await measure(Plan("x", baseline="a", rounds=1, operations=1, warmup=0, stall_operations=2), contenders)

    assert without.rows[0].stall_ms is None
    assert found.rows[0].stall_ms is not None
    assert found.rows[0].stall_ms > 9
    assert found.rows[0].stall_worst_ms is not None
    assert found.rows[0].stall_worst_ms >= found.rows[0].stall_ms
    assert found.rows[0].stall_without_gc_ms is not None
    assert found.rows[0].stall_without_gc_ms > 9
