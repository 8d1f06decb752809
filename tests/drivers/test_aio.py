"""The awaiting driver: few writes, lanes, cancellation, event loops and closing; on asyncio and uvloop."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import redis
import redis.asyncio
import uvloop

from rtmem.drivers import AsyncDriver
from rtmem.errors import ConfigError, DeadlineExceededError, InvalidRequestError, ServerUnavailableError
from rtmem.settings import Redis
from rtmem.steps import Batch, Command, Compute, Shared, Steps
from tests.drivers.processes import Spawn, becomes
from tests.drivers.relay import Relay

pytestmark = pytest.mark.anyio

BLOCK: Command = ("XREAD", "BLOCK", 60_000, "STREAMS", "stream", "0")


@pytest.fixture(
    params=[pytest.param(("asyncio", {"use_uvloop": uv}), id="uvloop" if uv else "asyncio") for uv in (False, True)],
    scope="module",
)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@asynccontextmanager
async def connected(url: str, **settings: Any) -> AsyncIterator[AsyncDriver]:
    async with await AsyncDriver.connect(url, Redis(**settings)) as driver:
        yield driver


class CountingTransport:
    """Stands before a connection's transport and keeps what is written."""

    def __init__(self, driver: AsyncDriver) -> None:
        wire = driver._pipelined._wire
        assert wire is not None
        assert wire._transport is not None
        self.writes: list[bytes] = []
        self._transport = wire._transport
        wire._transport = self  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def batch(*commands: Command, **options: Any) -> Batch:
    return Batch(commands, **options)


def calls_of(client: redis.Redis, command: str) -> int:
    """How often the server says that it ran `command`."""
    return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


async def test_what_32_tasks_ask_for_in_one_tick_is_sent_at_once_and_the_rest_as_one_write(
    relay: Relay, redis_client: redis.Redis
) -> None:
    async with connected(relay.url) as driver:
        counting = CountingTransport(driver)
        redis_client.config_resetstat()
        relay.requests.clear()
        with redis_client.monitor() as monitor:  # type: ignore[no-untyped-call]
            replies = await asyncio.gather(*(driver.answer(batch(("ECHO", n), ("INCR", "n"))) for n in range(32)))
            seen = [monitor.next_command() for _ in range(64)]
        assert replies == [[b"%d" % n, n + 1] for n in range(32)]
        assert [each.count(b"ECHO") for each in counting.writes] == [1, 31]
        assert b"".join(relay.requests) == b"".join(counting.writes)
        assert calls_of(redis_client, "echo") == calls_of(redis_client, "incr") == 32
        # The server's own log: one connection, in the order in which the tasks asked.
        assert [entry["command"].split()[0] for entry in seen] == ["ECHO", "INCR"] * 32
        assert [entry["command"] for entry in seen[::2]] == [f"ECHO {n}" for n in range(32)]
        assert len({entry["client_port"] for entry in seen}) == 1


async def test_a_lone_batch_is_one_write_and_goes_out_as_it_is(relay: Relay) -> None:
    async with connected(relay.url) as driver:
        counting = CountingTransport(driver)
        for number in range(3):
            await driver.answer(batch(("ECHO", number), ("ECHO", "b"), atomic=True))
        assert len(counting.writes) == 3
        assert counting.writes[0].startswith(b"*1\r\n$5\r\nMULTI\r\n")


async def test_a_tick_is_merged_while_the_connection_is_being_made(relay: Relay) -> None:
    async with AsyncDriver.lazy(relay.url) as driver:
        await asyncio.gather(*(driver.answer(batch(("ECHO", n))) for n in range(32)))
        assert relay.connections == 1
        assert relay.requests[-1].count(b"ECHO") == 32


async def test_a_large_value_does_not_hold_up_small_batches_of_its_tick(
    redis_url: str, redis_client: redis.Redis
) -> None:
    finished: list[str] = []

    async def ask(name: str, *commands: Command) -> None:
        await driver.answer(Batch(commands))
        finished.append(name)

    async with connected(redis_url) as driver:
        await driver.answer(batch(("SET", "warm", b"x" * 100_000)))  # its connection is open already
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask("large", ("SET", "k", b"x" * 16_000_000), ("GET", "k")))
            for number in range(20):
                tasks.create_task(ask("small", ("ECHO", number)))
    assert finished == ["small"] * 20 + ["large"]


async def test_large_values_travel_beside_each_other_on_few_connections(relay: Relay) -> None:
    async with connected(relay.url) as driver:
        value = b"x" * 100_000
        replies = await asyncio.gather(*(driver.answer(batch(("ECHO", value))) for _ in range(40)))
        assert replies == [[value]] * 40
        assert relay.connections == 5  # the pipelined one and four


