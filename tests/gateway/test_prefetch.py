"""A client that hears its user's message grow says so with `rtmem.prefetch`, and the run finds its memory recalled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any

import anyio
import httpx
import pytest
import redis
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware

from rtmem import embedding
from rtmem.agent.recall import Recall, RecallMiddleware
from rtmem.errors import ServerUnavailableError
from rtmem.settings import Recall as Policy
from rtmem.steps import Batch
from tests.agent.offload.worlds import Scripted, say
from tests.agent.recall.worlds import PATIENT, Gate, memory_in
from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.raw import RawClient, raw_client
from tests.gateway.waiting import eventually
from tests.wire import Wire

pytestmark = pytest.mark.anyio

PARTIALS = ("...", "where does", "where does Ann", "where does Ann live")
MESSAGE = "Where does Ann live?"


class Held(AgentMiddleware[Any, Any, Any]):
    """Lets a run go on to its memory once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = anyio.Event()

    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        await self.let_go.wait()


class World:
    """An agent that takes its memory from the gateway, where Alice's knows where Ann lives."""

    def __init__(self, served: Served, embedder: Gate, model: Scripted) -> None:
        self.served = served
        self.embedder = embedder
        self.model = model
        self.recall: Recall = served.gateway.memories.recall("alice")

    @asynccontextmanager
    async def client(self, *, since: int | None = None, **options: Any) -> AsyncIterator[RawClient]:
        """A client of thread t1 that hears what runs recall; its coming has woken memory."""
        async with raw_client(self.served.ws_url, "t1", **options) as client:
            await client.subscribe(["lifecycle", "custom"], since=since)
            yield client

    def holds(self, text: str) -> bool:
        """Whether the embedder has been asked for `text`, and has not answered."""
        return text in self.embedder.arrived and (text,) not in self.embedder.asked

    async def prefetched(self) -> None:
        """Nothing is under way for anybody."""
        await eventually(lambda: not self.recall._tasks)


