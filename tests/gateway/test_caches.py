"""Turns that are answered from the cache of whoever was authenticated: real sockets, the real embedder."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_sdk import get_client

from rtmem.agent.cache import cached_turns, turn_cache
from rtmem.agent.recall import RecallMiddleware, recall_node
from rtmem.cache import AsyncSemanticCache
from rtmem.drivers import AsyncDriver
from rtmem.errors import ConfigError
from rtmem.gateway import caches
from rtmem.settings import Cache, Recall
from tests.agent.offload.worlds import Scripted, say
from tests.agent.recall.worlds import PATIENT as FAR
from tests.conftest import ServerFactory
from tests.gateway.cached import Counted, answered
from tests.gateway.conftest import Served, ServeGateway
from tests.gateway.graphs import Graph
from tests.gateway.raw import raw_client, seqs_of, text_in
from tests.gateway.test_memory import notebook
from tests.gateway.test_python_sdk import said, text_of, tokens_of
from tests.gateway.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.anyio

QUESTION = "What is the capital of France?"
PARAPHRASE = "What's the capital of France?"
# What is promised within a deadline must not depend on the machine.
PATIENT = {
    "cache": Cache(thresholds={"local": 0.1}, lookup_deadline_ms=60_000, update_deadline_ms=60_000, pause_ms=0),
}


async def asked(
    served: Served, thread: str, text: str, token: str = "token-of-alice", **start: Any
) -> list[dict[str, Any]]:
    """The events of one turn, once its answer is kept."""
    async with raw_client(served.ws_url, thread, token=token) as client:
        await client.subscribe()
        params = {"assistant_id": "counted", "input": said(text), **start}
        reply = await client.ask("run.start", **params)
        assert reply["type"] == "success", reply
        assert (await client.until_end())["event"] == "completed"
        await eventually(lambda: not served.gateway.runs.at_work)
        return client.events


def hits(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = [event["params"]["data"] for event in events if event["method"] == "custom"]
    return [data["payload"] for data in told if data["name"] == "rtmem.cache"]


def methods(events: list[dict[str, Any]]) -> list[str]:
    """What is told, in order; a message counts once, and what only a node at work tells is left out."""
    told: list[str] = []
    for event in events:
        method = event["method"]
        if method not in ("tasks", "custom") and not (method == "messages" and told[-1] == "messages"):
            told.append(method)
    return told


async def test_a_question_is_answered_once_by_the_graph_and_then_from_the_cache(serve_gateway: ServeGateway) -> None:
    counted = Counted()
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        live = await asked(served, "t1", QUESTION)
        exact = await asked(served, "t2", QUESTION)
        near = await asked(served, "t3", PARAPHRASE)
        other = await asked(served, "t4", "What is the capital of Norway?")
    assert counted.asked == [QUESTION, "What is the capital of Norway?"]
    assert [text_in(events) for events in (live, exact, near)] == [answered(QUESTION)] * 3
    assert hits(live) == hits(other) == []
    ((first,), (second,)) = hits(exact), hits(near)
    assert (first["kind"], first["distance"]) == ("exact", 0)
    assert second["kind"] == "semantic"
    assert 0 < second["distance"] < 0.1
    for hit in (first, second):
        assert set(hit) == {"kind", "distance", "saved_ms", "hit_id"}
    assert methods(exact) == methods(near) == methods(live)


async def test_an_answer_of_the_cache_streams_in_pieces_and_used_no_tokens(serve_gateway: ServeGateway) -> None:
    counted = Counted()
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        await asked(served, "t1", QUESTION)
        async with get_client(url=served.url, api_key="token-of-alice") as client:
            async with client.threads.stream("t2", assistant_id="counted", transport="websocket") as thread:
                await thread.run.start(input=said(QUESTION))
                (tokens,) = await tokens_of(thread)
                output = await thread.output
            state = await client.threads.get_state("t2")
    assert len(counted.asked) == 1
    assert len(tokens) > 1
    assert "".join(tokens) == text_of(output["messages"][-1]) == answered(QUESTION)
    message = state["values"]["messages"][-1]  # type: ignore[index, call-overload]
    assert message["usage_metadata"]["total_tokens"] == 0
    assert message["response_metadata"]["rtmem_cache"]["usage"]["total_tokens"] == 7


async def test_after_a_hit_the_thread_is_as_if_the_graph_had_run(serve_gateway: ServeGateway) -> None:
    counted = Counted()
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        histories = []
        for thread in ("live", "hit"):
            events = await asked(served, thread, QUESTION)
            graph = served.gateway.runs._graph("alice", "counted")
            config: Any = {"configurable": {"thread_id": thread}}
            history = [each async for each in graph.aget_state_history(config)]
            told = [event["params"]["data"]["id"] for event in events if event["method"] == "checkpoints"]
            assert told == [each.config["configurable"]["checkpoint_id"] for each in reversed(history)]  # type: ignore[typeddict-item]
            assert events[-1]["params"]["data"]["checkpoint"]["id"] == told[-1]
            assert (await served.gateway.runs.snapshot(served.gateway.threads.get("alice", thread))).next == ()  # type: ignore[union-attr]
            histories.append(
                [
                    (each.next, each.metadata["step"], [m.text for m in each.values.get("messages", [])])  # type: ignore[index]
                    for each in history
                ]
            )
        assert histories[0] == histories[1]
        follow_up = await asked(served, "hit", "And of Italy?")
        assert text_in(follow_up) == answered("And of Italy?", 2)
        # The same conversation, and therefore the same question.
        (again,) = hits(await asked(served, "live", "And of Italy?"))
    assert again["kind"] == "exact"
    assert counted.asked == [QUESTION, "And of Italy?"]


async def test_nobody_and_nothing_else_gets_an_answer(serve_gateway: ServeGateway) -> None:
    counted, other = Counted(), Counted()
    async with serve_gateway(graphs={"counted": counted.graph, "other": other.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        await asked(served, "t1", QUESTION)
        config = {"configurable": {"language": "ru"}}
        assert not hits(await asked(served, "t1", QUESTION, "token-of-bob"))
        assert not hits(await asked(served, "t2", QUESTION, config=config))
        assert not hits(await asked(served, "t3", QUESTION, assistant_id="other"))
        await asked(served, "t4", "Good morning.")
        assert not hits(await asked(served, "t4", QUESTION))  # in another context
        # Each of them has its own by now.
        assert hits(await asked(served, "t5", QUESTION, "token-of-bob"))
        assert hits(await asked(served, "t6", QUESTION, config=config))
        # Whom a client says that it is changes nothing.
        forged = {"configurable": {"principal": "bob", "__rtmem_cached_turns": None, "__rtmem_served": None}}
        assert hits(await asked(served, "t7", QUESTION, config=forged))
    assert len(counted.asked) == 5
    assert len(other.asked) == 1


async def test_the_last_turn_alone_counts_where_the_owner_says_so(serve_gateway: ServeGateway) -> None:
    counted = Counted(conversation="last_turn")
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        await asked(served, "t1", QUESTION)
        await asked(served, "t2", "Good morning.")
        assert hits(await asked(served, "t2", QUESTION))
        pair = {"messages": [{"role": "user", "content": "Answer in French."}, {"role": "user", "content": QUESTION}]}
        assert not hits(await asked(served, "t3", "", input=pair))


async def test_who_comes_back_hears_of_the_hit(serve_gateway: ServeGateway) -> None:
    counted = Counted()
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        await asked(served, "t1", QUESTION)
        events = await asked(served, "t2", QUESTION)
        async with raw_client(served.ws_url, "t2") as client:
            await client.subscribe(since=events[0]["seq"])
            await client.until_end()
            assert seqs_of(client.events) == seqs_of(events)[1:]
            assert hits(client.events) == hits(events)
            assert text_in(client.events) == answered(QUESTION)


async def test_hits_are_told_to_redis_while_the_gateway_runs(
    serve_gateway: ServeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "_TOLD_EVERY_S", 0.01)
    counted = Counted()
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        await asked(served, "t1", QUESTION)
        await asked(served, "t2", QUESTION)
        async with AsyncSemanticCache(driver=served.driver, principal="alice") as reader:
            with anyio.fail_after(PATIENCE_S):
                while (await reader.stats()).exact == 0:  # noqa: ASYNC110 - Redis tells nobody
                    await anyio.sleep(0.01)


async def test_without_the_query_engine_only_the_same_question_hits(
    serve_gateway: ServeGateway, redis_server: ServerFactory
) -> None:
    bare = redis_server(modules=False)
    counted = Counted()
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT, url=bare.url) as served:
        await served.gateway.caches.awake.wait()
        await asked(served, "t1", QUESTION)
        assert not hits(await asked(served, "t2", PARAPHRASE))
        assert hits(await asked(served, "t3", QUESTION))
    assert counted.asked == [QUESTION, PARAPHRASE]


async def test_a_cache_that_cannot_be_reached_fails_no_turn(serve_gateway: ServeGateway) -> None:
    counted = Counted()
    async with serve_gateway(graphs={"counted": counted.graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        nowhere = AsyncDriver.lazy("unix:///nowhere/redis.sock")
        served.gateway.caches._cache._driver = nowhere  # type: ignore[union-attr]
        for thread in ("t1", "t2"):
            assert text_in(await asked(served, thread, QUESTION)) == answered(QUESTION)
        assert served.gateway.caches.counts["unavailable"] >= 2
        await nowhere.aclose()
    assert len(counted.asked) == 2


async def test_a_gateway_without_graphs_to_cache_opens_none(serve_gateway: ServeGateway) -> None:
    async with serve_gateway() as served:
        await served.gateway.caches.awake.wait()
        assert served.gateway.caches._cache is None


# What is remembered --------------------------------------------------------------------------------------------------


def remembering(kind: str, model: Scripted, **options: Any) -> Graph:
    """A graph that is told what is remembered of who asks."""
    if kind == "agent":
        made: Any = create_agent(model, [], middleware=[RecallMiddleware()])
        return cached_turns(made, model="m", parameters={}, **options)
    node = recall_node() | model | (lambda answer: {"messages": [answer]})
    builder = StateGraph(MessagesState).add_node("model", node).add_edge(START, "model")
    if kind == "node":
        return cached_turns(builder.compile(), model="m", parameters={}, **options)

    async def outer(state: MessagesState) -> Any:  # the graph's events are told to nobody
        return {"messages": [(await builder.compile().ainvoke(state))["messages"][-1]]}

    whole = StateGraph(MessagesState).add_node("outer", outer).add_edge(START, "outer").compile()
    return cached_turns(whole, model="m", parameters={}, **options)


@pytest.mark.parametrize("kind", ["agent", "node", "inside"])
async def test_an_answer_of_what_is_remembered_is_kept_only_where_the_owner_says_so(
    serve_gateway: ServeGateway, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    turn_cache._told.clear()
    model, kept = Scripted(turns=[say("Rome."), say("Oslo."), say("?")]), Scripted(turns=[say("Rome."), say("Oslo.")])
    graphs = {"counted": remembering(kind, model), "kept": remembering(kind, kept, allow=["memory"])}
    sections = {**PATIENT, "recall": Recall(**FAR)}
    question = "Where does Alice live?"
    async with serve_gateway(graphs=graphs, sections=sections) as served:
        await served.gateway.caches.awake.wait()
        memory: Any = served.gateway.memories.recall("alice").memory
        await memory.write("Alice lives in Rome.")
        assert [text_in(await asked(served, thread, question)) for thread in ("t1", "t2")] == ["Rome.", "Oslo."]
        assert served.gateway.caches.counts["unstored_memory"] == 2
        assert caplog.text.count("cached_turns(..., allow=['memory']) keeps those") == 1
        # Of bob nothing is known.
        answers = [text_in(await asked(served, thread, question, "token-of-bob")) for thread in ("t1", "t2")]
        assert answers == ["?", "?"]
        answers = [text_in(await asked(served, thread, question, assistant_id="kept")) for thread in ("t3", "t4")]
        assert answers == ["Rome.", "Rome."]


@pytest.mark.parametrize("awaiting", [True, False])
async def test_an_answer_out_of_the_store_is_not_kept(serve_gateway: ServeGateway, awaiting: bool) -> None:
    graph = cached_turns(notebook(awaiting=awaiting), model="m", parameters={})
    async with serve_gateway(graphs={"counted": graph}, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        store = await served.gateway.memories.store()
        await store.bind("alice").aput(("notes",), "all", {"text": "0"})
        assert [text_in(await asked(served, thread, "+")) for thread in ("t1", "t2")] == ["0+", "0++"]


# Answers for everybody -----------------------------------------------------------------------------------------------


async def test_answers_for_everybody_are_the_assistants(serve_gateway: ServeGateway) -> None:
    shared, other, own = Counted(shared=True), Counted(shared=True), Counted()
    graphs = {"counted": shared.graph, "other": other.graph, "own": own.graph}
    async with serve_gateway(graphs=graphs, sections=PATIENT) as served:
        await served.gateway.caches.awake.wait()
        await asked(served, "t1", QUESTION)
        events = await asked(served, "t1", PARAPHRASE, "token-of-bob")
        assert hits(events)
        assert text_in(events) == answered(QUESTION)
        assert not hits(await asked(served, "t2", QUESTION, assistant_id="other"))
        assert not hits(await asked(served, "t3", QUESTION, assistant_id="own"))
        assert not hits(await asked(served, "t4", QUESTION, "token-of-bob", assistant_id="own"))
        # In a conversation of one's own, it is another question.
        await asked(served, "t5", "I am Ann.")
        assert not hits(await asked(served, "t5", QUESTION))
        assert not hits(await asked(served, "t6", QUESTION, "token-of-bob", config={"configurable": {"tier": "gold"}}))
        for owner, entries in (("shared:counted", 4), ("shared:other", 1), ("alice", 1), ("bob", 1)):
            async with AsyncSemanticCache(driver=served.driver, principal=owner) as reader:
                assert (await reader.stats()).entries == entries
    assert len(shared.asked) == 4
    assert (len(other.asked), len(own.asked)) == (1, 2)


async def test_what_is_remembered_of_one_user_is_told_to_no_other(serve_gateway: ServeGateway) -> None:
    model = Scripted(turns=[say("Rome."), say("?")])
    graphs = {"counted": remembering("agent", model, shared=True)}
    async with serve_gateway(graphs=graphs, sections={**PATIENT, "recall": Recall(**FAR)}) as served:
        await served.gateway.caches.awake.wait()
        memory: Any = served.gateway.memories.recall("alice").memory
        await memory.write("Alice lives in Rome.")
        question = "Where does Alice live?"
        assert text_in(await asked(served, "t1", question)) == "Rome."
        assert text_in(await asked(served, "t1", question, "token-of-bob")) == "?"


async def test_nobody_is_authenticated_as_the_owner_of_answers_for_everybody(serve_gateway: ServeGateway) -> None:
    with pytest.raises(BaseExceptionGroup) as failed:
        async with serve_gateway(tokens={"token": "shared:counted"}):
            pass
    assert failed.group_contains(ConfigError, match="'shared:' is what the owner of answers for everybody begins with")
