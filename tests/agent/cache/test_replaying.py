"""An answer out of the cache looks like one of a model, and says that it is none."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata

from rtmem.agent.cache.replaying import events_of, message_of, pieces
from rtmem.cache import Hit
from rtmem.operations.cached_messages import CACHED

FACTS: dict[str, Any] = {"kind": "semantic", "distance": 0.05, "saved_ms": 800, "hit_id": "h"}
HIT = Hit(answer=None, prompt="p", created_ms=1, tags=(), entry_id="e", **FACTS)
USAGE = UsageMetadata(input_tokens=3, output_tokens=4, total_tokens=7)


@settings(max_examples=50)
@given(st.text())
def test_the_pieces_of_a_text_are_the_text(text: str) -> None:
    found = list(pieces(text))
    assert "".join(found) == text
    assert all(found)


def test_pieces_are_a_few_words_each() -> None:
    text = "Paris is the capital of France, and has been for a long time."
    assert list(pieces(text)) == ["Paris is the capital of", " France, and has been", " for a long time."]
    assert max(map(len, pieces("世界" * 200))) <= 24


def test_a_message_is_a_new_one_that_used_no_model() -> None:
    answer = AIMessage("Paris.", id="old", usage_metadata=USAGE, response_metadata={"model_name": "m"})
    first, second = message_of(answer, HIT), message_of(answer, HIT)
    assert len({answer.id, first.id, second.id}) == 3
    assert first.usage_metadata == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert first.response_metadata == {"model_name": "m", CACHED: {**FACTS, "usage": USAGE}}
    assert answer.usage_metadata == USAGE
    assert CACHED not in answer.response_metadata


def test_each_block_streams_in_pieces_and_ends_whole() -> None:
    blocks: list[Any] = [{"type": "text", "text": "word " * 20}, {"type": "text", "text": "and an end"}]
    events = list(events_of(AIMessage(blocks, id="m")))
    assert [event["event"] for event in events if event["event"] != "content-block-delta"] == [
        "message-start",
        *["content-block-start", "content-block-finish"] * 2,
        "message-finish",
    ]
    for index, block in enumerate(blocks):
        deltas = [
            each["delta"]["text"]
            for each in events
            if each["event"] == "content-block-delta" and each["index"] == index
        ]
        assert "".join(deltas) == block["text"]
        (end,) = [each for each in events if each["event"] == "content-block-finish" and each["index"] == index]
        assert end["content"]["text"] == block["text"]