@pytest.fixture
def remembering(serve_gateway: ServeGateway, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`async with remembering() as world:`; its embedder's gate is open."""

    @asynccontextmanager
    async def world(*before: AgentMiddleware[Any, Any, Any]) -> AsyncIterator[World]:
        embedder = Gate()
        embedder.opened.set()
        monkeypatch.setattr(embedding, "from_settings", lambda _: embedder)
        model = Scripted(turns=[say("Rome.")] * 9)
        agent: Any = create_agent(model, [], middleware=[*before, RecallMiddleware()])
        sections = {"recall": Policy(**PATIENT)}
        async with serve_gateway(graphs={"agent": agent}, sections=sections, memory_expected=True) as served:
            await eventually(served.gateway.memories.awake.is_set)
            made = World(served, embedder, model)
            await made.recall.memory.write("Ann lives in Rome.")  # type: ignore[misc]
            await made.prefetched()
            yield made

    return world


async def recalled(client: RawClient, message: str = MESSAGE) -> tuple[str, str]:
    """Status and source of what a run recalls."""
    client.forget()
    await client.start("agent", message)
    return await heard(client)


async def heard(client: RawClient) -> tuple[str, str]:
    """The same of a run that was started before."""
    await client.until_end()
    (told,) = (event["params"]["data"]["payload"] for event in client.events if event["method"] == "custom")
    assert told["name"] == "rtmem.recall"
    return told["status"], told["source"]


def looked_up(*batches: Batch) -> list[str]:
    """What Redis was asked of memory."""
    names = [str(command[1]) for batch in batches for command in batch.commands if command[0] == "FCALL"]
    return [name for name in names if "fact" in name]


@contextmanager
def cut(memory: Any) -> Iterator[None]:
    """Redis does not answer what it is asked of memory."""
    answer = memory.driver.answer

    async def answer_others(request: Any) -> list[Any]:
        if isinstance(request, Batch) and looked_up(request):
            raise ServerUnavailableError("the wire was cut: this is a test")
        replies: list[Any] = await answer(request)
        return replies

    memory.driver.answer = answer_others
    yield
    memory.driver.answer = answer


async def test_a_run_finds_recalled_what_partial_transcripts_asked_for(
    remembering: Any, redis_client: redis.Redis
) -> None:
    async with remembering() as world, world.client() as client:
        wire = Wire(world.recall.memory)
        for text in PARTIALS:
            reply = await client.ask("rtmem.prefetch", text=text)
            # In a pause there are no words to look for.
            assert (reply["type"], reply["result"]) == ("success", {"prefetching": "where" in text})
        await world.prefetched()
        assert looked_up(*wire.batches)
        assert not [name for name in redis_client.keys("*") if b"t1" in name]  # nothing of it is the thread's
        world.embedder.asked.clear()
        wire.take()
        assert await recalled(client) == ("ok", "prefetch")
        assert (world.embedder.asked, looked_up(*wire.batches)) == ([], [])
        assert len(memory_in(world.model.seen[0])) == 1
        # The message after it is looked up as ever.
        assert await recalled(client, "Where does Bob live?") == ("ok", "read")
        assert world.embedder.asked
        assert looked_up(*wire.batches)


async def test_partial_transcripts_may_come_by_post(remembering: Any) -> None:
    async with remembering() as world, world.client() as client, httpx.AsyncClient(headers=world.served.auth) as http:
        command = {"id": 7, "method": "rtmem.prefetch", "params": {"text": "where does Ann live"}}
        answered = await http.post(f"{world.served.url}/threads/t1/commands", json=command)
        assert answered.json() == {"type": "success", "id": 7, "result": {"prefetching": True}}
        assert await recalled(client) == ("ok", "prefetch")


async def test_a_partial_of_another_principal_never_serves(remembering: Any) -> None:
    async with remembering() as world, world.client() as alice, world.client(token="token-of-bob") as bob:
        await alice.ask("rtmem.prefetch", text="where does Ann live", principal="bob")
        await world.prefetched()
        assert await recalled(bob) == ("nothing", "read")
        assert memory_in(world.model.seen[0]) == []
        await bob.ask("rtmem.prefetch", text="where does Ann live", principal="alice")
        assert await recalled(bob) == ("nothing", "prefetch")
        assert await recalled(alice) == ("ok", "prefetch")


async def test_of_a_flood_of_partials_only_the_newest_is_at_work(remembering: Any) -> None:
    async with remembering() as world, world.client() as client:
        world.embedder.opened.clear()
        for number in range(1, 201):
            text = "..." if number % 10 == 0 else f"where does Ann live, word {number}"
            frame = {"id": 1_000 + number, "method": "rtmem.prefetch", "params": {"text": text}}
            await client.socket.send(json.dumps(frame))
            if number % 50 == 1:
                await eventually(partial(world.holds, text))
        while 1_200 not in client.replies:
            await client.receive()
        # The newest one with words, and one that only wakes.
        await eventually(lambda: len(world.recall._tasks) == 2)
        world.embedder.opened.set()
        await world.prefetched()
        assert ("where does Ann live, word 199",) in world.embedder.asked
        assert len(world.embedder.asked) < 10
        assert await recalled(client, "Where does Ann live, word 199?") == ("ok", "prefetch")


async def test_a_client_that_leaves_ends_what_it_began(remembering: Any) -> None:
    async with remembering() as world:
        world.embedder.opened.clear()
        async with world.client() as client:
            await client.ask("rtmem.prefetch", text="where does Ann live")
            await eventually(lambda: world.holds("where does Ann live"))
        # What only wakes memory is for everybody.
        await eventually(lambda: world.embedder.cancelled == 1)
        world.embedder.opened.set()
        await world.prefetched()
        assert ("where does Ann live",) not in world.embedder.asked


async def test_a_run_keeps_what_was_begun_for_it_when_its_client_leaves(remembering: Any) -> None:
    held = Held()
    async with remembering(held) as world:
        async with world.client() as client:
            await client.ask("rtmem.prefetch", text="where does Ann live")
            await client.start("agent", MESSAGE)
        async with world.client(since=0) as client:
            await eventually(lambda: len(world.served.gateway.threads.get("alice", "t1").listeners) == 1)
            held.let_go.set()
            assert await heard(client) == ("ok", "prefetch")


@pytest.mark.parametrize("broken", ["embedder", "redis"])
async def test_a_prefetch_that_fails_costs_neither_the_connection_nor_the_run(remembering: Any, broken: str) -> None:
    async with remembering() as world, world.client() as client:
        await world.prefetched()
        world.embedder.broken = broken == "embedder"
        with cut(world.recall.memory) if broken == "redis" else nullcontext():
            reply = await client.ask("rtmem.prefetch", text="where does Ann live")
            assert reply["result"] == {"prefetching": True}
            await world.prefetched()
        # Without its embedder memory goes by words, so there is something to take.
        assert await recalled(client) == ("ok", "prefetch" if broken == "embedder" else "read")


@pytest.mark.parametrize("params", [{}, {"text": None}, {"text": ["where"]}, {"text": "x" * 16_001}])
async def test_what_is_no_partial_transcript_is_refused(serve_gateway: ServeGateway, params: dict[str, Any]) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        refused = await client.ask("rtmem.prefetch", **params)
        assert (refused["type"], refused["error"]) == ("error", "invalid_argument")
        assert refused["meta"]["error_type"] == "MalformedFrameError"
        assert refused["message"].startswith("rtmem.prefetch: ")
        assert (await client.ask("rtmem.prefetch", text="x" * 16_000))["type"] == "success"


async def test_a_gateway_without_memory_has_begun_nothing(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served, raw_client(served.ws_url) as client:
        reply = await client.ask("rtmem.prefetch", text="where does Ann live")
        assert reply == {"type": "success", "id": 1, "result": {"prefetching": False}}
        assert served.gateway.memories._recall is None
