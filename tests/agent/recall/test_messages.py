"""Graphs of one's own: a node in front of the model, and one at the end of the turn."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from rtmem.agent.recall import Recall, episode_node, recall_node
from tests.agent.offload.worlds import Scripted, say
from tests.agent.recall.worlds import World, memory_in


def graph(recall: Recall, model: Scripted) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("model", recall_node(recall) | model | (lambda answer: {"messages": [answer]}))
    builder.add_node("episode", episode_node(recall))
    builder.add_edge(START, "model").add_edge("model", "episode").add_edge("episode", END)
    return builder.compile(checkpointer=InMemorySaver())


def test_a_node_puts_memory_before_the_model_and_tells_the_stream(world: World) -> None:
    with world.memory() as memory:
        world.now(memory.write("Ann lives in Rome."))
        model = Scripted(turns=[say("In Rome."), say("Rome, I said.")])
        agent = graph(world.recall(memory), model)
        first = world.say(agent, "Where does Ann live?")
        again = world.say(agent, "Where does Ann live?")  # another turn, though the words are the same
        assert [event["status"] for event in first.recalls + again.recalls] == ["ok", "ok"]
        assert [len(memory_in(seen)) for seen in model.seen] == [1, 1]
        assert [message.type for message in again.messages] == ["human", "ai", "human", "ai"]
        assert not memory_in(again.messages)


def test_nothing_is_written_unless_the_policy_says_so(world: World) -> None:
    with world.memory() as memory:
        told = world.say(graph(world.recall(memory), Scripted(turns=[say("ok")])), "I moved to Rome today.")
        assert [event["name"] for event in told.events] == ["rtmem.recall"]
        assert world.now(memory.query()).facts == ()


def test_a_turn_is_written_as_an_episode_if_the_policy_says_so(world: World) -> None:
    with world.memory() as memory:
        recall = world.recall(memory, episodic_write="turn")
        own, _ = world.agent(recall, [say("ok")])
        for agent, thread_id in ((graph(recall, Scripted(turns=[say("ok")])), "t1"), (own, "t2")):
            told = world.say(agent, f"I moved to Rome in {thread_id}.", thread_id)
            (event,) = [event for event in told.events if event["name"] == "rtmem.episode"]
            assert event["status"] == "written"
            fact = world.now(memory.read(event["fact"]))
            assert (fact.text, fact.kind) == (f"I moved to Rome in {thread_id}.", "episodic")
            assert (fact.thread_id, fact.message_id, fact.position) == (thread_id, told.messages[0].id, 0)
            assert fact.writer == "turn"


def test_an_episode_that_cannot_be_written_does_not_stop_the_turn(world: World) -> None:
    with world.memory(url="redis://127.0.0.1:1/0") as memory:
        recall = world.recall(memory, episodic_write="turn")
        told = world.say(graph(recall, Scripted(turns=[say("ok")])), "I moved to Rome today.")
        assert told.messages[-1].text == "ok"
        (event,) = [event for event in told.events if event["name"] == "rtmem.episode"]
        assert event["status"] == "failed"
        assert "127.0.0.1" in event["reason"]
