from __future__ import annotations

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from rtmem.agent.demo import prompt
from rtmem.agent.demo.model import RulesModel, reply
from rtmem.agent.demo.tools import TOOLS

ALL_TOOLS = frozenset(tool.name for tool in TOOLS)


def test_stream_yields_a_word_at_a_time_and_adds_up_to_the_answer() -> None:
    model = RulesModel()
    chunks = [str(chunk.text) for chunk in model.stream("hello")]
    assert "".join(chunks) == model.invoke("hello").text == "Hello! Ask me what I can do, or tell me your name."
    assert all(len(chunk.split()) <= 1 for chunk in chunks)


def test_a_tool_is_called_only_if_it_is_bound() -> None:
    asked = [HumanMessage("what is 6 * 7?")]
    assert RulesModel().bind_tools(TOOLS).invoke(asked).tool_calls == [
        {"name": "calculate", "args": {"expression": "6 * 7"}, "id": "call-0-0", "type": "tool_call"}
    ]
    assert RulesModel().invoke(asked).tool_calls == []


def test_streamed_tool_calls_merge_into_the_calls_of_invoke() -> None:
    model = RulesModel().bind_tools(TOOLS)
    asked = "what is 6 * 7? and what time is it?"
    merged = None
    for chunk in model.stream(asked):
        merged = chunk if merged is None else merged + chunk  # type: ignore[operator]
    assert merged is not None
    assert merged.tool_calls == model.invoke(asked).tool_calls
    assert [call["name"] for call in merged.tool_calls] == ["calculate", "current_time"]


def test_results_of_an_earlier_turn_do_not_answer_this_one() -> None:
    history = [
        HumanMessage("what is 1 + 1?"),
        AIMessage(
            "", tool_calls=[{"name": "calculate", "args": {"expression": "1 + 1"}, "id": "a", "type": "tool_call"}]
        ),
        ToolMessage("2", tool_call_id="a"),
        AIMessage("1 + 1 = 2."),
        HumanMessage("what is 2 + 2?"),
    ]
    assert [call["args"] for call in reply(history, ALL_TOOLS).tool_calls] == [{"expression": "2 + 2"}]


def test_answers_come_from_the_facts_in_the_prompt() -> None:
    system = SystemMessage(prompt.render({"name": ["Ann"], "likes": ["tea", "jazz"]}, prompt.MemoryStep()))
    said = reply([system, HumanMessage("what do you know about me?")], ALL_TOOLS)
    assert said.text == "Your name is Ann. You like tea; jazz."


def test_anything_else_gets_an_honest_answer_in_the_language_of_the_question() -> None:
    assert "no language model" in reply([HumanMessage("Why is the sky blue?")], ALL_TOOLS).text
    assert "без языковой модели" in reply([HumanMessage("Почему небо синее?")], ALL_TOOLS).text


def test_blocks_without_text_are_answered_too() -> None:
    picture = HumanMessage([{"type": "image", "base64": "AAAA", "mime_type": "image/png"}])
    assert "demo agent" in reply([picture], ALL_TOOLS).text
    assert "demo agent" in reply([], ALL_TOOLS).text
