"""What both drivers promise, by one body for both colours: replies, deadlines, lost connections, pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import pytest
import redis

from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.errors import (
    CommandError,
    DeadlineExceededError,
    RtmemError,
    ServerLoadingError,
    ServerTooOldError,
    ServerUnavailableError,
)
from rtmem.steps import Batch, Command
from tests.conftest import ServerFactory, kill_server
from tests.drivers.colours import COLOURS, Colour, Talker, talking
from tests.drivers.processes import KEYS_LOADING, Process, Spawn, becomes, eventually, loading
from tests.drivers.relay import Relay

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("colour", COLOURS)]

BOTH_PROTOCOLS = pytest.mark.parametrize("protocol", [2, 3])


@pytest.fixture
def sleepy(spawn: Spawn) -> Process:
    """A server that does nothing for as long as it is told to."""
    return spawn("enable-debug-command yes").wait_until_answering()


@BOTH_PROTOCOLS
async def test_one_raw_reply_per_command_in_order(
    colour: Colour, protocol: int, redis_url: str, redis_client: redis.Redis
) -> None:
    blob = bytes(range(256)) * 4
    async with talking(colour, redis_url, protocol=protocol) as talker:
        replies = await talker.answer(
            ("SET", "k", blob), ("GET", b"k"), ("GET", "none"), ("HSET", "h", "f", 1.5), ("HGETALL", "h"), ("INCR", "n")
        )
    pairs = {b"f": b"1.5"} if protocol == 3 else [b"f", b"1.5"]
    assert replies == [b"OK", blob, None, 1, pairs, 1]


@BOTH_PROTOCOLS
async def test_the_first_error_of_a_batch_is_raised_and_the_rest_has_run(
    colour: Colour, protocol: int, redis_url: str, redis_client: redis.Redis
) -> None:
    async with talking(colour, redis_url, protocol=protocol) as talker:
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await talker.answer(("SET", "s", 1), ("LPUSH", "s", 1), ("NO-SUCH",), ("INCR", "s"))
        assert await talker.answer(("GET", "s")) == [b"2"]


@BOTH_PROTOCOLS
async def test_an_atomic_batch_is_one_transaction(
    colour: Colour, protocol: int, redis_url: str, redis_client: redis.Redis
) -> None:
    async with talking(colour, redis_url, protocol=protocol) as talker:
        assert await talker.answer(("INCR", "n"), ("INCR", "n"), atomic=True) == [1, 2]
        # An error at run time: Redis runs the rest, and the error is raised.
        with pytest.raises(CommandError, match="WRONGTYPE"):
            await talker.answer(("INCR", "n"), ("LPUSH", "n", 1), ("INCR", "n"), atomic=True)
        assert await talker.answer(("GET", "n")) == [b"4"]
        # An error while queueing: Redis runs nothing, and the command that it refused is named, not EXECABORT.
        with pytest.raises(ServerTooOldError, match="NO-SUCH"):
            await talker.answer(("INCR", "n"), ("NO-SUCH",), atomic=True)
        assert await talker.answer(("GET", "n")) == [b"4"]


async def test_pushes_answer_nobody(colour: Colour, redis_url: str, redis_client: redis.Redis) -> None:
    async with talking(colour, redis_url, connections_max=1) as talker:
        assert await talker.answer(("CLIENT", "TRACKING", "ON")) == [b"OK"]
        # Each SET of a key that was read makes Redis push an invalidation between the replies.
        for number in range(5):
            replies = await talker.answer(("GET", "k"), ("SET", "k", number), ("GET", "k"), ("ECHO", number))
            assert replies[1:] == [b"OK", b"%d" % number, b"%d" % number]


async def test_a_frozen_server_exceeds_the_deadline_and_replies_stay_in_step(colour: Colour, spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    async with talking(colour, server.url, deadline_ms=60_000, connections_max=4) as talker:
        server.freeze()
        for attempt in range(3):  # also with a connection that has to be made while it is frozen
            with pytest.raises(DeadlineExceededError):
                await talker.answer(("ECHO", f"lost {attempt}"), timeout_ms=100)
        server.thaw()
        for number in range(20):
            assert await talker.answer(("ECHO", number)) == [b"%d" % number]


@pytest.mark.parametrize("sizes", [(20_000, 0, 3_000_000, 5, 16_384), (16_384,) * 200], ids=["mixed", "many"])
async def test_values_of_any_size_arrive_as_they_were_sent(
    colour: Colour, redis_url: str, sizes: tuple[int, ...]
) -> None:
    values = [bytes([number]) * size for number, size in enumerate(sizes)]
    async with talking(colour, redis_url) as talker:
        echoes = [("ECHO", memoryview(value)) for value in values]
        assert await talker.answer(*echoes) == values
        assert await talker.answer(("RPUSH", "list", *values), ("LRANGE", "list", 0, -1), ("DEL", "list")) == [
            len(values),
            values,
            1,
        ]


async def test_a_batch_may_have_a_deadline_of_its_own(colour: Colour, sleepy: Process) -> None:
    async with talking(colour, sleepy.url, deadline_ms=60_000) as talker:
        with pytest.raises(DeadlineExceededError, match="within the deadline"):
            await talker.answer(("XREAD", "BLOCK", 0, "STREAMS", "s", "0"), lane="blocking", timeout_ms=50)
        sleepy.freeze()
        with pytest.raises(DeadlineExceededError, match="within the deadline"):
            await talker.answer(("ECHO", "lost"), timeout_ms=20)
        sleepy.thaw()
        assert await talker.answer(("ECHO", "still here")) == [b"still here"]
    # And a longer one: the other deadline does not end it.
    async with talking(colour, sleepy.url, deadline_ms=50, lazy=True) as talker:
        reply = await talker.answer(
            ("XREAD", "BLOCK", 200, "STREAMS", "s", "0"), lane="blocking", timeout_ms=60_000, idempotent=False
        )
        assert reply == [None]


async def test_load_behind_a_slow_server_ends_in_replies_or_deadlines_never_in_mixed_up_replies(
    colour: Colour, sleepy: Process
) -> None:
    outcomes: list[str] = []

    async def ask(talker: Talker, number: int) -> None:
        try:
            reply = await talker.answer(("ECHO", number), timeout_ms=20 if number % 2 else 60_000)
        except DeadlineExceededError:
            assert number % 2, "only those in a hurry give up"
            outcomes.append("late")
        else:
            assert reply == [b"%d" % number]
            outcomes.append("answered")

    async with talking(colour, sleepy.url, connections_max=8) as talker, anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(ask, talker, number)
            if number % 20 == 0:
                tasks.start_soon(talker.answer, ("DEBUG", "SLEEP", 0.015))
    assert len(outcomes) == 200
    assert outcomes.count("answered") >= 100


# ":1\r\n" and "$8\r\nabcdefgh\r\n": every place where the replies can be cut.
@pytest.mark.parametrize("cut_at", range(18))
async def test_a_reply_cut_anywhere_is_asked_for_again_only_if_that_is_safe(
    colour: Colour, cut_at: int, relay: Relay, redis_client: redis.Redis
) -> None:
    async with talking(colour, relay.url) as talker:
        relay.cut_after_reply_bytes(cut_at)
        with pytest.raises(ServerUnavailableError, match="may have happened") as raised:
            await talker.answer(("INCR", "n"), ("ECHO", "abcdefgh"), idempotent=False)
        assert raised.value.data["sent"] is True
        assert redis_client.get("n") == b"1"

        relay.cut_after_reply_bytes(cut_at)
        replies = await talker.answer(("SET", "k", 7), ("GETSET", "k", 7), ("ECHO", "abcdefgh"))
        assert replies == [b"OK", b"7", b"abcdefgh"]
        assert await talker.answer(("ECHO", "in step")) == [b"in step"]


class Made(Sequence[Command]):
    """SETs of 200 KB that are made when they are asked for, after a look at what is there already."""

    def __init__(self, looked: Callable[[int], object]) -> None:
        self.looked = looked

    def __len__(self) -> int:
        return 6

    def __getitem__(self, at: Any) -> Any:
        if at == len(self):
            raise IndexError(at)
        self.looked(at)
        return ("SET", f"k{at}", bytes([at]) * 200_000)


async def test_a_command_of_the_large_lane_is_made_while_those_before_it_are_under_way(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    def looked(at: int) -> None:
        if at >= 2:  # of the last one before it the end may still be on its way
            eventually(lambda: redis_client.strlen(f"k{at - 2}") == 200_000)

    async with talking(colour, redis_url, deadline_ms=60_000) as talker:
        assert await talker.answer_to(Batch(Made(looked), lane="large")) == [b"OK"] * 6
    assert redis_client.mget([f"k{at}" for at in range(6)]) == [bytes([at]) * 200_000 for at in range(6)]


async def test_commands_are_made_again_where_they_have_to_be_sent_again(
    colour: Colour, relay: Relay, redis_client: redis.Redis
) -> None:
    made: list[int] = []
    async with talking(colour, relay.url) as talker:
        relay.cut_after_request_bytes(700_000)
        assert await talker.answer_to(Batch(Made(made.append), lane="large")) == [b"OK"] * 6
    assert made[-6:] == [0, 1, 2, 3, 4, 5]
    assert len(made) > 6
    assert redis_client.get("k5") == b"\5" * 200_000


async def test_half_a_command_is_never_finished_by_the_next_one(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    def looked(at: int) -> None:
        if at == 3:
            raise ValueError("cannot be made")

    async with talking(colour, redis_url, retries_max=0) as talker:
        with pytest.raises((ValueError, ServerUnavailableError), match="cannot be made"):
            await talker.answer_to(Batch(Made(looked), lane="large"))
        assert await talker.answer(("ECHO", b"x" * 200_000), lane="large") == [b"x" * 200_000]
    assert redis_client.exists("k3") == 0


@pytest.mark.parametrize("cut_at", [1, 5, 11, 19, 20, 21, 30, 44])
async def test_a_request_cut_anywhere_runs_at_most_once(
    colour: Colour, cut_at: int, relay: Relay, redis_client: redis.Redis
) -> None:
    async with talking(colour, relay.url) as talker:
        relay.cut_after_request_bytes(cut_at)
        with pytest.raises(ServerUnavailableError):
            await talker.answer(("INCR", "n"), ("ECHO", "abcdefghij"), idempotent=False)
        # One INCR is 21 bytes on the wire.
        assert redis_client.get("n") == (b"1" if cut_at >= 21 else None)
        relay.cut_after_request_bytes(cut_at)
        assert await talker.answer(("SET", "k", "v"), ("GET", "k")) == [b"OK", b"v"]


async def test_a_dead_connection_is_given_up_with_the_first_deadline(
    colour: Colour, relay: Relay, redis_client: redis.Redis
) -> None:
    async with talking(colour, relay.url, deadline_ms=1_500) as talker:
        relay.mute()
        with pytest.raises(DeadlineExceededError):
            await talker.answer(("PING",))
        assert await talker.answer(("ECHO", "on a new one"), timeout_ms=60_000) == [b"on a new one"]


async def test_bytes_that_are_no_reply_break_the_connection_and_nothing_else(
    colour: Colour, relay: Relay, redis_client: redis.Redis
) -> None:
    async with talking(colour, relay.url) as talker:
        relay.garbage = b"HTTP/1.1 400 Bad Request\r\n"
        with pytest.raises(ServerUnavailableError, match="Protocol error"):
            await talker.answer(("INCR", "n"), idempotent=False)
        assert await talker.answer(("ECHO", "connected")) == [b"connected"]
        relay.garbage = b"HTTP/1.1 400 Bad Request\r\n"
        assert await talker.answer(("GET", "n"), ("ECHO", "in step")) == [b"1", b"in step"]


async def test_what_was_never_sent_is_tried_again_whatever_it_is(
    colour: Colour, relay: Relay, redis_client: redis.Redis
) -> None:
    async with talking(colour, relay.url, lazy=True, retries_max=2) as talker:
        relay.refuse = 2
        assert await talker.answer(("INCR", "n"), idempotent=False) == [1]
        assert relay.connections == 3
    async with talking(colour, relay.url, lazy=True, retries_max=2) as talker:
        relay.refuse = 3
        with pytest.raises(ServerUnavailableError):
            await talker.answer(("INCR", "n"), idempotent=False)
    assert redis_client.get("n") == b"1"


async def test_retries_end_with_the_deadline(colour: Colour, relay: Relay) -> None:
    async with talking(colour, relay.url, lazy=True, retries_max=100, deadline_ms=300) as talker:
        relay.refuse = 1_000
        with pytest.raises(RtmemError) as raised:
            await talker.answer(("PING",))
        assert raised.value.retryable
        # 20, 80 and 320 ms are the pauses: the third would end after the deadline.
        assert relay.connections <= 3
        relay.refuse = 0


async def test_a_client_that_the_server_kills_is_replaced(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    async with talking(colour, redis_url, connections_max=1) as talker:
        for number in range(5):
            (own_id,) = await talker.answer(("CLIENT", "ID"))
            redis_client.client_kill_filter(_id=own_id)
            # Idle when it was killed; that is seen before anything is sent, so even this is safe.
            await _until_seen(talker, own_id)
            assert await talker.answer(("INCR", "n"), idempotent=False) == [number + 1]


async def _until_seen(talker: Talker, own_id: int) -> None:
    # The sync driver looks when it takes the connection; the event loop learns of it by itself.
    if isinstance(talker.driver, AsyncDriver):
        lane = talker.driver._pipelined
        await becomes(lambda: lane._wire is None or not lane._wire.open)


async def test_many_lost_connections_use_nothing_up(colour: Colour, relay: Relay, redis_client: redis.Redis) -> None:
    async with talking(colour, relay.url, connections_max=2) as talker:
        for number in range(120):
            assert await talker.answer(("SET", "k", number), ("GET", "k")) == [b"OK", b"%d" % number]
            relay.cut()
    assert relay.connections >= 120


async def test_a_server_killed_and_started_again_on_the_same_socket_is_found(
    colour: Colour, redis_server: ServerFactory
) -> None:
    server = redis_server(profile="durable", modules=False)
    async with talking(colour, server.url) as talker:
        assert await talker.answer(("SET", "k", "kept")) == [b"OK"]
        kill_server(server.data_dir)
        with pytest.raises(ServerUnavailableError, match=r"rtmem up"):
            await talker.answer(("GET", "k"))
        redis_server(profile="durable", modules=False, data_dir=server.data_dir)
        assert await talker.answer(("GET", "k")) == [b"kept"]


async def test_a_server_that_reads_its_data_is_typed_and_retryable(colour: Colour, spawn: Spawn) -> None:
    server = loading(spawn, key_ms=20)
    async with talking(colour, server.url, lazy=True, deadline_ms=60_000) as talker:
        with anyio.fail_after(60):
            while True:
                try:
                    await talker.answer(("GET", "k"), timeout_ms=2_000)
                except ServerLoadingError as exc:
                    told = exc
                    break
                except (ServerUnavailableError, DeadlineExceededError):
                    await anyio.sleep(0.01)  # not listening yet
            assert told.retryable
            assert "try again" in str(told)
            with server.client() as client:
                client.config_set("key-load-delay", 0)  # it has been seen to load, and may get it done
            while True:
                try:
                    assert await talker.answer(("DBSIZE",)) == [KEYS_LOADING]
                    break
                except ServerLoadingError:
                    await anyio.sleep(0.02)


@pytest.mark.parametrize("lane", ["auto", "large", "blocking"])
async def test_more_callers_than_connections_wait(
    colour: Colour, lane: Any, relay: Relay, redis_client: redis.Redis
) -> None:
    answered: list[int] = []

    async def ask(talker: Talker, number: int) -> None:
        assert await talker.answer(("ECHO", number), lane=lane) == [b"%d" % number]
        answered.append(number)

    async with talking(colour, relay.url, connections_max=4, deadline_ms=60_000) as talker:
        async with anyio.create_task_group() as tasks:
            for number in range(256):
                tasks.start_soon(ask, talker, number)
    assert sorted(answered) == list(range(256))
    assert relay.connections <= 5  # async: connect() has opened the pipelined one


async def test_waiting_for_a_connection_ends_with_the_deadline(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    block = ("XREAD", "BLOCK", 60_000, "STREAMS", "s", "0")
    async with talking(colour, redis_url, connections_max=1) as talker, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: talker.answer(block, lane="blocking", timeout_ms=90_000))
        await becomes(lambda: redis_client.info("clients")["blocked_clients"] == 1)
        with pytest.raises(DeadlineExceededError):
            await talker.answer(block, lane="blocking", timeout_ms=50)
        redis_client.xadd("s", {"f": "v"})


async def test_a_driver_can_be_used_again_after_closing(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    async with talking(colour, redis_url) as talker:
        await talker.aclose()
        assert await talker.answer(("ECHO", "again")) == [b"again"]


async def test_an_operation_gets_its_replies_and_its_errors(
    colour: Colour, redis_url: str, redis_client: redis.Redis
) -> None:
    from rtmem.steps import Batch, Compute, Steps

    seen: list[int] = []

    def count() -> Iterator[None]:
        for number in (1, 2):
            seen.append(number)
            yield

    def operation() -> Steps[bytes]:
        yield Compute(count())
        try:
            yield Batch((("LPUSH", "k", 1), ("GET", "k")))
        except CommandError:
            (reply,) = yield Batch((("LINDEX", "k", 0),))
        return bytes(reply)

    async with talking(colour, redis_url) as talker:
        if isinstance(talker.driver, SyncDriver):
            assert talker.driver.run(operation()) == b"1"
        else:
            assert await talker.driver.run(operation()) == b"1"
    assert seen == [1, 2]


async def test_a_driver_survives_sigstop_while_many_wait(colour: Colour, spawn: Spawn) -> None:
    server = spawn().wait_until_answering()
    errors: list[RtmemError] = []

    async def ask(talker: Talker, number: int) -> None:
        try:
            await talker.answer(("SET", number, number), timeout_ms=200)
        except RtmemError as exc:
            errors.append(exc)

    async with talking(colour, server.url, deadline_ms=60_000, connections_max=4) as talker:
        server.freeze()
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(ask, talker, number)
        assert len(errors) == 50
        # The first deadline that passes gives up the silent connection, and who still waited on it hears of that.
        assert any(isinstance(exc, DeadlineExceededError) for exc in errors)
        assert all(exc.retryable for exc in errors)
        server.thaw()
        eventually(lambda: _answers(server.port))
        for number in range(50):
            assert await talker.answer(("ECHO", number)) == [b"%d" % number]


def _answers(port: int) -> bool:
    with redis.Redis(port=port) as client:
        return bool(client.ping())
