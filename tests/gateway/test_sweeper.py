"""Who frees what is over: one gateway of several, a bounded piece of work at a time, also after a Redis was away."""

from __future__ import annotations

import anyio
import pytest
import redis

from rtmem.drivers import AsyncDriver
from rtmem.errors import ServerUnavailableError
from rtmem.gateway.sweeper import Sweeper
from rtmem.pointers import AsyncPointers
from rtmem.settings import Pointers
from tests.gateway.conftest import ServeGateway
from tests.gateway.waiting import eventually

pytestmark = pytest.mark.anyio

LIMITS = Pointers(tombstone_ttl_ms=1)


async def expired(driver: AsyncDriver, client: redis.Redis, *principals: str) -> None:
    """A pointer of each whose time is over, and that is still stored."""
    for principal in principals:
        pointers = AsyncPointers(driver=driver, settings=LIMITS, principal=principal)
        pointer = await pointers.offload(f"value of {principal}", ttl_ms=60_000)
        record = client.hget(pointers.scope.keys.records, f"r{pointer.id}")
        assert record is not None
        client.zadd(pointers.scope.keys.due, {f"x{pointer.id}": 1})
        # Its end lies in the record too: 8 bytes behind the time of its creation.
        client.hset(pointers.scope.keys.records, f"r{pointer.id}", record[:8] + bytes(8) + record[16:])


def stored(client: redis.Redis) -> int:
    return len(client.keys("rtmem:p:*:c:*"))


async def test_a_sweep_frees_what_is_over_of_every_principal(redis_url: str, redis_client: redis.Redis) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        await expired(driver, redis_client, "", "alice", "b/ob", "{c}")
        assert stored(redis_client) == 4
        assert await Sweeper(driver, LIMITS, 60_000).sweep_once()
        assert stored(redis_client) == 0


async def test_of_several_processes_one_sweeps_in_an_interval(redis_url: str, redis_client: redis.Redis) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        sweepers = [Sweeper(driver, LIMITS, 60_000) for _ in range(5)]
        assert [await sweeper.sweep_once() for sweeper in sweepers] == [True, False, False, False, False]
        await expired(driver, redis_client, "alice")
        assert not await sweepers[0].sweep_once()
        assert stored(redis_client) == 1
        redis_client.delete("rtmem:sweeper")  # as its expiry does: whoever comes first goes on
        assert await sweepers[3].sweep_once()
        assert stored(redis_client) == 0


async def test_a_gateway_sweeps_in_the_background_until_it_ends(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    async with serve_gateway(sweep_interval_ms=1) as served:
        await expired(served.driver, redis_client, "alice")
        await eventually(lambda: stored(redis_client) == 0)


async def test_a_gateway_that_is_told_not_to_sweeps_nothing(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    async with serve_gateway(sweep_interval_ms=0) as served:
        await served.gateway._sweeper.run()  # returns at once
        assert redis_client.exists("rtmem:sweeper") == 0


async def test_a_sweeper_goes_on_when_redis_is_back(redis_url: str, redis_client: redis.Redis) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        await expired(driver, redis_client, "alice")
        broken: list[bool] = []
        sweep_once = Sweeper.sweep_once

        class Unlucky(Sweeper):
            async def sweep_once(self) -> bool:
                if not broken:
                    broken.append(True)
                    raise ServerUnavailableError("away")
                return await sweep_once(self)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Unlucky(driver, LIMITS, 1).run)
            await eventually(lambda: stored(redis_client) == 0)
            tasks.cancel_scope.cancel()
        assert broken
