from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from rtmem.agent.demo import RulesModel
from rtmem.agent.demo.tools import calculate
from rtmem.cli.states import Question, answer_to, is_yes_or_no, messages_of, questions_of, text_of, wording_of


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        ([{"type": "text", "text": "hel"}, {"type": "image", "url": "x"}, {"type": "text", "text": "lo"}], "hello"),
        (["hel", "lo"], "hello"),
        ([], ""),
        (None, ""),
    ],
)
def test_text_of_reads_every_shape_of_content(content: Any, text: str) -> None:
    assert text_of({"content": content}) == text


@pytest.mark.parametrize("state", [{}, {"values": None}, {"values": {"count": 1}}, {"values": {"messages": "none"}}])
def test_a_graph_without_messages_has_none(state: dict[str, Any]) -> None:
    assert messages_of(state) == []


def test_questions_of_a_state_are_those_of_all_its_tasks() -> None:
    state = {"tasks": [{"interrupts": [{"id": "a", "value": 1}]}, {"interrupts": []}, {"interrupts": [{"id": "b"}]}]}
    assert questions_of(state) == [Question("a", 1), Question("b", None)]
    assert questions_of({}) == []


@pytest.mark.parametrize(("words", "result"), [("yes", "6*7 = 42."), ("rather not", "with reason: rather not.")])
def test_langchains_own_approval_is_asked_and_answered(words: str, result: str) -> None:
    ask_first = HumanInTheLoopMiddleware(interrupt_on={"calculate": {"allowed_decisions": ["approve", "reject"]}})
    graph: Any = create_agent(RulesModel(), [calculate], middleware=[ask_first], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    paused = graph.invoke({"messages": [HumanMessage("what is 6*7?")]}, config)["__interrupt__"][0]
    question = Question(paused.id, paused.value)
    assert is_yes_or_no(question)
    assert "calculate" in wording_of(question)
    done = graph.invoke(Command(resume=answer_to(question, words)), config)
    assert str(done["messages"][-1].text).endswith(result)


def test_a_question_for_a_text_gets_the_words_as_they_are() -> None:
    question = Question("a", "What colour?")
    assert not is_yes_or_no(question)
    assert wording_of(question) == "What colour?"
    assert answer_to(question, "yes, blue") == "yes, blue"
