"""Messages encoded by hand must be what the serialiser would have made of them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.operations import fingerprints
from rtmem.operations.fingerprints import pack_messages, prints_of
from rtmem.operations.serde import Serde

OFFICIAL = JsonPlusSerializer()
SERDE = Serde(OFFICIAL, 0)

texts = st.text(max_size=300)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, plain, max_size=3)
contents = texts | st.lists(texts | objects, max_size=3)
common = {
    "additional_kwargs": objects,
    "response_metadata": objects,
    "name": st.none() | texts,
    "id": st.none() | texts,
}
calls = st.fixed_dictionaries({"name": texts, "args": objects, "id": st.none() | texts, "type": st.just("tool_call")})
messages: st.SearchStrategy[AnyMessage] = (
    st.builds(HumanMessage, contents, **common)
    | st.builds(SystemMessage, contents, **common)
    | st.builds(AIMessage, contents, tool_calls=st.lists(calls, max_size=2), **common)
    | st.builds(ToolMessage, contents, tool_call_id=texts, artifact=plain, **common)
)


def both_ways(run: list[Any]) -> tuple[Any, Any]:
    packed = pack_messages(run)
    assert packed is not None
    return OFFICIAL.loads_typed(("msgpack", packed[0])), OFFICIAL.loads_typed(OFFICIAL.dumps_typed(run))


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, min_size=1, max_size=20))
def test_messages_are_read_as_if_the_serialiser_had_written_them(run: list[AnyMessage]) -> None:
    ours, official = both_ways(run)
    assert ours == official
    assert [list(one.__dict__) for one in ours] == [list(one.__dict__) for one in official]


@pytest.mark.parametrize("count", [1, 15, 16, 65_536])
def test_a_run_may_have_any_length(count: int) -> None:
    ours, official = both_ways([HumanMessage("a")] * count)
    assert ours == official


@pytest.mark.parametrize("size", [1, 100, 200, 65_000, 65_535, 65_536, 1_000_000])
def test_a_message_may_have_any_size(size: int) -> None:
    ours, official = both_ways([HumanMessage("a" * size)])
    assert ours == official


def test_what_was_put_into_a_message_afterwards_is_kept() -> None:
    message = AIMessage("a", tool_calls=[{"name": "search", "args": {"q": 1}, "id": "1", "type": "tool_call"}])
    message.content = ["a", {"type": "text", "text": "b"}]
    message.additional_kwargs["deep"] = {"er": [1, 2.5, None]}
    message.tool_calls[0]["args"]["q"] = 2
    ours, official = both_ways([message])
    assert ours == official == [message]


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("a", additional_kwargs={"when": datetime.date(2026, 1, 1)}),
        HumanMessage("a", additional_kwargs={"pair": (1, 2)}),
        HumanMessage("a", additional_kwargs={"number": {1: 2}}),
        HumanMessage("a\ud800"),
        HumanMessage("a", extra="field"),
        AIMessageChunk(content="a"),
        RemoveMessage(id="1"),
        {"role": "user", "content": "a"},
        "a",
    ],
)
def test_anything_but_plain_messages_is_left_to_the_serialiser(message: Any) -> None:
    run = [HumanMessage("before"), message]
    assert pack_messages(run) is None
    stored, prints = SERDE.dumps_run(run)
    assert stored == SERDE.dumps(run)
    assert prints == prints_of(run, SERDE.dumps)


def test_encoding_and_looking_up_find_the_same_fingerprint() -> None:
    run = [HumanMessage("a"), AIMessage("a"), ToolMessage("a", tool_call_id="1"), SystemMessage("a")]
    _, prints = SERDE.dumps_run(run)
    assert prints == prints_of(run, SERDE.dumps)
    assert len(set(prints)) == 4


def test_a_serialiser_of_ones_own_encodes_every_message_itself() -> None:
    class Shouting(JsonPlusSerializer):
        def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
            return super().dumps_typed([one.content.upper() for one in obj])

    serde = Serde(Shouting(), 0)
    stored, _ = serde.dumps_run([HumanMessage("quiet")])
    assert serde.loads(stored) == ["QUIET"]


def test_a_serialiser_that_reads_messages_otherwise_writes_them_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprints, "_frames", type(fingerprints._frames)())
    monkeypatch.setattr(fingerprints, "EXT_PYDANTIC_V2", fingerprints.EXT_PYDANTIC_V2 + 100)
    assert pack_messages([HumanMessage("a")]) is None
