"""Who makes a large index a graph: one gateway of several, while everybody reads and writes."""

from __future__ import annotations

import logging

import anyio
import pytest
import redis

from rtmem.drivers import AsyncDriver
from rtmem.gateway.index_upkeep import IndexUpkeep
from rtmem.gateway.memory import Memories
from rtmem.memory import AsyncMemory
from rtmem.operations import index_choice
from rtmem.operations.memory_state import MemoryState, look
from rtmem.settings import Settings, Store
from rtmem.store import AsyncRedisStore
from tests.embedders import Letters
from tests.gateway.conftest import ServeGateway
from tests.gateway.waiting import eventually

pytestmark = pytest.mark.anyio

MOST = 30


def with_letters(memories: Memories) -> Memories:
    """The same with an embedder that needs no model."""
    memories._embedder, memories._embedder_is_known = Letters(), True
    return memories


def memories_of(driver: AsyncDriver, **store: object) -> Memories:
    return with_letters(Memories(driver, Settings(store=Store(**{"flat_items_max": MOST, **store}))))  # type: ignore[arg-type]


async def filled(memories: Memories, count: int) -> AsyncRedisStore:
    store = (await memories.store()).bind("ann")
    for n in range(count):
        await store.aput(("n",), f"k{n}", {"text": f"{chr(97 + n % 26)}{n}"})
    return store


async def state_of(store: AsyncRedisStore) -> MemoryState:
    return await store.run(look(store.scope.index))


async def test_a_gateway_switches_while_runs_read_and_write_and_nothing_is_missed(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    sections = {"store": Store(flat_items_max=MOST)}
    async with serve_gateway(sweep_interval_ms=20, sections=sections) as served:
        store = await filled(with_letters(served.gateway.memories), MOST)
        written, switched = MOST, 0
        with anyio.fail_after(60):
            while switched < 5:
                n = written % 100  # some are written again
                await store.aput(("n",), f"k{n}", {"text": f"{chr(97 + n % 26)}{written}"})
                written += 1
                found = await store.asearch(("n",), query="c", limit=100)
                assert {item.key for item in found} == {f"k{n}" for n in range(min(written, 100))}
                switched += (await state_of(store)).algorithm == "hnsw"
        assert redis_client.execute_command("FT._LIST") == [b"rtmem:memory:2"]


async def test_up_to_the_limit_and_with_another_setting_nothing_changes(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        memories = memories_of(driver)
        store = await filled(memories, MOST)
        upkeep = IndexUpkeep(driver, memories, 60_000)
        assert await upkeep.look_after()
        assert (await state_of(store)).algorithm == "flat"
        await filled(memories, MOST + 1)
        assert not await IndexUpkeep(driver, memories_of(driver, vectors="flat"), 60_000).look_after()
        assert not await IndexUpkeep(driver, memories_of(driver), 60_000).look_after()  # no graph has used memory there
        assert not await upkeep.look_after()  # its turn is once in an interval
        redis_client.delete("rtmem:memory:upkeep")  # as its expiry does
        assert await IndexUpkeep(driver, memories, 60_000).look_after()
        assert (await state_of(store)).algorithm == "hnsw"


async def test_what_a_process_began_that_is_gone_the_next_one_finishes(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        memories = memories_of(driver)
        store = await filled(memories, MOST + 1)
        scope = store.scope
        from rtmem.operations.reindex import Reindex

        await store.run(Reindex(scope.index, scope.serde, algorithm="hnsw", yielding=True).advance())
        assert (await state_of(store)).next_index is not None
        assert await IndexUpkeep(driver, memories, 60_000).look_after()
        assert (await state_of(store)).algorithm == "hnsw"


async def test_what_could_not_be_embedded_gets_its_vector_later_whosesoever_it_is(
    redis_url: str, redis_client: redis.Redis
) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        letters = Letters()
        memories = Memories(driver, Settings(store=Store(vectors="flat")))
        memories._embedder, memories._embedder_is_known = letters, True
        store = await memories.store()
        upkeep = IndexUpkeep(driver, memories, 60_000)
        letters.broken = True
        await store.bind("ann").aput(("n",), "key", {"text": "abc"})
        await store.bind("ann").aput(("n",), "bare", {"text": "abc"}, index=False)
        memory = memories.recall("bob").memory
        assert isinstance(memory, AsyncMemory)
        fact = await memory.write("Bob bakes bread.")
        assert await upkeep.look_after()  # the embedder is still away: nothing but a word in the log
        letters.broken = False
        redis_client.delete("rtmem:memory:upkeep")  # as its expiry does
        assert await upkeep.look_after()
        found = await store.bind("ann").asearch(("n",), query="abc")
        assert [(item.key, item.score is None) for item in found] == [("key", False), ("bare", True)]
        kept = await memory.read(fact.id)
        assert kept is not None
        assert kept.embedded
        assert kept.times_seen == 1


async def test_a_full_redis_is_left_alone_and_said_once(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        memories = memories_of(driver)
        store = await filled(memories, MOST + 1)
        monkeypatch.setattr(index_choice, "_ROOM", 1e9)  # an index that is larger than any machine
        upkeep = IndexUpkeep(driver, memories, 60_000)
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                assert await upkeep.look_after()
                redis_client.delete("rtmem:memory:upkeep")
        assert (await state_of(store)).algorithm == "flat"
        assert caplog.text.count("MB more (maxmemory)") == 1


async def test_a_gateway_that_is_told_not_to_looks_after_nothing(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    async with serve_gateway(sweep_interval_ms=0, sections={"store": Store(flat_items_max=1)}) as served:
        await filled(with_letters(served.gateway.memories), 3)
        await served.gateway._index_upkeep.run()  # returns at once
        assert redis_client.exists("rtmem:memory:upkeep") == 0


async def test_the_turn_of_somebody_who_is_gone_ends(redis_url: str, redis_client: redis.Redis) -> None:
    async with await AsyncDriver.connect(redis_url) as driver:
        memories = memories_of(driver)
        store = await filled(memories, MOST + 1)
        redis_client.set("rtmem:memory:upkeep", "somebody who is gone", px=200)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(IndexUpkeep(driver, memories, 10).run)
            await eventually(lambda: redis_client.execute_command("FT._LIST") == [b"rtmem:memory:2"])
            tasks.cancel_scope.cancel()
        assert (await state_of(store)).algorithm == "hnsw"
