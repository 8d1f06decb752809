"""What graphs remember behind a gateway belongs to whoever was authenticated."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from rtmem.agent.cache import cached_turns
from rtmem.agent.recall import RecallMiddleware
from rtmem.errors import ConfigError
from rtmem.gateway import memory
from rtmem.gateway.memory import Memories
from rtmem.settings import Cache, Embedding, Recall, Settings, Store
from tests.agent.offload.worlds import Scripted, call, say
from tests.agent.recall.worlds import PATIENT, memory_in
from tests.conftest import ServerFactory
from tests.gateway.conftest import ServeGateway
from tests.gateway.graphs import Graph
from tests.gateway.raw import raw_client, text_in
from tests.gateway.waiting import eventually

pytestmark = pytest.mark.anyio


def custom(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["params"]["data"]["payload"] for event in events if event["method"] == "custom"]


async def test_an_agent_remembers_across_threads_what_its_principal_said(serve_gateway: ServeGateway) -> None:
    model = Scripted(turns=[call(remember={"text": "Alice lives in Rome."}), say("Noted."), say("Rome."), say("?")])
    agent: Any = create_agent(model, [], middleware=[RecallMiddleware()])
    async with serve_gateway(graphs={"agent": agent}, sections={"recall": Recall(**PATIENT)}) as served:
        statuses = []
        for token, thread, text in (
            ("token-of-alice", "t1", "I live in Rome"),
            ("token-of-alice", "t2", "Where does Alice live?"),
            ("token-of-bob", "t2", "Where does Alice live?"),
        ):
            async with raw_client(served.ws_url, thread, token=token) as client:
                await client.subscribe(["lifecycle", "custom"])
                await client.start("agent", text)
                await client.until_end()
                statuses += [event["status"] for event in custom(client.events) if event["name"] == "rtmem.recall"]
        assert statuses[0] == "nothing"
        assert statuses[-2:] == ["ok", "nothing"]
        assert [len(memory_in(seen)) for seen in model.seen[2:]] == [1, 0]
        recall = served.gateway.memories.recall("alice")
        assert recall.counts["write"].calls == 1
        # A client that connects wakes memory, once it is known to be needed; one at a time does for all.
        await eventually(lambda: "prefetch" in recall.counts)


async def test_memory_that_is_expected_is_loaded_before_anybody_comes(serve_gateway: ServeGateway) -> None:
    async with serve_gateway(memory_expected=True) as served:
        memories = served.gateway.memories
        await eventually(memories.awake.is_set)
        recall = memories.recall("alice")
        asked = recall.counts["retrieve"]
        assert (asked.calls, asked.errors) == (1, 0)


async def test_memory_that_cannot_be_loaded_holds_up_nobody(
    serve_gateway: ServeGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ImportError("an engine for another processor")

    monkeypatch.setattr(memory, "_import_recall", broken)
    async with serve_gateway(memory_expected=True) as served:
        await eventually(served.gateway.memories.awake.is_set)
        async with raw_client(served.ws_url, "t1") as client:
            await client.subscribe(["lifecycle"])
            await client.start("chat", "hello")
            assert (await client.until_end())["event"] == "completed"
    assert "turns go on without it: ImportError: an engine for another processor" in caplog.text


async def test_memory_that_nobody_expects_is_not_loaded(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        await eventually(served.gateway.memories.awake.is_set)
        async with raw_client(served.ws_url, "t1") as client:
            await client.subscribe(["lifecycle"])
        assert served.gateway.memories._recall is None


def notebook(*, awaiting: bool) -> Graph:
    """Adds each message to a note in the store, and answers with the whole note."""

    async def write(state: MessagesState, runtime: Runtime[None]) -> dict[str, Any]:
        assert runtime.store is not None
        item = await runtime.store.aget(("notes",), "all")
        text = (item.value["text"] if item else "") + str(state["messages"][-1].text)
        await runtime.store.aput(("notes",), "all", {"text": text})
        return {"messages": [AIMessage(text)]}

    def write_blocking(state: MessagesState, runtime: Runtime[None]) -> dict[str, Any]:
        assert runtime.store is not None
        item = runtime.store.get(("notes",), "all")
        text = (item.value["text"] if item else "") + str(state["messages"][-1].text)
        runtime.store.put(("notes",), "all", {"text": text})
        return {"messages": [AIMessage(text)]}

    builder = StateGraph(MessagesState)
    builder.add_node("write", write if awaiting else write_blocking)
    builder.add_edge(START, "write")
    return builder.compile()


async def test_a_graph_gets_a_store_of_its_principal(serve_gateway: ServeGateway) -> None:
    graphs = {"awaiting": notebook(awaiting=True), "blocking": notebook(awaiting=False)}
    async with serve_gateway(graphs=graphs) as served:
        notes = []
        for number, (token, graph) in enumerate(
            [("token-of-alice", "awaiting"), ("token-of-bob", "blocking"), ("token-of-alice", "blocking")]
        ):
            async with raw_client(served.ws_url, f"t{number}", token=token) as client:
                await client.subscribe(["lifecycle", "messages"])
                await client.start(graph, f"note{number} ")
                await client.until_end()
                notes.append(text_in(client.events))
        assert notes == ["note0 ", "note1 ", "note0 note2 "]


def test_a_model_that_does_not_exist_is_told_at_the_start() -> None:
    with pytest.raises(ConfigError, match="remote:NAME"):
        Memories(None, Settings(embedding=Embedding(model="mini")))  # type: ignore[arg-type]


async def test_what_a_graph_stores_lives_as_long_as_the_settings_say(
    serve_gateway: ServeGateway, redis_client: redis.Redis
) -> None:
    sections = {"store": Store(ttl_ms=600_000)}
    async with serve_gateway(graphs={"notes": notebook(awaiting=True)}, sections=sections) as served:
        async with raw_client(served.ws_url, "t1", token="token-of-alice") as client:
            await client.subscribe(["lifecycle"])
            await client.start("notes", "a")
            await client.until_end()
    (name,) = redis_client.keys("rtmem:m:*")
    assert 0 < redis_client.pttl(name) <= 600_000


async def test_memory_and_cache_may_each_have_a_redis_of_their_own(
    serve_gateway: ServeGateway, redis_client: redis.Redis, redis_server: ServerFactory
) -> None:
    graph: Any = cached_turns(notebook(awaiting=True), model="m", parameters={}, allow=["memory"])
    places = {"memory": redis_server(), "cache": redis_server()}
    sections = {
        "store": Store(redis_url=places["memory"].url),
        "cache": Cache(redis_url=places["cache"].url, lookup_deadline_ms=60_000, update_deadline_ms=60_000),
    }
    async with serve_gateway(graphs={"notebook": graph}, sections=sections) as served:
        await served.gateway.caches.awake.wait()
        async with raw_client(served.ws_url, "t1", token="token-of-alice") as client:
            await client.subscribe(["lifecycle"])
            await client.start("notebook", "the door is blue")
            await client.until_end()
        await eventually(lambda: not served.gateway.runs.at_work)

    def kinds(client: redis.Redis) -> set[bytes]:
        return {b":".join(key.split(b":")[1 : 3 if key.startswith(b"rtmem:c:") else 2]) for key in client.scan_iter()}

    found = {}
    for name, server in places.items():
        with redis.Redis.from_url(server.url) as client:
            found[name] = kinds(client)
    assert b"m" in found["memory"]
    assert found["cache"] == {b"c:e", b"c:t"}
    assert not kinds(redis_client) & (found["memory"] | found["cache"])
