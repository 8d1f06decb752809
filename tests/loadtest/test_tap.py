"""The tap counts what travels, not what a client library calls it."""

from __future__ import annotations

import pytest
import redis
import redis.asyncio

from loadtest.tap import tapped

pytestmark = pytest.mark.anyio


async def test_a_pipeline_is_one_round_trip_and_two_commands_are_two(redis_url: str, redis_client: redis.Redis) -> None:
    async with tapped(redis_url) as tap, redis.asyncio.Redis.from_url(tap.url) as client:
        await client.ping()

        tap.reset()
        pipe = client.pipeline(transaction=False)
        for number in range(100):
            pipe.set(f"key {number}", "x")
        await pipe.execute()
        assert tap.round_trips == 1

        tap.reset()
        await client.get("key 1")
        await client.get("key 2")
        assert tap.round_trips == 2
    assert redis_client.dbsize() == 100


async def test_a_reply_in_many_pieces_is_one_round_trip_and_all_its_bytes(
    redis_url: str, redis_client: redis.Redis
) -> None:
    redis_client.set("big", b"x" * 3_000_000)
    async with tapped(redis_url) as tap, redis.asyncio.Redis.from_url(tap.url) as client:
        await client.ping()
        tap.reset()

        found = await client.get("big")
        assert isinstance(found, bytes)
        assert len(found) == 3_000_000

        assert tap.round_trips == 1
        assert tap.sent_bytes == len(b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n")
        assert tap.received_bytes == 3_000_000 + len(b"$3000000\r\n\r\n")


async def test_connections_left_open_end_with_the_tap(redis_url: str, redis_client: redis.Redis) -> None:
    client = redis.asyncio.Redis.from_url(redis_url)
    async with tapped(redis_url) as tap:
        client = redis.asyncio.Redis.from_url(tap.url)
        await client.ping()
    # Reaching this line is the promise; the client notices when it speaks again.
    with pytest.raises(redis.ConnectionError):
        await client.ping()
    await client.aclose()