async def test_large_values_under_which_a_connection_breaks_are_sent_again_and_nothing_is_logged(
    relay: Relay, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(relay.url) as driver:
        sets = Batch(tuple(("SET", f"k{number}", b"x" * 20_000) for number in range(20)), lane="large")
        await driver.answer(sets)
        relay.cut()
        assert await driver.answer(sets) == [b"OK"] * 20
    assert not caplog.records


async def test_a_blocking_read_holds_up_nobody(redis_url: str, redis_client: redis.Redis) -> None:
    async with connected(redis_url) as driver:
        readers = [
            asyncio.create_task(driver.answer(batch(BLOCK, lane="blocking", timeout_ms=90_000))) for _ in range(5)
        ]
        await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 5)
        assert await asyncio.gather(*(driver.answer(batch(("ECHO", n))) for n in range(10)))
        assert not any(reader.done() for reader in readers)
        await driver.answer(batch(("XADD", "stream", "1-0", "f", "v")))
        for reader in readers:
            assert (await reader)[0] == {b"stream": [[b"1-0", [b"f", b"v"]]]}


async def test_cancelled_before_it_is_written_means_that_nothing_happens(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async with connected(redis_url) as driver:
        ahead = asyncio.create_task(
            driver.answer(batch(("ECHO", "ahead")))
        )  # what finds the lane idle is written at once
        task = asyncio.create_task(driver.answer(batch(("INCR", "n"))))
        other = asyncio.create_task(driver.answer(batch(("ECHO", "other"))))
        asyncio.get_running_loop().call_soon(task.cancel)  # after both have asked, before the tick's write
        assert [await ahead, await other] == [[b"ahead"], [b"other"]]
        assert task.cancelled()
        assert calls_of(redis_client, "incr") == 0 or redis_client.get("n") is None
        assert redis_client.exists("n") == 0


async def test_cancelled_after_it_is_written_means_that_all_of_it_happens(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async with connected(redis_url) as driver:
        counting = CountingTransport(driver)
        for _ in range(10):
            written = len(counting.writes)
            task = asyncio.create_task(driver.answer(batch(("INCR", "n"), ("INCR", "m"))))
            others = [asyncio.create_task(driver.answer(batch(("ECHO", other)))) for other in range(5)]
            while len(counting.writes) == written:  # noqa: ASYNC110 - one tick at a time
                await asyncio.sleep(0)
            task.cancel()
            assert await asyncio.gather(*others) == [[b"%d" % other] for other in range(5)]
            assert task.cancelled()
        assert redis_client.mget("n", "m") == [b"10", b"10"]


async def test_a_cancelled_blocking_read_frees_its_place(redis_url: str, redis_client: redis.Redis) -> None:
    async with connected(redis_url, connections_max=1) as driver:
        for _ in range(5):
            reader = asyncio.create_task(driver.answer(batch(BLOCK, lane="blocking", timeout_ms=90_000)))
            await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 1)
            reader.cancel()
            await asyncio.wait([reader])
            await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 0)
        assert await driver.answer(batch(("ECHO", "free"), lane="blocking")) == [b"free"]


async def test_cancelling_while_connecting_leaks_no_connection(spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    async with AsyncDriver.lazy(server.url) as driver:
        server.freeze()
        for lane in ("auto", "blocking"):
            task = asyncio.create_task(driver.answer(batch(("PING",), lane=lane)))
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        server.thaw()
        assert await driver.answer(batch(("ECHO", "fine"))) == [b"fine"]
    gc.collect()


async def test_cancelling_while_connecting_is_never_lost(redis_url: str) -> None:
    for ticks in range(60):
        async with connected(redis_url) as driver:
            task = asyncio.create_task(driver.answer(batch(BLOCK, lane="blocking", timeout_ms=90_000)))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=30)
            assert task.cancelled(), f"not cancelled after {ticks} ticks"


