"""steps.Call: the caller's own code, and what steps learn of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis

from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.errors import WrongColourError
from rtmem.steps import Batch, Call, Steps
from tests.drivers.colours import COLOURS, Colour, talking
from tests.drivers.processes import becomes

pytestmark = pytest.mark.anyio
BOTH_COLOURS = pytest.mark.parametrize("colour", COLOURS)


def calling(request: Call, seen: list[Any] | None = None) -> Steps[Any]:
    """What a call returns; `seen` gets what it raised, and that Redis can be asked afterwards."""
    try:
        (result,) = yield request
    except BaseException as exc:
        if seen is not None and not isinstance(exc, GeneratorExit):
            (pong,) = yield Batch((("PING",),))
            seen += [exc, pong]
        raise
    return result


@BOTH_COLOURS
async def test_a_function_is_called_with_its_arguments_and_answered_with_what_it_returns(
    colour: Colour, redis_url: str
) -> None:
    async with talking(colour, redis_url, lazy=True) as talker:
        assert await talker.run(calling(Call(divmod, (7, 2)))) == (3, 1)


async def test_what_may_be_awaited_is_awaited(redis_url: str) -> None:
    async def later(value: int) -> int:
        await asyncio.sleep(0)
        return value

    async with AsyncDriver.lazy(redis_url) as driver:
        assert await driver.run(calling(Call(later, (3,)))) == 3


async def test_what_blocks_apart_holds_no_event_loop_and_is_cut_off_in_time(redis_url: str) -> None:
    let_go = threading.Event()

    async def later() -> int:
        return 3

    async with AsyncDriver.lazy(redis_url) as driver:
        asyncio.get_running_loop().call_later(0.05, let_go.set)
        assert await driver.run(calling(Call(let_go.wait, (60,), apart=True)))
        let_go.clear()
        with pytest.raises(TimeoutError):
            await driver.run(calling(Call(let_go.wait, (60,), timeout_ms=50, apart=True)))
        let_go.set()
        assert await driver.run(calling(Call(later, apart=True))) == 3
        assert await driver.run(calling(Call(lambda: later(), apart=True))) == 3


def test_a_blocking_driver_cannot_await_and_says_so(redis_url: str) -> None:
    async def later() -> int:
        return 3

    with SyncDriver.lazy(redis_url) as driver, pytest.raises(WrongColourError, match="later"):
        driver.run(calling(Call(later)))


class TheirsError(Exception):
    """Not one of rtmem's."""


@BOTH_COLOURS
async def test_whatever_it_raises_is_thrown_into_the_steps_as_it_is(colour: Colour, redis_url: str) -> None:
    error = TheirsError("no")

    def fails() -> None:
        raise error

    seen: list[Any] = []
    async with talking(colour, redis_url, lazy=True) as talker:
        with pytest.raises(TheirsError) as caught:
            await talker.run(calling(Call(fails), seen))
    assert caught.value is error
    assert seen[0] is error
    assert len(seen) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_so_is_what_ends_a_blocking_program(redis_url: str, error: BaseException) -> None:
    def fails() -> None:
        raise error

    seen: list[Any] = []
    with SyncDriver.lazy(redis_url) as driver, pytest.raises(type(error)) as caught:
        driver.run(calling(Call(fails), seen))
    assert caught.value is error
    assert len(seen) == 2


async def test_a_cancellation_is_thrown_into_the_steps_which_may_still_ask(redis_url: str) -> None:
    began = asyncio.Event()

    async def hangs() -> None:
        began.set()
        await asyncio.Event().wait()

    seen: list[Any] = []
    async with AsyncDriver.lazy(redis_url) as driver:
        task = asyncio.create_task(driver.run(calling(Call(hangs), seen)))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert isinstance(seen[0], asyncio.CancelledError)
    assert len(seen) == 2


async def test_so_is_what_ends_the_wait_for_a_reply(redis_url: str, redis_client: redis.Redis) -> None:
    def waits() -> Steps[Any]:
        try:
            return (yield Batch((("BLPOP", "nothing", 60),), lane="blocking", timeout_ms=90_000))
        except BaseException:
            yield Batch((("SET", "given", "back"),))
            raise

    async with AsyncDriver.lazy(redis_url) as driver:
        task = asyncio.create_task(driver.run(waits()))
        await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert redis_client.get("given") == b"back"


async def test_what_takes_too_long_is_a_timeout(redis_url: str) -> None:
    async with AsyncDriver.lazy(redis_url) as driver:
        with pytest.raises(TimeoutError):
            await driver.run(calling(Call(asyncio.Event().wait, timeout_ms=1)))


@BOTH_COLOURS
async def test_steps_beside_it_run_again_and_again_until_it_ends(colour: Colour, redis_url: str) -> None:
    replies: list[Any] = []
    enough = threading.Event()

    def beside() -> Steps[None]:
        replies.extend((yield Batch((("PING",),))))
        if len(replies) >= 3:
            enough.set()

    async def aenough() -> str:
        while not enough.is_set():  # noqa: ASYNC110 - a threading.Event, for both colours
            await asyncio.sleep(0.001)
        return "done"

    def blocking() -> str:
        assert enough.wait(60)
        return "done"

    request = Call(aenough if colour == "async" else blocking, beside=beside, every_ms=1)
    if colour == "sync":
        with SyncDriver.lazy(redis_url) as driver:
            assert driver.run(calling(request)) == "done"
            count = len(replies)
            assert driver.run(calling(Call(lambda: None, beside=beside, every_ms=3_600_000))) is None
    else:
        async with AsyncDriver.lazy(redis_url) as driver:
            assert await driver.run(calling(request)) == "done"
            await asyncio.sleep(0)
            count = len(replies)
            assert await driver.run(calling(Call(lambda: None, beside=beside, every_ms=3_600_000))) is None
    assert len(replies) == count >= 3
