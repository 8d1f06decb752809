"""Which turns are looked up, which are kept, and what a hit does to a thread: real graphs, a real Redis."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import anyio
import msgspec
import pytest
import redis
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from rtmem.agent import turn
from rtmem.agent.cache import cached_turns, turn_cache
from rtmem.agent.cache.turn_cache import TurnCache, of_turn
from rtmem.agent.served import CACHED_TURNS
from rtmem.cache import AsyncSemanticCache, CacheDraft
from rtmem.errors import WriteRefusedError
from rtmem.records import TurnEvent
from rtmem.settings import Cache
from tests.agent.offload.worlds import Scripted, say
from tests.gateway.graphs import Graph, approval, chat, nested

pytestmark = pytest.mark.anyio

QUESTION = "What is the capital of France?"
PATIENT = Cache(lookup_deadline_ms=60_000, update_deadline_ms=60_000, pause_ms=0)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)], **more}


class World:
    """Turns of one principal."""

    def __init__(self, cache: AsyncSemanticCache) -> None:
        self.cache = cache

    def of_turn(self, graph: Graph, turn_input: Any, config: Any) -> TurnCache | None:
        policy = graph.config["configurable"][CACHED_TURNS]  # type: ignore[index, typeddict-item]
        return of_turn(policy, self.cache, graph, turn_input, config, "g")

    async def turn(
        self,
        graph: Graph,
        turn_input: Any,
        thread: str = "t",
        tell: Callable[[TurnEvent], None] | None = None,
        **given: Any,
    ) -> list[TurnEvent]:
        config: Any = {"configurable": {"thread_id": thread}}
        cached = self.of_turn(graph, turn_input, config)
        events: list[TurnEvent] = []

        async def told(event: TurnEvent) -> None:
            events.append(event)
            if tell is not None:
                tell(event)

        await turn.run(graph, turn_input, config, graph_name="g", tell=told, cached=cached)
        return events

    async def hits(self, graph: Graph, turn_input: Any, thread: str = "t") -> bool:
        """Whether this turn is answered from the cache."""
        events = await self.turn(graph, turn_input, thread)
        assert events[-1].data["event"] == "completed"
        return any(event.method == "custom" and event.data["name"] == "rtmem.cache" for event in events)

    async def entries(self) -> int:
        return (await self.cache.stats()).entries


@pytest.fixture
async def world(redis_url: str, redis_client: redis.Redis) -> AsyncIterator[World]:
    async with AsyncSemanticCache(redis_url, principal="ann", guard=False, settings=PATIENT) as cache:
        yield World(cache)


def answering(answer: Any, *more: Any, state: Any = MessagesState, **options: Any) -> Graph:
    """A graph whose nodes, one after the other, return these."""
    builder = StateGraph(state)
    last = START
    for number, given in enumerate((answer, *more)):
        name = f"node{number}"

        def node(state: Any, given: Any = given) -> Any:
            return given(state) if callable(given) else given

        builder.add_node(name, node)
        builder.add_edge(last, name)
        last = name
    policy = {"model": "m", "parameters": {}, "answer_node": "node0", **options}
    return cached_turns(builder.compile(checkpointer=InMemorySaver()), **policy)


def one(text: str = "Paris.", **more: Any) -> dict[str, Any]:
    return {"messages": [AIMessage(text)], **more}


# What is looked up ---------------------------------------------------------------------------------------------------


async def test_the_owners_write_policy_may_change_and_refuse_what_is_kept(world: World) -> None:
    def policy(draft: CacheDraft) -> CacheDraft:
        if "secret" in draft.prompt:
            raise WriteRefusedError("it is a secret")
        return msgspec.structs.replace(draft, answer=AIMessage("Rome."))

    graph = answering(lambda state: one(), policy=policy)
    for question, hits in (("What is the secret?", False), (QUESTION, True)):
        assert not await world.hits(graph, said(question), f"{question} 1")
        assert await world.hits(graph, said(question), f"{question} 2") is hits
    (entry,) = (await world.cache.entries()).entries
    assert (await world.cache.entry(entry.entry_id)).answer.content == "Rome."  # type: ignore[union-attr]


async def test_only_a_new_question_of_a_human_is_looked_up(world: World) -> None:
    graph = answering(lambda state: one())
    config: Any = {"configurable": {"thread_id": "t"}}
    assert world.of_turn(graph, said(QUESTION), config) is not None
    assert world.of_turn(graph, {"messages": QUESTION}, config) is not None
    for turn_input in (
        None,
        Command(resume="yes"),
        {},
        {"messages": []},
        {"messages": [AIMessage("Hello.")]},
        {"messages": [HumanMessage(QUESTION), ToolMessage("7", tool_call_id="c")]},
        {"messages": [RemoveMessage(id="m"), HumanMessage(QUESTION)]},
        {"messages": 7},
    ):
        assert world.of_turn(graph, turn_input, config) is None
    fork = {"configurable": {"thread_id": "t", "checkpoint_id": "c"}}
    assert world.of_turn(graph, said(QUESTION), fork) is None


async def test_a_message_that_is_changed_is_not_looked_up(world: World) -> None:
    graph = answering(lambda state: one(f"{len(state['messages'])}"), conversation="last_turn")
    question = {"messages": [HumanMessage(QUESTION, id="q")]}
    assert not await world.hits(graph, question)
    assert not await world.hits(graph, question)
    assert await world.hits(graph, question, "other")


async def test_a_thread_with_a_turn_that_is_not_over_is_not_looked_up(world: World) -> None:
    broken = [True]

    def answer(state: Any) -> Any:
        if broken[0]:
            raise RuntimeError("broke")
        return one()

    graph = answering(answer, conversation="last_turn")
    await world.turn(graph, said(QUESTION), "failed")
    broken[0] = False
    assert not await world.hits(graph, said(QUESTION), "other")
    assert not await world.hits(graph, said(QUESTION), "failed")
    assert await world.hits(graph, said(QUESTION), "third")


async def test_other_input_and_other_state_are_other_questions(world: World) -> None:
    class State(MessagesState):
        mood: str
        turns: Annotated[list[int], operator.add]

    graph = answering(lambda state: one(state.get("mood", "none")), state=State)
    assert not await world.hits(graph, said(QUESTION, mood="gay"), "a")
    assert not await world.hits(graph, said(QUESTION, mood="sad"), "b")
    assert await world.hits(graph, said(QUESTION, mood="gay"), "c")
    state = await graph.aget_state({"configurable": {"thread_id": "c"}})
    assert state.values["mood"] == "gay"
    await graph.aupdate_state({"configurable": {"thread_id": "d"}}, {"mood": "sad"}, as_node="node0")
    assert not await world.hits(graph, said(QUESTION, mood="gay"), "d")


async def test_what_an_answer_does_not_depend_on_is_no_obstacle(world: World) -> None:
    class State(MessagesState):
        count: Annotated[int, operator.add]

    graph = answering(lambda state: one(count=1), state=State, conversation="last_turn", depends_on=[], allow=["state"])
    assert not await world.hits(graph, said(QUESTION), "a")
    assert await world.hits(graph, said(QUESTION), "a")


async def test_an_empty_thread_is_like_one_that_was_used(world: World) -> None:
    class State(MessagesState):
        notes: Annotated[list[str], operator.add]

    graph = answering(lambda state: one(), state=State, conversation="last_turn")
    assert not await world.hits(graph, said(QUESTION), "a")
    assert await world.hits(graph, said(QUESTION), "a")


async def test_what_cannot_be_written_down_is_asked_of_the_graph(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class State(MessagesState):
        at: datetime

    graph = answering(lambda state: one(), state=State)
    assert not await world.hits(graph, said(QUESTION, at=datetime.now(UTC)))
    assert "goes on without the cache: InvalidRequestError: scope.parameters.input.at" in caplog.text
    graph = answering(lambda state: one(), state=State, depends_on=[])
    assert not await world.hits(graph, said(QUESTION, at=datetime.now(UTC)), "a")
    assert await world.hits(graph, said(QUESTION, at=datetime.now(UTC)), "b")


# What is kept --------------------------------------------------------------------------------------------------------


async def test_a_turn_that_fails_is_not_kept(world: World) -> None:
    def broken(state: Any) -> Any:
        raise RuntimeError("broke")

    await world.turn(answering(lambda state: one(), broken), said(QUESTION))
    assert await world.entries() == 0


async def test_a_turn_that_is_cancelled_is_not_kept(world: World) -> None:
    graph = cached_turns(chat(words_max=2), model="m", parameters={})
    scope = anyio.CancelScope()

    def stop(event: TurnEvent) -> None:
        if event.method == "messages":
            scope.cancel()

    with scope:
        await world.turn(graph, said("hello 20"), tell=stop)
    assert scope.cancelled_caught
    assert await world.entries() == 0


async def test_a_turn_that_asks_a_person_is_not_kept_and_goes_on_by_itself(world: World) -> None:
    graph = cached_turns(approval(), model="m", parameters={}, answer_node="ask")
    await world.turn(graph, said(QUESTION))
    await world.turn(graph, Command(resume="yes"))
    assert await world.entries() == 0
    events = await world.turn(graph, said(QUESTION), "other")
    assert events[-1].data["event"] == "interrupted"


@tool
def population(city: str) -> str:
    """How many people live in a city."""
    return "2 million"


def agent(**options: Any) -> Graph:
    def call(messages: list[Any]) -> Any:
        return {"population": {"city": "Paris"}}

    model = Scripted(turns=[call, say("2 million."), call, say("3 million.")])
    made: Any = create_agent(model, [population], checkpointer=InMemorySaver())
    return cached_turns(made, model="m", parameters={}, tools=[population], **options)


async def test_a_turn_that_called_tools_is_kept_only_where_the_owner_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    turn_cache._told.clear()
    graph = agent()
    assert not await world.hits(graph, said(QUESTION), "a")
    assert not await world.hits(graph, said(QUESTION), "b")
    assert caplog.text.count("it called tools; cached_turns(..., allow=['tool_calls']) keeps those") == 1
    assert world.cache.counts["unstored_tool_calls"] == 2
    graph = agent(allow=["tool_calls"])
    assert not await world.hits(graph, said(QUESTION), "a")
    assert await world.hits(graph, said(QUESTION), "b")
    state = await graph.aget_state({"configurable": {"thread_id": "b"}})
    assert [message.text for message in state.values["messages"]] == [QUESTION, "2 million."]
    assert state.next == ()


@pytest.mark.parametrize(
    ("nodes", "allow"),
    [
        ((one("I'm sorry, but I can't help with that."),), "refusal"),
        ((one(""),), "empty"),
        ((one(mood="gay"),), "state"),
        (({"messages": [AIMessage("Paris.", response_metadata={"finish_reason": "length"})]},), "truncated"),
    ],
)
async def test_an_answer_that_nobody_else_should_get_is_kept_only_where_the_owner_says_so(
    world: World, nodes: Any, allow: Any
) -> None:
    class State(MessagesState):
        mood: str

    graph = answering(*nodes, state=State)
    assert not await world.hits(graph, said(QUESTION), "a")
    assert not await world.hits(graph, said(QUESTION), "b")
    graph = answering(*nodes, state=State, allow=[allow])
    assert not await world.hits(graph, said(QUESTION), "a")
    assert await world.hits(graph, said(QUESTION), "b")


async def test_a_turn_with_several_answers_or_none_is_not_kept(world: World) -> None:
    for nodes in ((one("a"), one("b")), ({},), ({"messages": [HumanMessage("and?")]},)):
        await world.turn(answering(*nodes), said(QUESTION))
    shortened: Any = lambda state: {"messages": [RemoveMessage(id=state["messages"][0].id), AIMessage("b")]}  # noqa: E731
    await world.turn(answering(shortened), said(QUESTION))
    assert await world.entries() == 0
    assert world.cache.counts["unstored_messages"] == 4


async def test_what_was_invalidated_while_the_graph_ran_is_not_kept(world: World) -> None:
    builder = StateGraph(MessagesState)

    async def answer(state: Any) -> Any:
        await world.cache.invalidate(model="m")
        return one()

    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = cached_turns(builder.compile(checkpointer=InMemorySaver()), model="m", parameters={})
    await world.turn(graph, said(QUESTION))
    assert world.cache.counts["unstored_invalidated"] == 1
    assert await world.entries() == 0


async def test_an_entry_is_found_by_the_owners_tags_its_thread_and_its_assistant(world: World) -> None:
    graph = answering(lambda state: one(), tags=["geography"], ttl_ms=60_000)
    await world.turn(graph, said(QUESTION), "t1")
    (entry,) = (await world.cache.entries()).entries
    assert set(entry.tags) == {"geography", "assistant:g", "thread:t1"}
    assert entry.expires_in_ms is not None
    assert entry.expires_in_ms <= 60_000
    assert (entry.model, entry.prompt) == ("m", QUESTION)


async def test_nothing_is_waited_for_before_the_end_is_told(world: World) -> None:
    stored: list[int] = []
    graph = answering(lambda state: one())

    def look(event: TurnEvent) -> None:
        stored.append(world.cache.counts.get("stored", 0))

    await world.turn(graph, said(QUESTION), tell=look)
    assert set(stored) == {0}
    assert world.cache.counts["stored"] == 1


# A hit ---------------------------------------------------------------------------------------------------------------


async def test_nodes_behind_the_answer_are_not_left_waiting(world: World) -> None:
    graph = answering(lambda state: one(), {})
    assert not await world.hits(graph, said(QUESTION), "a")
    assert await world.hits(graph, said(QUESTION), "b")
    state = await graph.aget_state({"configurable": {"thread_id": "b"}})
    assert state.next == ()
    assert [message.text for message in state.values["messages"]] == [QUESTION, "Paris."]


async def test_a_state_that_is_not_given_out_is_not_told(world: World) -> None:
    class State(MessagesState):
        secret: str

    builder = StateGraph(State, output_schema=MessagesState)
    builder.add_node("answer", lambda state: one())
    builder.add_edge(START, "answer")
    graph = cached_turns(builder.compile(checkpointer=InMemorySaver()), model="m", parameters={})
    assert not await world.hits(graph, said(QUESTION, secret="s"), "a")
    events = await world.turn(graph, said(QUESTION, secret="s"), "b")
    told = [event.data for event in events if event.method == "values"]
    assert [list(values) for values in told] == [["messages"], ["messages"]]
    assert [len(values["messages"]) for values in told] == [1, 2]


async def test_a_hit_that_the_thread_does_not_take_is_answered_by_the_graph(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def route(state: Any) -> str:
        if "rtmem_cache" in state["messages"][-1].response_metadata:
            raise RuntimeError("an answer of somebody else")
        return "__end__"

    class State(MessagesState):
        notes: Annotated[list[str], operator.add]

    builder = StateGraph(State)
    builder.add_node("answer", lambda state: one())
    builder.add_edge(START, "answer")
    builder.add_conditional_edges("answer", route)
    graph = cached_turns(builder.compile(checkpointer=InMemorySaver()), model="m", parameters={})
    assert not await world.hits(graph, said(QUESTION, notes=["n"]), "a")
    assert not await world.hits(graph, said(QUESTION, notes=["n"]), "b")
    assert "goes on without the cache: RuntimeError: an answer of somebody else" in caplog.text
    state = await graph.aget_state({"configurable": {"thread_id": "b"}})
    assert [message.text for message in state.values["messages"]] == [QUESTION, "Paris."]
    assert state.values["notes"] == ["n"]  # given once, although the graph ran after all


async def test_an_answer_of_a_graph_within_the_graph_is_given_too(world: World) -> None:
    graph = cached_turns(nested(), model="m", parameters={})
    assert not await world.hits(graph, said("hello 3"), "a")
    assert await world.hits(graph, said("hello 3"), "b")
    assert not await world.hits(graph, said("again 1"), "b")
    state = await graph.aget_state({"configurable": {"thread_id": "b"}})
    assert len(state.values["messages"]) == 4
    assert state.next == ()


async def test_an_answer_that_was_streamed_is_given_as_it_was_stored(world: World) -> None:
    graph = cached_turns(chat(), model="m", parameters={})
    live = await world.turn(graph, said("hello 9"), "a")
    hit = await world.turn(graph, said("hello 9"), "b")

    def text(events: list[TurnEvent]) -> str:
        parts = [event.data for event in events if event.method == "messages"]
        return "".join(part["delta"]["text"] for part in parts if part["event"] == "content-block-delta")

    assert text(hit) == text(live)
    assert hit[1].data["payload"]["kind"] == "exact"
