from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from rtmem.agent import demo
from rtmem.agent.demo.graph import FACT_VALUES_MAX


class Conversation:
    """One thread of the demo agent, in memory."""

    def __init__(self) -> None:
        self.graph = demo.graph(InMemorySaver())
        self.config: RunnableConfig = {"configurable": {"thread_id": "t"}}

    def say(self, text: str) -> str:
        return self._run({"messages": [HumanMessage(text)]})

    def decide(self, answer: object) -> str:
        return self._run(Command(resume=answer))

    @property
    def state(self) -> dict[str, Any]:
        return dict(self.graph.get_state(self.config).values)

    def _run(self, given: Any) -> str:
        result = self.graph.invoke(given, self.config)
        if interrupts := result.get("__interrupt__"):
            return f"? {interrupts[0].value['question']}"
        return str(result["messages"][-1].text)


@pytest.fixture
def conversation() -> Conversation:
    return Conversation()


def test_remembers_across_turns_and_forgets_on_request(conversation: Conversation) -> None:
    conversation.say("My name is Ann and I live in Oslo")
    assert conversation.say("What is my name?") == "Your name is Ann."
    conversation.say("My name is Eve")
    assert conversation.say("what do you know about me?") == "Your name is Eve. You live in Oslo."
    assert conversation.say("forget my name") == "I have forgotten your name."
    assert conversation.say("forget my name") == "There was nothing to forget: I do not know your name."
    assert conversation.say("who am I?") == "I do not know your name yet: you have not told me."


def test_understands_russian(conversation: Conversation) -> None:
    assert conversation.say("Меня зовут Анна") == "Приятно познакомиться, Анна. Я запомню ваше имя."
    assert conversation.say("Как меня зовут?") == "Вас зовут Анна."
    assert conversation.say("Сколько будет 6*7?") == "6*7 = 42."


def test_calls_a_real_tool(conversation: Conversation) -> None:
    assert conversation.say("what is 17 * 23?") == "17 * 23 = 391."
    asked, answered = conversation.state["messages"][1:3]
    assert asked.tool_calls[0]["name"] == "calculate"
    assert isinstance(answered, ToolMessage)
    assert answered.content == "391"


def test_a_refusing_tool_is_reported_and_the_turn_goes_on(conversation: Conversation) -> None:
    said = conversation.say("what is 1/0? what time is it in Nowhere/Land?")
    assert said == (
        "I cannot calculate that: division by zero has no result. "
        "Refused: 'Nowhere/Land' is no IANA time zone such as Europe/Berlin."
    )


def test_sends_only_after_approval(conversation: Conversation) -> None:
    assert conversation.say("send a message to Bob: see you at 5") == "? Send to Bob: see you at 5"
    assert "outbox" not in conversation.state
    assert conversation.decide("yes").startswith("The message to Bob is in the outbox.")
    assert conversation.state["outbox"] == [{"recipient": "Bob", "text": "see you at 5"}]


@pytest.mark.parametrize("answer", ["no", "", 0, {"approve": False}, {"what": "yes"}, "нет"])
def test_anything_but_a_yes_is_a_no(conversation: Conversation, answer: object) -> None:
    conversation.say("send a message to Bob: hi")
    assert conversation.decide(answer) == "I have not sent it: you declined."
    assert "outbox" not in conversation.state


@pytest.mark.parametrize("answer", [True, "Yes", "да", {"approve": True}, {"type": "approve"}])
def test_forget_everything_asks_then_removes_facts_and_words(conversation: Conversation, answer: object) -> None:
    conversation.say("My name is Ann")
    assert conversation.say("forget everything") == "? Forget every fact and this conversation so far?"
    assert conversation.decide("no") == "As you wish: I have kept everything."
    conversation.say("forget everything")
    assert conversation.decide(answer).startswith("Done.")
    assert conversation.state["facts"] == {}
    assert "Ann" not in str(conversation.state)


def test_a_message_to_somebody_else_is_not_a_fact_about_the_user(conversation: Conversation) -> None:
    conversation.say("send a message to Bob: my name is Eve")
    conversation.decide("yes")
    assert conversation.say("what is my name?").startswith("I do not know")


def test_facts_are_bounded(conversation: Conversation) -> None:
    for number in range(FACT_VALUES_MAX + 5):
        conversation.say(f"I like number {number}")
    assert conversation.state["facts"]["likes"] == [f"number {at}" for at in range(5, FACT_VALUES_MAX + 5)]


def test_an_empty_input_is_answered(conversation: Conversation) -> None:
    assert "demo agent" in conversation._run({"messages": []})


@pytest.mark.anyio
async def test_streams_its_answer_token_by_token() -> None:
    graph = demo.graph(InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    given: Any = {"messages": [HumanMessage("hello")]}
    tokens = [
        str(message.text)
        async for message, _ in graph.astream(given, config, stream_mode="messages")
        if isinstance(message, AIMessageChunk)
    ]
    assert "".join(tokens) == "Hello! Ask me what I can do, or tell me your name."
    assert len([token for token in tokens if token]) == 12
