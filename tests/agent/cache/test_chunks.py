"""An answer in chunks is that answer: whatever it is made of, put together again it is the stored message."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from rtmem.agent.cache.chunks import chunks_of, kept_result, kept_stream

USAGE: Any = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
BLOCKS: list[Any] = [
    {"type": "thinking", "thinking": "Hm, now.", "signature": "s1", "index": 0},
    {"type": "text", "text": "It is  a long text,\nin words. ", "index": 1, "annotations": [{"url": "u"}]},
    {"type": "image", "base64": "AAAA", "mime_type": "image/png", "index": 2},
    {"type": "text", "text": "and the end", "index": 3},
]
ANSWERS = {
    "words": AIMessage(
        "  It is\n\n12  o'clock, and it was so an hour ago. ",
        usage_metadata=USAGE,
        response_metadata={"finish_reason": "stop"},
    ),
    "nothing": AIMessage("", response_metadata={"finish_reason": "stop"}),
    "blocks": AIMessage(BLOCKS, response_metadata={"stop_reason": "end_turn"}),
    "blocks without an index": AIMessage([{"type": "text", "text": "a b c d e f"}, "and more", {"type": "text"}]),
    "calls of tools": AIMessage(
        "Wait",
        tool_calls=[
            {"name": "f", "args": {"x": [1, {"y": "ё"}]}, "id": "1", "type": "tool_call"},
            {"name": "f", "args": {}, "id": "2", "type": "tool_call"},
        ],
    ),
    "other fields": AIMessage("a", additional_kwargs={"parsed": {"x": 1}, "refusal": None}),
}


def joined(message: AIMessage) -> Any:
    chunks = list(chunks_of(message))
    whole = reduce(add, chunks)
    assert whole.text == message.text
    return message_chunk_to_message(whole.message)  # type: ignore[arg-type]


@pytest.mark.parametrize("message", ANSWERS.values(), ids=ANSWERS)
def test_chunks_are_together_the_message(message: AIMessage) -> None:
    again = joined(message)
    assert again.content == message.content
    assert again.tool_calls == message.tool_calls
    assert again.additional_kwargs == message.additional_kwargs
    assert again.response_metadata == message.response_metadata
    assert again.usage_metadata == message.usage_metadata


@settings(max_examples=50)
@given(st.text(max_size=300))
def test_no_character_of_a_text_is_lost(text: str) -> None:
    assert joined(AIMessage(text)).content == text
    assert joined(AIMessage([{"type": "text", "text": text, "index": 0}])).content == [
        {"type": "text", "text": text, "index": 0}
    ]


def test_text_comes_in_several_chunks_and_the_last_one_says_that_it_is() -> None:
    for name in ("words", "blocks"):
        chunks: list[Any] = [chunk.message for chunk in chunks_of(ANSWERS[name])]
        assert len(chunks) > 2
        assert [chunk.chunk_position for chunk in chunks] == [None] * (len(chunks) - 1) + ["last"]


def test_a_call_that_could_not_be_read_is_not_kept() -> None:
    wrong: Any = {"name": "f", "args": "{no json", "id": "1", "error": None, "type": "invalid_tool_call"}
    said = ChatGeneration(message=AIMessage("", invalid_tool_calls=[wrong]))
    assert kept_result(ChatResult(generations=[said])) is None
    chunk = ChatGenerationChunk(message=AIMessageChunk("", invalid_tool_calls=[wrong]))
    assert kept_stream([chunk]) is None


def test_what_is_kept_says_how_it_ended_and_has_no_id() -> None:
    said = ChatGeneration(message=AIMessage("a", id="run-1"), generation_info={"finish_reason": "length"})
    (message,) = kept_result(ChatResult(generations=[said], llm_output={"model_name": "tiny"})) or ()
    assert message.id is None
    assert message.response_metadata == {"finish_reason": "length", "model_name": "tiny"}
    assert len(kept_result(ChatResult(generations=[said, said])) or ()) == 2


def test_a_stream_is_kept_as_one_message() -> None:
    def chunk(text: str, **info: Any) -> ChatGenerationChunk:
        return ChatGenerationChunk(message=AIMessageChunk(text, id="run-1"), generation_info=info or None)

    (message,) = kept_stream([chunk("a "), chunk("b"), chunk("", finish_reason="stop")]) or ()
    assert type(message) is AIMessage
    assert (message.content, message.id, message.response_metadata) == ("a b", None, {"finish_reason": "stop"})
    assert kept_stream([]) is None
