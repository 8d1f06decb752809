"""Which answers are nobody else's."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from rtmem.operations.cache_answers import portable, restored, unwanted

REFUSALS = [
    "I'm sorry, but I can't help with that.",
    "I’m sorry, but I can’t assist with that request.",
    "Sorry, I can't do that.",
    "I cannot assist with creating malware.",
    "I can't provide medical advice.",
    "I am unable to answer this question.",
    "I'm not able to browse the internet.",
    "I must decline to write that.",
    "I won't help with this.",
    "As an AI language model, I cannot discuss this topic.",
    "As an AI, I don't have personal opinions.",
    "Unfortunately, I cannot share that information.",
    "I apologize, but I am not able to provide this.",
    "This request violates our content policy.",
    "К сожалению, я не могу помочь с этим запросом.",
    "Извините, но я не могу ответить на этот вопрос.",
    "Простите, я не могу выполнить эту просьбу.",
    "Я не могу предоставить эту информацию.",
    "Я не могу помочь вам с этим.",
    "Как языковая модель, я не могу обсуждать это.",
    "К сожалению, не могу помочь.",
    "Вынужден отказать в этой просьбе.",
    "I'm afraid I can't help with that.",
    "I cannot and will not explain this.",
    "I must respectfully decline.",
    "I'd rather not discuss that.",
    "I don't feel comfortable helping with that.",
    "I won't be able to help with that.",
    "I'm not going to help with this.",
    "That's not something I can help with.",
    "Sorry, this is something I can't help with.",
    "It is against my guidelines to answer this.",
    "My guidelines prevent me from answering.",
    "I appreciate your question, but I can't help with that.",
    "I'm designed to be helpful, but I can't assist with this.",
    "For safety reasons, I can't provide that.",
    "I cannot in good conscience help with that.",
    "I don't think I can help with that.",
    "I don't have access to your account.",
    "Your request was flagged by our content policy.",
    "Let's talk about something else.",
    "Не могу помочь с этим.",
    "Боюсь, я не могу с этим помочь.",
    "Увы, я не могу этого сделать.",
    "Прошу прощения, но я не могу выполнить этот запрос.",
    "Приношу извинения, но я не могу помочь.",
    "Я, к сожалению, не могу помочь.",
    "Я не могу и не буду помогать с этим.",
    "Я не могу давать медицинские советы.",
    "Я отказываюсь отвечать на этот вопрос.",
    "Я не вправе обсуждать это.",
    "Мне запрещено обсуждать эту тему.",
    "У меня нет доступа к вашим данным.",
    "К сожалению, у меня нет возможности ответить.",
    "Как ИИ, я не имею доступа к интернету.",
    "Это противоречит моим правилам.",
    "Давайте сменим тему.",
]
ANSWERS = [
    "Paris.",
    "Three hours.",
    "You can't divide by zero.",
    "I cannot recommend this book enough: it is splendid.",
    "Sorry is a board game for two to four players.",
    "I'm sorry to hear that. Here is what you can do: rest, and drink water.",
    "The error was found in 1987.",
    "Error correction codes were invented by Hamming.",
    "A ValueError is raised when an argument has the right type and a wrong value.",
    "500 Internal medicine departments were asked.",
    "Unfortunately, the train leaves at nine only.",
    "К сожалению, поезд уходит только в девять.",
    "Не могу не согласиться: это Париж.",
    "Извините за задержку. Ответ: 42.",
    "Я не могу представить себе лучшего города, чем Париж.",
    "Модель не может быть обучена без данных.",
    "As an AI company, we train models.",
    "Yes: 'I can't help with that' is what such models say.",
    "I'm not sure, but I believe that it was 1969.",
    "I know of two such books, but I have read only one.",
    "I can help with that! First, open the settings.",
    "That's something I can help with: open the settings.",
    "It is not something you should worry about.",
    "That is beyond the 30 days, so no refund is possible.",
    "I can't stress this enough: make a copy first.",
    "I won't lie: it is hard. Begin with C.",
    "I understand. Restart the router, then try again.",
    "Unfortunately, the bus has left, but you can walk.",
    "My instructions: mix flour and eggs, then bake.",
    "Это не может быть простым числом: оно делится на 3.",
    "Это противоречит второму закону термодинамики.",
    "Не могу сказать точно, но около сорока.",
    "Я не буду утомлять: ответ 42.",
    "К сожалению, у меня нет точных данных, но примерно 40 миллионов.",
    "Давайте поговорим о другом примере: пусть x = 2.",
    "Боюсь, что да.",
]
ERRORS = [
    "Traceback (most recent call last):\n  File ...",
    "Error code: 429 - {'error': ...}",
    "openai.RateLimitError: Rate limit reached",
    "Internal Server Error",
    "503 Service Unavailable",
    "TimeoutError: the model did not answer",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_a_refusal_is_one(text: str) -> None:
    assert unwanted(text) == "refusal"
    assert unwanted(AIMessage(f"\n{text}")) == "refusal"
    assert unwanted([Generation(text=text)]) == "refusal"


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_is_none(text: str) -> None:
    assert unwanted(text) is None
    assert unwanted(AIMessage(text)) is None


@pytest.mark.parametrize("text", ERRORS)
def test_an_error_is_one(text: str) -> None:
    assert unwanted(text) == "error"


CALL = {"name": "search", "args": {}, "id": "1"}
MESSAGES: list[tuple[Any, str | None]] = [
    (AIMessage("Paris", response_metadata={"finish_reason": "length"}), "truncated"),
    (AIMessage("Paris", response_metadata={"finish_reason": "content_filter"}), "truncated"),
    (AIMessage("Paris", response_metadata={"finish_reason": "SAFETY"}), "truncated"),
    (AIMessage("Paris", response_metadata={"stop_reason": "max_tokens"}), "truncated"),
    (AIMessage("Paris", response_metadata={"finish_reason": "FinishReason.MAX_TOKENS"}), "truncated"),
    (AIMessage("Paris", response_metadata={"done_reason": "length"}), "truncated"),
    (AIMessage("Paris", response_metadata={"status": "incomplete"}), "truncated"),
    (AIMessage("Paris", response_metadata={"stop_reason": "refusal"}), "refusal"),
    (AIMessage("Paris.", response_metadata={"finish_reason": "stop"}), None),
    (AIMessage("Paris.", response_metadata={"stop_reason": "end_turn", "status": "completed", "error": None}), None),
    (AIMessageChunk("Paris", response_metadata={"finish_reason": "length"}), "truncated"),
    (AIMessage("", additional_kwargs={"refusal": "I can't."}), "refusal"),
    (AIMessage([{"type": "refusal", "refusal": "no"}]), "refusal"),
    (AIMessage("Let me look.", tool_calls=[CALL]), "tool_calls"),
    (
        AIMessage("", invalid_tool_calls=[{**CALL, "args": "{", "error": "x"}]),
        "tool_calls",
    ),
    (AIMessage("x", additional_kwargs={"function_call": {"name": "a", "arguments": "{}"}}), "tool_calls"),
    (AIMessage("x", response_metadata={"stop_reason": "tool_use"}), "tool_calls"),
    (AIMessage(""), "empty"),
    (AIMessage([{"type": "text", "text": " "}]), "empty"),
    (AIMessage([{"type": "thinking", "thinking": "Hm."}]), "empty"),
    (
        AIMessage([{"type": "text", "text": "x"}, {"type": "tool_use", "id": "1", "name": "f", "input": {}}]),
        "tool_calls",
    ),
    (AIMessage([{"type": "text", "text": "Paris."}]), None),
    (AIMessage([{"type": "text", "text": "I cannot help with that."}]), "refusal"),
    (AIMessage([{"type": "image_url", "image_url": {"url": "x"}}]), None),
    (None, "empty"),
    ("", "empty"),
    (" \n", "empty"),
    (ValueError("x"), "error"),
    ({"messages": [HumanMessage("I can't help you."), AIMessage("Paris.")]}, None),
    ({"messages": [HumanMessage("x"), AIMessage("", tool_calls=[CALL])]}, "tool_calls"),
    ({"messages": [ToolMessage("x", tool_call_id="1", status="error"), AIMessage("Paris.")]}, "error"),
    ({"text": "", "title": "I cannot help with that."}, None),
    (42, None),
    (0, None),
    ([], None),
    ([ChatGeneration(message=AIMessage("x", tool_calls=[CALL]))], "tool_calls"),
    ([Generation(text="x", generation_info={"finish_reason": "length"})], "truncated"),
    (LLMResult(generations=[[Generation(text="")]]), "empty"),
]


@pytest.mark.parametrize(("answer", "reason"), MESSAGES, ids=lambda each: repr(each)[:70])
def test_metadata_of_providers_are_heeded(answer: Any, reason: str | None) -> None:
    assert unwanted(answer) == reason


def test_what_is_worst_is_said() -> None:
    assert unwanted([AIMessage("", tool_calls=[CALL]), AIMessage("I cannot help with that.")]) == "refusal"


def test_it_is_quick_and_safe_for_any_text() -> None:
    for text in (
        "a" * 1_000_000,
        "i" * 1_000_000,
        " " * 1_000_000 + "x",
        "sorry " * 100_000,
        "thank " * 100_000,
        "\x00",
        "\ud800",
    ):
        assert unwanted(text) in (None, "refusal")


@pytest.mark.parametrize(
    "answer",
    [
        [ChatGeneration(message=AIMessage("x", id="1"), generation_info={"a": 1})],
        [Generation(text="x"), ChatGeneration(message=AIMessage("y"))],
        [],
        "x",
        {"a": 1},
        [1, Generation(text="x")],
    ],
    ids=repr,
)
def test_generations_are_made_portable_and_come_back(answer: Any) -> None:
    assert restored(portable(answer)) == answer
