"""A graph's owner opts in: the policy travels with the graph."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from rtmem.agent.cache import CachedTurns, cached_turns
from rtmem.agent.served import CACHED_TURNS
from rtmem.errors import ConfigError, InvalidRequestError
from tests.gateway.graphs import Graph, approval, chat

OPTIONS: dict[str, Any] = {"model": "m", "parameters": {}}


def policy_of(graph: Graph) -> CachedTurns:
    found: CachedTurns = graph.config["configurable"][CACHED_TURNS]  # type: ignore[index, typeddict-item]
    return found


def test_the_policy_survives_what_is_done_to_a_graph() -> None:
    graph = cached_turns(chat(), tags=["geography"], **OPTIONS)
    policy = policy_of(graph)
    assert policy.tags == ("geography",)
    assert policy_of(graph.copy(update={"checkpointer": InMemorySaver(), "store": None})) is policy
    assert policy_of(graph.with_config(recursion_limit=7, configurable={"language": "en"})) is policy


def test_the_graph_that_was_given_stays_as_it_was() -> None:
    graph = chat()
    graph.config = {"configurable": {"language": "en"}}
    cached = cached_turns(graph, **OPTIONS)
    assert graph.config == {"configurable": {"language": "en"}}
    assert cached.config["configurable"]["language"] == "en"  # type: ignore[index, typeddict-item]


def test_a_graph_keeps_the_types_that_its_checkpoints_may_hold() -> None:
    graph = chat()
    graph._serde_allowlist = {("builtins", "complex")}
    assert cached_turns(graph, **OPTIONS)._serde_allowlist == {("builtins", "complex")}


def test_no_checkpoint_keeps_the_policy() -> None:
    saver = InMemorySaver()

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [("ai", "yes")]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    graph = cached_turns(builder.compile(checkpointer=saver), **OPTIONS)
    graph.invoke({"messages": [("user", "hi")]}, {"configurable": {"thread_id": "t"}})
    stored = list(saver.list(None))
    assert stored
    assert not any(CACHED_TURNS in str(each) for each in stored)


def test_the_node_that_answers_is_the_only_one_or_the_one_called_model() -> None:
    assert policy_of(cached_turns(chat(), **OPTIONS)).answer_node == "answer"
    with pytest.raises(ConfigError, match=r"'model'.*one of ask, after"):
        cached_turns(approval(), **OPTIONS)
    assert policy_of(cached_turns(approval(), answer_node="ask", **OPTIONS)).answer_node == "ask"


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ({"model": ""}, InvalidRequestError, "name the model"),
        ({"parameters": None}, InvalidRequestError, "parameters"),
        ({"conversation": "none"}, InvalidRequestError, "context or last_turn"),
        ({"channel": "massages"}, ConfigError, "no channel 'massages'.*messages"),
        ({"depends_on": ["mood"]}, ConfigError, "no channel 'mood'"),
        ({"answer_node": "tools"}, ConfigError, "one of answer"),
        ({"allow": ["everything"]}, ConfigError, "state.*tool_calls"),
        ({"allow": "state"}, ConfigError, "some of"),
        ({"shared": True, "allow": ["memory"]}, ConfigError, "told to others"),
        ({"shared": True, "conversation": "last_turn"}, ConfigError, "told to others"),
    ],
)
def test_what_is_wrong_is_said_when_the_graph_is_made(wrong: dict[str, Any], error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        cached_turns(chat(), **{**OPTIONS, **wrong})


def test_a_builder_is_told_to_compile_first() -> None:
    builder: Any = StateGraph(MessagesState)
    with pytest.raises(ConfigError, match=r"call \.compile\(\) first"):
        cached_turns(builder, **OPTIONS)
