"""What a verb costs in round trips, and that a broken one leaves all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from rtmem.errors import ConfigError, FactConflictError, RtmemError, ServerFullError, ServerUnavailableError
from rtmem.memory import AsyncMemory, Memory
from rtmem.records import Fact, Principal
from rtmem.settings import Store
from rtmem.steps import Batch
from tests.callers import Caller
from tests.checkpoint.scissors import Cut, between
from tests.conftest import ServerFactory, kill_server
from tests.embedders import Words
from tests.memory.colours import World
from tests.wire import Wire


def test_every_verb_takes_the_round_trips_that_are_promised(world: World) -> None:
    embedder = Words()
    everywhere = Principal(user="ann", teams=("blue", "green"), application="app")
    with world.open(principal=everywhere, embedder=embedder) as ann:
        ann.write("The first one makes the index.")
        wire = Wire(ann.owner)
        embedder.asked.clear()

        def cost(call: Callable[[], Any]) -> tuple[int, int]:
            call()
            spent = wire.take(), len(embedder.asked)
            embedder.asked.clear()
            return spent

        rome = ann.write("Rome", key="city")
        chain = rome
        for number in range(50):
            chain = ann.update(chain, f"Rome {number}")
        wire.take()
        embedder.asked.clear()
        assert cost(lambda: ann.write("Ann paints.", subject="Ann", tags=["a", "b"])) == (1, 1)
        assert cost(lambda: ann.write("Ann paints.")) == (1, 1)
        assert cost(lambda: ann.write("Oslo", key="city")) == (1, 1)
        assert cost(lambda: ann.update(ann.write("Bern"), "Bonn")) == (2, 2)  # of both
        assert cost(lambda: ann.read("city")) == (1, 0)
        assert cost(lambda: ann.update(ann.read("city").id, "Bonn")) == (3, 1)  # read, and two of the update
        assert cost(lambda: ann.read(rome.id)) == (1, 0)
        assert cost(lambda: ann.history(rome.id)) == (1, 0)
        assert cost(lambda: ann.query(tags=["a"], importance_min=0.1)) == (1, 0)
        assert cost(lambda: ann.retrieve("Where does Ann paint?", k=50, explain=True)) == (1, 1)
        assert cost(lambda: ann.invalidate(ann.write("Ulm"), "no")) == (2, 1)
        assert cost(lambda: ann.forget(rome, history=True)) == (1, 0)


@pytest.mark.anyio
async def test_with_an_id_the_old_fact_is_read_while_the_new_text_is_embedded(redis_url: str) -> None:
    order: list[str] = []

    class Noting(Words):
        async def aembed(self, *args: Any) -> Any:
            order.append("embedding began")
            await reading
            order.append("embedding ended")
            return self.embed(*args)

    reading: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    reading.set_result(None)
    async with AsyncMemory(redis_url, principal=str(uuid4()), embedder=Noting()) as memory:
        fact = await memory.write("Rome")
        reading = asyncio.get_running_loop().create_future()
        order.clear()
        driver: Any = memory._driver
        answer = driver.answer

        async def noted(request: Any) -> Any:
            replies = await answer(request)
            if isinstance(request, Batch):
                order.append(str(request.commands[0][0]))
                if not reading.done():
                    reading.set_result(None)
            return replies

        driver.answer = noted
        await memory.update(fact.id, "Oslo")
        assert order == ["embedding began", "HMGET", "embedding ended", "FCALL"]


# Broken off ----------------------------------------------------------------------------------------------------------

Verb = Callable[[Any, Fact], Any]

CHANGES: dict[str, Verb] = {
    "write": lambda memory, fact: memory.write("Ann paints.", tags=["new"]),
    "write again": lambda memory, fact: memory.write(fact.text, key="city", tags=["new"]),
    "write under its key": lambda memory, fact: memory.write("Oslo", key="city"),
    "update": lambda memory, fact: memory.update(fact, "Oslo", reason="moved"),
    "invalidate": lambda memory, fact: memory.invalidate(fact, "left"),
    "forget": lambda memory, fact: memory.forget(fact),
    "forget all": lambda memory, fact: memory.forget(fact, history=True),
}


def state(memory: Any, fact: Fact) -> tuple[Any, ...]:
    """All that can be asked, but when it was and how often."""

    def shape(found: Fact) -> tuple[Any, ...]:
        ended = found.ended_at_ms is not None, found.valid_to_ms is not None, found.forgotten_at_ms is not None
        links = found.superseded_by, found.supersedes, found.invalidated_reason
        return found.id, found.text, found.tags, links, ended

    everything = memory.query(ended=True, limit=1_000).facts
    return (
        {shape(found) for found in everything},
        [shape(found) for found in memory.history(fact)],
        {hit.fact.id for hit in memory.retrieve("Rome Oslo Ann paints").hits},
    )


def check_links(memory: Any, fact: Fact) -> None:
    """Whatever one fact says of another, the other says too."""
    chain = {found.id: found for found in memory.history(fact)}
    for found in chain.values():
        if found.forgotten_at_ms is None:
            assert found.superseded_by is None or found.id in chain[found.superseded_by].supersedes
            assert (found.superseded_by is None) or found.ended_at_ms is not None
        for old in found.supersedes:
            assert chain[old].superseded_by == found.id


@pytest.mark.parametrize("cut", ["before", "torn", "after"])
@pytest.mark.parametrize("verb", CHANGES.values(), ids=CHANGES)
def test_a_lost_connection_leaves_all_or_nothing_and_the_same_call_again_completes_it(
    world: World, verb: Verb, cut: Cut
) -> None:
    embedder = Words()
    with between(world.url) as scissors, world.open(principal="ann", embedder=embedder) as witness:
        with world.open(url=scissors.url, principal="ann", embedder=embedder, retries_max=0) as ann:
            fact = ann.write("Bern", key="city")
            fact = ann.update(fact, "Rome", reason="first")
            before = state(witness, fact)
            scissors.arm(cut)
            with pytest.raises(ServerUnavailableError):
                verb(ann, fact)
            assert scissors.cuts == 1
            assert (state(witness, fact) != before) == (cut == "after")
            check_links(witness, fact)
            verb(ann, fact)
            wanted = state(witness, fact)
            assert wanted != before
            check_links(witness, fact)
    with world.open(principal="ann", embedder=embedder) as ann:
        world.client.flushdb()
        fact = ann.update(ann.write("Bern", key="city"), "Rome", reason="first")
        verb(ann, fact)
        assert state(ann, fact) == wanted  # as if nothing had been lost


@pytest.mark.parametrize("verb", CHANGES.values(), ids=CHANGES)
def test_a_call_sent_again_by_the_driver_has_its_effect_once(world: World, verb: Verb) -> None:
    with between(world.url) as scissors, world.open(principal="ann") as witness:
        with world.open(url=scissors.url, principal="ann") as ann:
            fact = ann.update(ann.write("Bern", key="city"), "Rome", reason="first")
            scissors.arm("after")
            verb(ann, fact)
            assert scissors.cuts == 1
            check_links(witness, fact)
            texts = [found.text for found in witness.query(ended=True).facts]
            assert len(texts) == len(set(texts))


def test_what_was_acknowledged_survives_kill_9(redis_server: ServerFactory) -> None:
    server = redis_server(profile="durable")
    embedder = Words()
    with Memory(server.url, principal="ann", embedder=embedder, store=Store(ack="fsync")) as ann:
        rome = ann.write("Ann lives in Rome.", key="city")
        oslo = ann.update(rome, "Ann lives in Oslo.", reason="moved")
        gone = ann.write("Ann hides quartz.")
        ann.forget(gone)
    kill_server(server.data_dir)
    again = redis_server(profile="durable", data_dir=server.data_dir)
    with Memory(again.url, principal="ann", embedder=embedder) as ann:
        assert ann.read("city") == oslo
        assert [fact.text for fact in ann.history(rome)] == [rome.text, oslo.text]
        assert ann.read(gone.id).forgotten_at_ms is not None
        while not ann.retrieve("Ann lives").index_ready:
            pass
        assert [hit.fact for hit in ann.retrieve("Ann lives").hits] == [oslo]


def test_a_server_that_can_prove_nothing_is_told_of_before_anything_is_written(world: World) -> None:
    with world.open(principal="ann", store=Store(ack="fsync")) as strict, world.open(principal="ann") as ann:
        fact = ann.write("Rome")
        for call in (
            lambda: strict.write("x"),
            lambda: strict.update(fact, "x"),
            lambda: strict.invalidate(fact, "x"),
            lambda: strict.forget(fact),
        ):
            with pytest.raises(ConfigError):
                call()
        assert strict.query(ended=True).facts == (fact,)


def test_a_full_server_still_reads_and_forgets(redis_server: ServerFactory) -> None:
    server = redis_server()
    with Memory(server.url, principal="ann", embedder=Words()) as ann:
        fact = ann.write("Ann paints.", key="k")
        other = ann.write("Bob paints.")
        ann._driver.run(_config("maxmemory", "1"))
        with pytest.raises(ServerFullError):
            ann.write("Ann sings.")
        with pytest.raises(ServerFullError):
            ann.update(fact, "Ann sings.")
        assert ann.read("k") == ann.read(fact.id) == fact
        assert {found.id for found in ann.query().facts} == {fact.id, other.id}
        assert len(ann.retrieve("paints").hits) == 2
        assert ann.invalidate(other, "no").invalidated_reason == "no"
        assert ann.forget(fact) == 1
        assert ann.history(fact)[0].forgotten_at_ms is not None
        ann._driver.run(_config("maxmemory", "0"))


def _config(name: str, value: str) -> Any:
    yield Batch((("CONFIG", "SET", name, value),))


def test_a_change_that_conflicts_changes_nothing(ann: Caller) -> None:
    rome = ann.write("Rome")
    ann.update(rome, "Oslo", reason="moved")
    before = state(ann, rome)
    for call in (lambda: ann.update(rome, "Bern"), lambda: ann.invalidate(rome, "other")):
        with pytest.raises(FactConflictError):
            call()
    with pytest.raises(RtmemError, match="true at no time"):
        ann.update(ann.query().facts[0], "Bern", valid_from=5_000, valid_to=1_000)
    assert state(ann, rome) == before
