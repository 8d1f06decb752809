"""Frames in and out, without a socket."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Interrupt
from pydantic import BaseModel

from rtmem.errors import (
    GraphNotFoundError,
    MalformedFrameError,
    NoSuchInterruptError,
    NoSuchSubscriptionError,
    RtmemError,
    RunInProgressError,
    ServerUnavailableError,
    UnauthorizedError,
    UnknownCommandError,
    UnsupportedError,
)
from rtmem.gateway import protocol
from rtmem.gateway.protocol import InputRespondParams, RunStartParams, SubscribeParams
from rtmem.records import TurnEvent


def command(method: str, **params: Any) -> bytes:
    return json.dumps({"id": 1, "method": method, "params": params}).encode()


def test_what_the_python_sdk_sends_first_is_understood() -> None:
    frame = b'{"id":1,"method":"subscription.subscribe","params":{"channels":["lifecycle","input"],"since":7}}'
    assert protocol.decode_command(frame).params == SubscribeParams(("lifecycle", "input"), since=7)


def test_fields_that_a_newer_client_sends_are_ignored() -> None:
    decoded = protocol.decode_command(command("run.start", assistant_id="a", input=1, langsmith_tracer={}, new=1))
    assert decoded.params == RunStartParams("a", 1)
    assert protocol.decode_command(b'{"id": 1, "method": "state.get", "new": 1}').method == "state.get"


def test_one_answer_and_several_answers_are_told_alike() -> None:
    one = protocol.decode_command(command("input.respond", interrupt_id="i", response=1, namespace=[])).params
    many = protocol.decode_command(
        command("input.respond", responses=[{"interrupt_id": "i", "response": 1, "namespace": []}])
    ).params
    assert isinstance(one, InputRespondParams)
    assert isinstance(many, InputRespondParams)
    assert one.answers() == many.answers() == {"i": 1}
    with pytest.raises(MalformedFrameError):
        InputRespondParams().answers()


@pytest.mark.parametrize(
    "frame", [b"", b"{}", b"null", b"1", b'{"id": true, "method": "state.get"}', b"\xff", b'{"id": 1']
)
def test_what_is_no_command_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        protocol.decode_command(frame)


def test_an_unknown_command_lists_the_known_ones() -> None:
    with pytest.raises(UnknownCommandError, match=r"input\.respond, rtmem\.prefetch, run\.start, state\.get, sub"):
        protocol.decode_command(command("run.cancel"))


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (MalformedFrameError("x"), "invalid_argument", False),
        (UnknownCommandError("x"), "unknown_command", False),
        (GraphNotFoundError("x"), "invalid_argument", False),
        (NoSuchInterruptError("x"), "no_such_interrupt", False),
        (NoSuchSubscriptionError("x"), "no_such_subscription", False),
        (UnsupportedError("x"), "not_supported", False),
        (UnauthorizedError("x"), "permission_denied", False),
        (RunInProgressError("x"), "unknown_error", True),
        (ServerUnavailableError("x"), "unknown_error", True),
    ],
)
def test_an_error_has_the_protocols_code_and_its_own_type(error: RtmemError, code: str, retryable: bool) -> None:
    from langchain_protocol import protocol as words

    reply = json.loads(protocol.failure(3, error))
    assert (reply["type"], reply["id"], reply["error"], reply["message"]) == ("error", 3, code, "x")
    assert reply["meta"] == {"error_type": type(error).__name__, "retryable": retryable}
    assert f"'{code}'" in str(words.ErrorCode)


class Colour(enum.Enum):
    RED = "red"


class Model(BaseModel):
    name: str


@dataclasses.dataclass
class Point:
    x: int


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("not even a repr")


class Lazy:
    def __iter__(self) -> Any:
        return iter([1, 2])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"n": 1, "t": (1, 2), "s": {3}}, {"n": 1, "t": [1, 2], "s": [3]}),
        (Point(1), {"x": 1}),
        (Model(name="m"), {"name": "m"}),
        (Colour.RED, "red"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime.date(2020, 1, 2), "2020-01-02"),
        (decimal.Decimal("1.5"), "1.5"),
        (float("nan"), None),
        (b"bytes", "Ynl0ZXM="),
        ({1: "int", (1, 2): "tuple", None: "none"}, {"1": "int", "[1, 2]": "tuple", "None": "none"}),
        ("lone \ud83d surrogate", "lone ? surrogate"),
        ({"lone \ud83d": 1}, {"lone ?": 1}),
        (2**70, 2**70),
        (ValueError("why"), "ValueError: why"),
        (Lazy(), [1, 2]),
        pytest.param(Odd(), "<Odd>", id="no repr"),
        (Interrupt(value={"q": 1}, id="i"), {"value": {"q": 1}, "id": "i", "response_schema": None}),
    ],
)
def test_whatever_a_graph_has_in_its_state_can_be_told(value: Any, expected: Any) -> None:
    assert json.loads(protocol.encode({"value": value})) == {"value": expected}


def test_a_state_that_contains_itself_ends() -> None:
    state: dict[str, Any] = {}
    state["self"] = state
    assert json.loads(protocol.encode(state))["self"]["self"]


def test_messages_are_told_as_the_sdks_know_them() -> None:
    told = json.loads(protocol.encode([HumanMessage("hi", id="1"), AIMessage("yo", id="2")]))
    assert [(message["type"], message["content"], message["id"]) for message in told] == [
        ("human", "hi", "1"),
        ("ai", "yo", "2"),
    ]


def test_an_event_frame_has_the_protocols_shape() -> None:
    event = TurnEvent("values", {"a": 1}, ("child:1",), interrupts=(Interrupt(value=1, id="i"),))
    frame = json.loads(protocol.encode_event(event, seq=7, event_id="e", timestamp_ms=9))
    assert frame == {
        "type": "event",
        "event_id": "e",
        "seq": 7,
        "method": "values",
        "params": {
            "namespace": ["child:1"],
            "timestamp": 9,
            "data": {"a": 1},
            "interrupts": [{"value": 1, "id": "i", "response_schema": None}],
        },
    }


@pytest.mark.parametrize(
    ("event", "channel"),
    [
        (TurnEvent("values", {}), "values"),
        (TurnEvent("input.requested", {}), "input"),
        (TurnEvent("custom", {"payload": 1}), "custom"),
        (TurnEvent("custom", {"name": "n", "payload": 1}), "custom:n"),
    ],
)
def test_an_events_channel_is_the_one_the_sdks_infer(event: TurnEvent, channel: str) -> None:
    from langgraph_sdk.stream.subscription import infer_channel

    assert protocol.channel_of(event) == channel
    assert infer_channel({"method": event.method, "params": {"data": event.data}}) == channel  # type: ignore[arg-type,typeddict-item]