async def test_a_caller_in_a_hurry_does_not_break_what_others_have_under_way(spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    async with connected(server.url, deadline_ms=60_000) as driver:
        server.freeze()
        slow = asyncio.create_task(driver.answer(batch(("INCR", "n"), idempotent=False)))
        with pytest.raises(DeadlineExceededError):
            await driver.answer(batch(("ECHO", "hurry"), timeout_ms=30))
        server.thaw()
        assert await slow == [1]
        assert await driver.answer(batch(("ECHO", "in step"))) == [b"in step"]


async def test_each_call_has_a_deadline_of_its_own(spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    late: list[int] = []

    async def ask(driver: AsyncDriver, timeout_ms: int) -> None:
        with pytest.raises(DeadlineExceededError):
            await driver.answer(batch(("ECHO", "x"), timeout_ms=timeout_ms))
        late.append(timeout_ms)

    async with connected(server.url, deadline_ms=60_000) as driver:
        server.freeze()
        slow = asyncio.create_task(driver.answer(batch(("ECHO", "patient"))))
        asking = [asyncio.create_task(ask(driver, timeout_ms)) for timeout_ms in (900, 300, 600)]
        await asyncio.gather(*asking)
        await ask(driver, 30)
        assert late == [300, 600, 900, 30]
        server.thaw()
        assert await slow == [b"patient"]


async def test_a_deadline_says_whether_anything_was_sent(spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    async with AsyncDriver.lazy(server.url) as driver:
        server.freeze()
        with pytest.raises(DeadlineExceededError, match="nothing was sent"):
            await driver.answer(batch(("PING",), timeout_ms=50))
        server.thaw()
        await driver.answer(batch(("PING",)))
        server.freeze()
        with pytest.raises(DeadlineExceededError, match="may have happened"):
            await driver.answer(batch(("PING",), timeout_ms=50))
        server.thaw()


async def test_a_full_socket_gathers_batches_until_it_drains(spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    async with connected(server.url, deadline_ms=60_000) as driver:
        counting = CountingTransport(driver)
        server.freeze()
        tasks = []
        for _ in range(300):
            tasks.append(asyncio.create_task(driver.answer(batch(("ECHO", b"x" * 60_000)))))
            await asyncio.sleep(0)
        frozen_writes = len(counting.writes)
        server.thaw()
        assert await asyncio.gather(*tasks) == [[b"x" * 60_000]] * 300
        assert frozen_writes < 300


async def test_an_empty_batch_is_answered_at_once(redis_url: str) -> None:
    async with connected(redis_url) as driver:
        assert await driver.answer(Batch(())) == []


def _slices(count: int) -> Iterator[None]:
    for _ in range(count):
        sum(range(20_000))
        yield


async def test_long_computing_lets_others_have_the_loop(redis_url: str) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with connected(redis_url) as driver:
        counter = asyncio.create_task(count_turns())
        await driver.answer(Compute(_slices(200)))
        counter.cancel()
    assert turns > 5


async def test_what_is_computed_apart_does_not_hold_the_loop_at_all(redis_url: str) -> None:
    heard = threading.Event()

    def blocked() -> Iterator[None]:
        assert heard.wait(30), "the loop did nothing meanwhile"
        yield

    async with connected(redis_url) as driver:
        asyncio.get_running_loop().call_soon(heard.set)
        assert await driver.answer(Compute(blocked(), apart=True)) == []


_MANY_LOOPS = """
import asyncio, gc, sys, uvloop
from rtmem.drivers import AsyncDriver
from rtmem.steps import Batch

url, loop, closing = sys.argv[1:]
driver = AsyncDriver.lazy(url)


async def ask():
    for lane in ("auto", "large", "blocking"):
        print(*await driver.answer(Batch((("ECHO", lane),), lane=lane)))
    if closing == "closing":
        await driver.aclose()


for _ in range(3):
    with asyncio.Runner(loop_factory=getattr(sys.modules[loop], "new_event_loop")) as runner:
        runner.run(ask())
    gc.collect()
"""


@pytest.mark.parametrize("closing", ["closing", "leaving"])
def test_another_event_loop_may_use_the_driver_when_the_first_has_ended(
    closing: str, redis_url: str, anyio_backend: Any
) -> None:
    loop = "uvloop" if anyio_backend[1]["use_uvloop"] else "asyncio"
    # A process of its own: loops are closed for good, and what Python warns of comes out as text.
    warnings = ["-W", "default" if closing == "closing" else "ignore"]
    done = subprocess.run(
        [sys.executable, *warnings, "-c", _MANY_LOOPS, redis_url, loop, closing],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["b'auto'", "b'large'", "b'blocking'"] * 3


async def test_two_event_loops_at_a_time_are_refused(redis_url: str) -> None:
    async with connected(redis_url) as driver:
        reader = asyncio.create_task(driver.answer(batch(("ECHO", 1))))
        with pytest.raises(InvalidRequestError, match="one driver for each loop"):
            await asyncio.to_thread(asyncio.run, driver.answer(batch(("ECHO", 2))))
        assert await reader == [b"1"]


async def test_closing_tells_those_who_wait_and_opens_nothing_again(redis_url: str, redis_client: redis.Redis) -> None:
    driver = await AsyncDriver.connect(redis_url)
    waiting = [
        asyncio.create_task(driver.answer(batch(BLOCK, lane="blocking", timeout_ms=90_000))),
        asyncio.create_task(driver.answer(batch(BLOCK, timeout_ms=90_000))),
        asyncio.create_task(driver.answer(batch(BLOCK, lane="large", timeout_ms=90_000))),
    ]
    await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 3)
    unsent = asyncio.create_task(driver.answer(batch(("INCR", "n"))))
    connecting = asyncio.create_task(driver.answer(batch(("INCR", "n"), lane="blocking")))
    await asyncio.sleep(0)
    await driver.aclose()
    for result in await asyncio.gather(*waiting, unsent, connecting, return_exceptions=True):
        assert isinstance(result, ServerUnavailableError)
        assert "closed" in str(result)
    await becomes(lambda: redis_client.info("clients")["connected_clients"] == 1)
    gc.collect()  # a forgotten transport would warn here, and warnings are errors


@pytest.mark.parametrize("how", ["closed", "given up"])
async def test_ending_the_loop_with_calls_in_flight_warns_of_nothing(
    how: str, redis_url: str, anyio_backend: Any
) -> None:
    new_loop = uvloop.new_event_loop if anyio_backend[1]["use_uvloop"] else asyncio.new_event_loop

    async def main() -> None:
        driver = await AsyncDriver.connect(redis_url)
        for lane in ("auto", "large", "blocking"):
            asyncio.create_task(driver.answer(batch(BLOCK, lane=lane, timeout_ms=90_000)))  # noqa: RUF006
        await asyncio.sleep(0.01)
        await driver.aclose()

    async def given_up() -> None:
        async with await AsyncDriver.connect(redis_url) as driver:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await driver.answer(batch(BLOCK, lane="blocking", timeout_ms=90_000))

    program: Callable[[], Coroutine[Any, Any, None]] = main if how == "closed" else given_up

    def run() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            # Errors of tasks that nobody awaits are this test's own doing.
            runner.get_loop().set_exception_handler(lambda loop, context: None)
            runner.run(program())

    thread = threading.Thread(target=run)
    thread.start()
    await asyncio.to_thread(thread.join)
    gc.collect()


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_users_client_lends_its_settings_and_is_not_disturbed(
    protocol: int, redis_url: str, redis_client: redis.Redis
) -> None:
    redis_client.acl_setuser("reader", enabled=True, passwords=["+s3cret"], keys=["*"], commands=["+@all"])
    async with redis.asyncio.Redis.from_url(
        redis_url.replace("db=0", "db=3"), username="reader", password="s3cret", protocol=protocol, max_connections=1
    ) as client:
        async with AsyncDriver.of_client(client) as driver:
            for lane in ("auto", "large", "blocking"):
                assert await driver.answer(batch(("ACL", "WHOAMI"), lane=lane)) == [b"reader"]
            await driver.answer(batch(("SET", "k", "v")))
            assert await client.get("k") == b"v"
            assert client.connection_pool._in_use_connections == set()
        assert await client.get("k") == b"v"
    with redis.Redis.from_url(redis_url.replace("db=0", "db=3")) as other:
        assert other.get("k") == b"v"
    redis_client.acl_deluser("reader")


async def test_a_client_that_cannot_be_used_is_refused(redis_url: str) -> None:
    with pytest.raises(ConfigError, match=r"redis\.asyncio\.Redis"):
        AsyncDriver.of_client(redis.Redis.from_url(redis_url))
    async with redis.asyncio.Redis.from_url(redis_url, decode_responses=True) as client:
        with pytest.raises(ConfigError, match="decode_responses=False"):
            AsyncDriver.of_client(client)


async def test_deadlines_hold_under_anyio_cancellation(redis_url: str, redis_client: redis.Redis) -> None:
    async with connected(redis_url) as driver:
        with anyio.move_on_after(0.02) as scope:
            await driver.answer(batch(BLOCK, lane="blocking", timeout_ms=90_000))
        assert scope.cancelled_caught
        assert await driver.answer(batch(("ECHO", "after"))) == [b"after"]


async def test_a_call_that_starts_while_the_driver_closes_leaves_nothing_open(
    redis_url: str, redis_client: redis.Redis
) -> None:
    def ours() -> set[str]:
        return {client["id"] for client in redis_client.client_list() if client["name"] == "rtmem"}

    def wait() -> Steps[Any]:
        return (yield Batch((BLOCK,), lane="durable", timeout_ms=60_000))

    before = ours()
    driver = await AsyncDriver.connect(redis_url)

    async def call_again_when_told() -> None:
        with pytest.raises(ServerUnavailableError, match="was closed"):
            await driver.answer(Shared("key", wait, spacing_ms=60_000))
        await driver.answer(Batch((("PING",),)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call_again_when_told)
        await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 1)
        tasks.start_soon(call_again_when_told)  # waits behind the first one
        await anyio.wait_all_tasks_blocked()
        await driver.aclose()
    await driver.aclose()
    await becomes(lambda: ours() <= before)
