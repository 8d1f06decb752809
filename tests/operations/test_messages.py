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
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.operations import messages as messages_module
from rtmem.operations.fingerprints import prints_of
from rtmem.operations.messages import FRAMES, pack_messages
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
    """What comes back, and what the serialiser alone would have given back."""
    packed = pack_messages(run)
    assert packed is not None
    official = OFFICIAL.loads_typed(OFFICIAL.dumps_typed(run))
    # Written by us and read by the serialiser, written by the serialiser and read by us, written and read by us.
    assert OFFICIAL.loads_typed(("msgpack", packed[0])) == official
    assert details(SERDE.loads(SERDE.dumps(run))) == details(official)
    stored, _ = SERDE.dumps_run(run)
    ours = SERDE.loads(stored)
    assert details(ours) == details(official)
    return ours, official


def details(run: list[Any]) -> list[Any]:
    """All that pydantic keeps of each message, the order of fields and keys included."""
    return [
        (
            type(one),
            repr(one.__dict__),
            one.__pydantic_fields_set__,
            one.__pydantic_extra__,
            one.__pydantic_private__,
            one.model_dump_json(warnings=False),
        )
        for one in run
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(messages, min_size=1, max_size=20))
def test_messages_are_read_as_if_the_serialiser_had_written_them(run: list[AnyMessage]) -> None:
    ours, official = both_ways(run)
    assert ours == official


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


def with_more_than_fields(message: BaseMessage) -> BaseMessage:
    message.__dict__["noted"] = "beside the fields"
    return message


@pytest.mark.parametrize(
    "message",
    [
        HumanMessage("a", additional_kwargs={"when": datetime.date(2026, 1, 1)}),
        HumanMessage("a", additional_kwargs={"pair": (1, 2)}),
        HumanMessage("a", additional_kwargs={"number": {1: 2}}),
        HumanMessage("a\ud800"),
        HumanMessage("a", extra="field"),
        with_more_than_fields(HumanMessage("a")),
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


def test_a_hook_of_ones_own_reads_every_message_itself() -> None:
    serializer = JsonPlusSerializer(__unpack_ext_hook__=lambda code, data: f"extension {code}")
    serde = Serde(serializer, 0)
    stored, _ = serde.dumps_run([HumanMessage("a")])
    assert serde.loads(stored) == serializer.loads_typed(serializer.dumps_typed([HumanMessage("a")])) == ["extension 5"]


@pytest.mark.parametrize("method", ["dumps_typed", "loads_typed"])
def test_a_serialiser_with_a_method_of_ones_own_is_asked_for_every_message(method: str) -> None:
    serializer = JsonPlusSerializer()
    asked: list[Any] = []
    official = getattr(serializer, method)
    setattr(serializer, method, lambda value: asked.append(value) or official(value))
    serde = Serde(serializer, 0)
    assert serde.loads(serde.dumps_run([HumanMessage("a")])[0]) == [HumanMessage("a")]
    assert len(asked) == 1


def test_a_serialiser_that_reads_messages_otherwise_writes_them_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(FRAMES) == {HumanMessage, AIMessage, SystemMessage, ToolMessage}
    monkeypatch.setattr(messages_module, "EXT_PYDANTIC_V2", 100)
    assert messages_module._frames() == {}


@pytest.mark.parametrize("cls", [HumanMessage, AIMessage, SystemMessage, ToolMessage])
def test_a_class_that_declares_something_new_is_left_to_the_serialiser(
    cls: type[BaseMessage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cls.__pydantic_decorators__.field_validators, "new", None)
    assert set(messages_module._frames()) == set(FRAMES) - {cls}


odd: list[Any] = [None, 1, 1.5, True, (), [], {}, "text", ["text", 1], [["text"]], {"a": 1}, b"bytes", [{"a": 1}, None]]
calls_odd: list[Any] = [
    [{"name": "a", "args": {}, "id": None}],
    [{"name": "a", "args": {}, "id": None, "type": "tool_call", "extra": 1}],
    [{"args": {}, "name": "a", "id": None, "type": "tool_call"}],
    [{"name": 1, "args": {}, "id": None, "type": "tool_call"}],
    [{"name": "a", "args": {1: 2}, "id": None, "type": "tool_call"}],
    [{"name": "a", "args": {}, "id": 5, "type": "tool_call"}],
    [{"name": "a", "args": {}, "id": "5", "type": "other"}],
    [{"name": "a", "args": "{}", "id": "5", "error": None, "type": "invalid_tool_call"}],
    [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
]
usages_odd: list[Any] = [
    {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3, "input_token_details": {"audio": 1, "more": 2}},
    {"total_tokens": 3, "output_tokens": 2, "input_tokens": 1},
    {"input_tokens": True, "output_tokens": 2.0, "total_tokens": "3"},
    {"input_tokens": 1},
]
fields_odd = [
    (field, value)
    for field in ("content", "additional_kwargs", "response_metadata", "type", "name", "id")
    for value in odd
] + [("additional_kwargs", {"tool_calls": value}) for value in (*odd, *calls_odd)]  # fmt: skip
of_ai = [(field, value) for field in ("tool_calls", "invalid_tool_calls") for value in (*odd, *calls_odd)]
of_ai += [("usage_metadata", value) for value in (*odd, *usages_odd)]
of_tool = [(field, value) for field in ("tool_call_id", "artifact", "status") for value in odd]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize(
    ("sample", "fields"),
    [
        (HumanMessage("a"), fields_odd),
        (SystemMessage("a"), fields_odd),
        (AIMessage("a"), fields_odd + of_ai),
        (ToolMessage("a", tool_call_id="1"), fields_odd + of_tool),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_validation_would_change_is_validated(sample: BaseMessage, fields: list[tuple[str, Any]]) -> None:
    """Messages that were made invalid in place, or written by somebody else."""
    for field, value in fields:
        message = sample.model_copy(deep=True)
        message.__dict__[field] = value
        written = OFFICIAL.dumps_typed([message])
        assert details(SERDE.loads(b"m" + written[1])) == details(OFFICIAL.loads_typed(written)), (field, value)
        assert details(SERDE.loads(SERDE.dumps_run([message])[0])) == details(OFFICIAL.loads_typed(written)), field


@pytest.mark.parametrize("drop", ["name", "id", "content", "additional_kwargs"])
def test_a_message_without_one_of_its_fields_is_validated(drop: str) -> None:
    message = HumanMessage("a", id="1")
    del message.__dict__[drop]
    written = OFFICIAL.dumps_typed([message])
    read = SERDE.loads(b"m" + written[1])
    assert [one.__dict__ for one in read] == [one.__dict__ for one in OFFICIAL.loads_typed(written)]
