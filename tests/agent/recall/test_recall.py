"""Recall without an agent: within its deadline, ahead of its time, bounded, and cancelled with whoever asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rtmem import settings as all_settings
from rtmem.agent.recall import Recall
from rtmem.memory import AsyncMemory, Memory
from tests.agent.recall.worlds import PATIENT, Gate, World
from tests.embedders import Words
from tests.gateway.waiting import eventually
from tests.wire import Wire


def test_what_was_prefetched_is_used_if_what_was_said_in_the_end_is_close(world: World) -> None:
    embedder = Words()
    with world.memory(embedder=embedder) as memory:
        fact = world.now(memory.write("Ann lives in Rome."))
        recall = world.recall(memory)
        embedder.asked.clear()
        world.prefetch(recall, "where does", thread_id="t1")
        world.prefetch(recall, "where does Ann live", thread_id="t1")
        told = world.read(recall, "Where does Ann live?", thread_id="t1", turn="m1")
        assert (told.status, told.source, [each.id for each in told.facts]) == ("ok", "prefetch", [fact.id])
        assert embedder.asked.count(("where does Ann live",)) == 1
        assert ("Where does Ann live?",) not in embedder.asked
        again = world.read(recall, "Where does Ann live?", thread_id="t1", turn="m1")
        assert (again.source, again.facts, again.text) == ("kept", told.facts, told.text)
        assert recall.counts["recall"].calls == 1


@pytest.mark.parametrize(
    ("prefetched", "said", "thread_id"),
    [
        ("where does Ann live", "Where does Ann work?", "t1"),  # other words
        ("where does Ann live", "Where does Ann live?", "t2"),  # another conversation
        ("Ann lives here", "Does Ann live here?", "t1"),  # a question reads episodes, a statement does not
    ],
)
def test_what_was_prefetched_for_something_else_is_not_used(
    world: World, prefetched: str, said: str, thread_id: str
) -> None:
    with world.memory() as memory:
        recall = world.recall(memory)
        world.prefetch(recall, prefetched, thread_id="t1")
        assert world.read(recall, said, thread_id=thread_id).source == "read"


def test_what_was_prefetched_for_one_principal_is_not_used_for_another(world: World) -> None:
    with world.memory() as memory:
        world.now(memory.write("The vault code is 1234."))
        recall = world.recall(memory)
        world.prefetch(recall, "what is the vault code?", thread_id="t1")
        told = world.read(recall.bind("bob"), "what is the vault code?", thread_id="t1")
        assert (told.status, told.source, told.facts) == ("nothing", "read", ())


def test_what_is_prefetched_for_the_next_turn_does_not_disturb_the_one_at_work(world: World) -> None:
    with world.memory() as memory:
        recall = world.recall(memory)
        first = world.read(recall, "where does Ann live?", thread_id="t1", turn="m1")
        world.prefetch(recall, "does Ann have a dog", thread_id="t1")
        again = world.read(recall, "where does Ann live?", thread_id="t1", turn="m1")
        after = world.read(recall, "Does Ann have a dog?", thread_id="t1", turn="m2")
        assert [told.source for told in (first, again, after)] == ["read", "kept", "prefetch"]


def test_a_recall_takes_a_round_trip_for_what_stands_and_one_for_what_is_searched(world: World) -> None:
    with world.memory() as memory:
        world.now(memory.write("Ann lives in Rome."))
        world.now(memory.write("Answer briefly.", kind="preference"))
        recall = world.recall(memory)
        world.read(recall, "hello?", turn="m1")
        wire = Wire(memory)
        told = world.read(recall, "Where does Ann live?", turn="m2")
        assert [fact.kind for fact in told.facts] == ["preference", "semantic"]
        assert wire.take() == 2


def test_what_is_old_is_read_again(world: World) -> None:
    with world.memory() as memory:
        recall = world.recall(memory, prefetch_keep_ms=0, turn_keep_ms=0)
        world.prefetch(recall, "where does Ann live?")
        sources = [world.read(recall, "where does Ann live?", turn="m1").source for _ in range(2)]
        assert sources == ["read", "read"]


def test_a_write_through_the_tools_makes_what_was_prefetched_old(world: World) -> None:
    with world.memory() as memory:
        recall = world.recall(memory)
        agent, _ = world.agent(recall, [lambda _: {"remember": {"text": "Ann lives in Rome."}}, lambda _: "ok"])
        world.prefetch(recall, "where does Ann live?", thread_id="t2")
        world.say(agent, "I live in Rome", "t1")
        told = world.read(recall, "where does Ann live?", thread_id="t2")
        assert (told.status, told.source) == ("ok", "read")


def test_a_prefetch_that_failed_is_not_used(world: World) -> None:
    with world.memory(url="redis://127.0.0.1:1/0") as memory:
        recall = world.recall(memory)
        world.prefetch(recall, "where does Ann live?")
        told = world.read(recall, "where does Ann live?")
        assert told.status == "failed"


def test_a_prefetch_without_words_wakes_the_embedder(world: World) -> None:
    embedder = Gate()
    with world.memory(embedder=embedder) as memory:
        recall = world.recall(memory)
        world.prefetch(recall, "")
        assert embedder.waiting.acquire(timeout=60)
        embedder.opened.set()
        assert world.read(recall, "where does Ann live?").source == "read"


def test_a_recall_that_waits_for_its_embedder_is_late(world: World) -> None:
    embedder = Gate()
    with world.memory(embedder=embedder) as memory:
        told = world.read(world.recall(memory, deadline_ms=20), "where does Ann live?")
        embedder.opened.set()
        assert (told.status, told.facts, told.source) == ("late", (), "read")
        assert "20 ms" in told.reason
        assert "could not be read" in told.text


def test_a_late_recall_is_not_waited_for_again_in_its_turn(world: World) -> None:
    embedder = Gate()
    with world.memory(embedder=embedder) as memory:
        recall = world.recall(memory, deadline_ms=20)
        statuses = [world.read(recall, "where does Ann live?", turn="m1").source for _ in range(2)]
        embedder.opened.set()
        assert statuses == ["read", "kept"]
        assert recall.counts["recall"].calls == 1


def test_without_the_id_of_a_message_memory_is_read_each_time(world: World) -> None:
    """Two people may say the same, or one twice; and what failed once need not fail again."""
    with world.memory() as memory:
        recall = world.recall(memory)
        assert world.read(recall, "where does Ann live?").status == "nothing"
        world.now(memory.write("Ann lives in Rome."))
        told = world.read(recall, "where does Ann live?")
        assert (told.status, told.source) == ("ok", "read")


def settings(**changes: Any) -> all_settings.Recall:
    return all_settings.Recall(**{**PATIENT, **changes})


@pytest.mark.anyio
async def test_the_next_prefetch_cancels_the_one_before_it(redis_url: str) -> None:
    embedder = Gate()
    async with AsyncMemory(redis_url, principal="ann", embedder=embedder) as memory:
        recall = Recall(memory, settings())
        before = asyncio.all_tasks()
        for words in ("where does Ann", "where does Ann live", "where does Ann live now"):
            recall.prefetch(words, thread_id="t1")
            await eventually(lambda: embedder.waiting.acquire(blocking=False))
        await eventually(lambda: embedder.cancelled == 2)
        await eventually(lambda: len(asyncio.all_tasks() - before) == 1)
        await recall.aclose()
        await eventually(lambda: not asyncio.all_tasks() - before)
        assert embedder.cancelled == 3


@pytest.mark.anyio
async def test_memory_is_woken_once_at_a_time_whoever_comes(redis_url: str) -> None:
    embedder = Gate()
    async with AsyncMemory(redis_url, principal="ann", embedder=embedder) as memory:
        recall = Recall(memory, settings())
        before = asyncio.all_tasks()
        for number in range(20):
            assert not recall.bind(f"user{number % 3}").prefetch("...", thread_id=f"t{number}")
        assert len(asyncio.all_tasks() - before) == 1
        embedder.opened.set()
        await eventually(lambda: not asyncio.all_tasks() - before)
        recall.prefetch()
        assert len(asyncio.all_tasks() - before) == 1


@pytest.mark.anyio
async def test_a_message_that_will_not_come_is_prefetched_no_more(redis_url: str) -> None:
    embedder = Gate()
    async with AsyncMemory(redis_url, principal="ann", embedder=embedder) as memory:
        recall = Recall(memory, settings())
        assert recall.prefetch("where does Ann live", thread_id="t1")
        assert recall.prefetch("where does Ann live", thread_id="t1")  # it is under way already
        assert recall.prefetch("where does Ann work", thread_id="t2")
        for _ in range(2):
            await eventually(lambda: embedder.waiting.acquire(blocking=False))
        taken = asyncio.create_task(recall.aread("where does Ann work?", thread_id="t2", turn="m1"))
        await asyncio.sleep(0)  # a turn has it now
        for thread_id in ("t1", "t2", "t3"):
            recall.cancel_prefetch(thread_id=thread_id)
        await eventually(lambda: embedder.cancelled == 1)
        embedder.opened.set()
        assert (await taken).source == "prefetch"
        assert (await recall.aread("where does Ann live?", thread_id="t1", turn="m2")).source == "read"


@pytest.mark.anyio
async def test_prefetches_are_kept_for_so_many_threads(redis_url: str) -> None:
    embedder = Gate()
    async with AsyncMemory(redis_url, principal="ann", embedder=embedder) as memory:
        recall = Recall(memory, settings(kept_max=3))
        before = asyncio.all_tasks()
        for number in range(10):
            recall.prefetch("where does Ann live", thread_id=f"t{number}")
        await eventually(lambda: len(asyncio.all_tasks() - before) == 3)
        embedder.opened.set()
        sources = [(await recall.aread("where does Ann live", thread_id=f"t{n}")).source for n in (9, 0)]
        assert sources == ["prefetch", "read"]


@pytest.mark.anyio
async def test_a_cancelled_recall_leaves_nothing_at_work(redis_url: str, redis_client: Any) -> None:
    embedder = Gate()
    async with AsyncMemory(redis_url, principal="ann", embedder=embedder) as memory:
        recall = Recall(memory, settings())
        before = asyncio.all_tasks()
        asking = asyncio.create_task(recall.aread("where does Ann live?", turn="m1"))
        await eventually(lambda: embedder.waiting.acquire(blocking=False))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually(lambda: not asyncio.all_tasks() - before)
        assert embedder.cancelled == 1
        assert recall.counts["recall"].errors == 1
        embedder.opened.set()
        told = await recall.aread("where does Ann live?", turn="m1")  # nothing of it is kept
        assert (told.status, told.source) == ("nothing", "read")


def test_each_kind_has_its_own_bounds(redis_url: str, redis_client: Any) -> None:
    with Memory(redis_url, principal="ann", embedder=Words()) as memory:
        for number in range(20):
            memory.write(f"Ann saw a fox in the garden, number {number}.", kind="episodic")
            memory.write(f"Foxes in the garden of Ann are red, says {number}.")
        memory.write("Answer briefly.", kind="preference")
        bounds = {"episodic_items_max": 3, "semantic_tokens_max": 120, "semantic_items_max": 20}
        told = Recall(memory, settings(**bounds)).read("Which foxes did Ann see in the garden?")
        kinds = [fact.kind for fact in told.facts]
        assert kinds[0] == "preference"
        assert kinds.count("episodic") == 3
        assert 1 <= kinds.count("semantic") < 5
        assert told.tokens <= 120 + 400 + 300
        said = Recall(memory, settings(**bounds)).read("I saw a fox in the garden.")
        assert "episodic" not in {fact.kind for fact in said.facts}


def test_a_policy_that_reads_nothing_asks_nobody(redis_url: str) -> None:
    never = {f"{kind}_read": "never" for kind in ("semantic", "episodic", "procedural", "preference")}
    with Memory("redis://127.0.0.1:1/0", principal="ann") as memory:
        recall = Recall(memory, settings(**never))
        assert not recall.prefetch("where does Ann live")
        told = recall.read("Where does Ann live?")
        assert (told.status, told.text) == ("off", "")
        assert memory.counts == {}
