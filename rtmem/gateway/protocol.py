"""The agent streaming protocol on the wire: commands in, replies and events out, as JSON.

Words and shapes are those of PyPI `langchain-protocol`, spelled as the official SDKs spell them (snake_case, path
`/threads/{id}/stream/events`; the published CDDL differs). Unknown fields of a command are ignored, so that a newer
client still works. Nothing here knows a socket.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from rtmem.errors import (
    ConfigError,
    InvalidRequestError,
    MalformedFrameError,
    NoSuchInterruptError,
    NoSuchSubscriptionError,
    PointerNotFoundError,
    RtmemError,
    UnauthorizedError,
    UnknownCommandError,
    UnsupportedError,
)
from rtmem.records import TurnEvent


class SubscribeParams(msgspec.Struct, frozen=True):
    """Which events to send. `since` asks for those that the client has missed after this seq."""

    channels: tuple[str, ...]
    namespaces: tuple[tuple[str, ...], ...] | None = None
    depth: int | None = None
    since: int | None = None


class UnsubscribeParams(msgspec.Struct, frozen=True):
    subscription_id: str


class RunStartParams(msgspec.Struct, frozen=True):
    assistant_id: str
    input: Any = None
    config: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    multitask_strategy: str | None = None


class InputResponse(msgspec.Struct, frozen=True):
    interrupt_id: str
    response: Any = None
    namespace: tuple[str, ...] = ()


class InputRespondParams(msgspec.Struct, frozen=True):
    """One answer (interrupt_id, response) or several (responses)."""

    interrupt_id: str | None = None
    response: Any = None
    namespace: tuple[str, ...] = ()
    responses: tuple[InputResponse, ...] | None = None
    update: dict[str, Any] | None = None
    goto: Any = None
    config: dict[str, Any] = {}
    metadata: dict[str, Any] = {}

    def answers(self) -> dict[str, Any]:
        """What is answered, by interrupt id."""
        given = self.responses or ()
        if self.interrupt_id is not None:
            given = (*given, InputResponse(self.interrupt_id, self.response))
        if not given:
            raise MalformedFrameError("input.respond needs interrupt_id and response, or responses: add them")
        return {one.interrupt_id: one.response for one in given}


class StateGetParams(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = None
    offload_bytes_min: int | None = None  # rtmem's own: values of so many bytes or more come as pointers


class PrefetchParams(msgspec.Struct, frozen=True):
    """rtmem's own: what is known so far of a message that will come, such as a partial transcript."""

    text: Annotated[str, msgspec.Meta(max_length=16_000)]  # memory looks at the end of a long one


Params = SubscribeParams | UnsubscribeParams | RunStartParams | InputRespondParams | StateGetParams | PrefetchParams

_PARAMS: Final[Mapping[str, type[Params]]] = {
    "subscription.subscribe": SubscribeParams,
    "subscription.unsubscribe": UnsubscribeParams,
    "run.start": RunStartParams,
    "input.respond": InputRespondParams,
    "state.get": StateGetParams,
    "rtmem.prefetch": PrefetchParams,
}

CHANNELS: Final = frozenset(
    {"values", "updates", "messages", "tools", "lifecycle", "input", "checkpoints", "tasks", "custom"}
)


class Command(msgspec.Struct, frozen=True):
    """A command whose parameters have been understood."""

    id: int
    method: str
    params: Params


class _Envelope(msgspec.Struct, frozen=True):
    id: int
    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


# A RecursionError: JSON so deep that reading it would exhaust the stack.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)

_envelopes: Final = msgspec.json.Decoder(_Envelope)
_ids: Final = msgspec.json.Decoder(dict[str, Any])


def decode_command(frame: bytes | str) -> Command:
    """The command in `frame`.

    Raises:
        MalformedFrameError: not JSON, not a command, wrong parameters. `data["command_id"]` is the id if one was read.
        UnknownCommandError: well-formed, but not a command of this gateway.
    """
    try:
        envelope = _envelopes.decode(frame)
    except _UNREADABLE as exc:
        raise MalformedFrameError(
            f'a frame is not a command: {exc}: send {{"id": 1, "method": "...", "params": {{...}}}}',
            command_id=_id_of(frame),
        ) from exc
    shape = _PARAMS.get(envelope.method)
    if shape is None:
        raise UnknownCommandError(
            f"unknown command {envelope.method!r}: this gateway knows {', '.join(sorted(_PARAMS))}",
            command_id=envelope.id,
        )
    try:
        params = msgspec.json.decode(envelope.params, type=shape)
    except _UNREADABLE as exc:
        raise MalformedFrameError(f"{envelope.method}: {exc}: correct params", command_id=envelope.id) from exc
    if isinstance(params, SubscribeParams):
        _check_subscription(params, envelope.id)
    return Command(envelope.id, envelope.method, params)


def _check_subscription(params: SubscribeParams, command_id: int) -> None:
    for channel in params.channels:
        if channel not in CHANNELS and not channel.startswith("custom:"):
            known = ", ".join(sorted(CHANNELS))
            raise MalformedFrameError(
                f"subscription.subscribe: unknown channel {channel!r}: use {known} or custom:<name>",
                command_id=command_id,
            )
    if params.since is not None and params.since < 0:
        raise MalformedFrameError("subscription.subscribe: since is a seq, 0 or more", command_id=command_id)


def _id_of(frame: bytes | str) -> int | None:
    """The id of a frame that is not a command, so that its sender can match the error."""
    try:
        found = _ids.decode(frame).get("id")
    except _UNREADABLE:
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def success(command_id: int, result: Mapping[str, Any], *, applied_through_seq: int | None = None) -> bytes:
    """A reply. `applied_through_seq`: events after it are the command's consequences; subscribe from there."""
    reply: dict[str, Any] = {"type": "success", "id": command_id, "result": result}
    if applied_through_seq is not None:
        reply["meta"] = {"applied_through_seq": applied_through_seq}
    return encode(reply)


_CODES: Final[tuple[tuple[type[RtmemError], str], ...]] = (
    # The protocol's closed list of codes; the exact type of the error is in meta.
    (UnknownCommandError, "unknown_command"),
    (NoSuchInterruptError, "no_such_interrupt"),
    (NoSuchSubscriptionError, "no_such_subscription"),
    (UnsupportedError, "not_supported"),
    (UnauthorizedError, "permission_denied"),
    (InvalidRequestError, "invalid_argument"),
    (ConfigError, "invalid_argument"),
    # Not of the protocol: only /pointers/{id} answers so, which is none of its commands.
    (PointerNotFoundError, "no_such_pointer"),
)


def failure(command_id: int | None, error: RtmemError) -> bytes:
    """An error reply; with id None one that no command asked for."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "unknown_error")
    meta = {"error_type": type(error).__name__, "retryable": error.retryable}
    return encode({"type": "error", "id": command_id, "error": code, "message": error.message, "meta": meta})


def channel_of(event: TurnEvent) -> str:
    """The channel to subscribe to for `event`."""
    if event.method == "input.requested":
        return "input"
    if event.method == "custom" and isinstance(event.data, Mapping) and event.data.get("name"):
        return f"custom:{event.data['name']}"
    return event.method


def encode_event(event: TurnEvent, *, seq: int, event_id: str, timestamp_ms: int) -> bytes:
    """`event` as one JSON frame."""
    params: dict[str, Any] = {"namespace": event.namespace, "timestamp": timestamp_ms, "data": event.data}
    if event.node is not None:
        params["node"] = event.node
    if event.interrupts:
        params["interrupts"] = event.interrupts
    return encode({"type": "event", "event_id": event_id, "seq": seq, "method": event.method, "params": params})


def encode(value: Any) -> bytes:
    """`value` as JSON. Never fails on what a graph may put into its state."""
    try:
        return _encoder.encode(value)
    except Exception:  # noqa: BLE001 - a graph's own objects may fail in any way; its turn must not
        # Keys that are not strings, lone surrogates, a state that contains itself, an object whose repr fails.
        return _encoder.encode(_plain(value))


def _jsonable(value: Any) -> Any:
    """What msgspec cannot encode by itself: LangChain messages, pydantic models, anything else as its repr."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    try:
        return list(value)
    except TypeError:
        return repr(value)


_encoder: Final = msgspec.json.Encoder(enc_hook=_jsonable)


def _plain(value: Any, depth: int = 0) -> Any:
    """`value` in JSON's own types, whatever it is: slow, exact where JSON can be, readable where it cannot."""
    if depth > 64:
        return "..."
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, Mapping):
        return {str(_plain(key, depth + 1)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    try:
        return _plain(_jsonable(value), depth + 1)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(value).__name__}>"


def without_state(frame: bytes) -> bytes:
    """A values frame whose state is left out; `with_state` puts one in."""
    return with_state(frame, None)


def with_state(frame: bytes, values: Any) -> bytes:
    """A values frame, same seq and event_id, with `values` as its state."""
    event = _frames.decode(frame)
    event["params"]["data"] = values
    return encode(event)


_MERGEABLE: Final = {"text-delta": "text", "reasoning-delta": "reasoning", "tool-call-delta": "args"}
_frames: Final = msgspec.json.Decoder(dict[str, Any])


def merge_deltas(first: bytes, second: bytes) -> bytes | None:
    """Two event frames as one, if both are deltas of the same piece of the same message; else None.

    The merged frame carries the second's seq and event_id: a client that has it has both.
    """
    if b'"content-block-delta"' not in first or b'"content-block-delta"' not in second:
        return None
    older, newer = _frames.decode(first), _frames.decode(second)
    old, new = older["params"], newer["params"]
    delta = new["data"].get("delta", {})
    part = _MERGEABLE.get(delta.get("type", ""))
    same = (
        old["namespace"] == new["namespace"]
        and old["data"].get("event") == new["data"].get("event") == "content-block-delta"
        and all(old["data"].get(name) == new["data"].get(name) for name in ("id", "index"))
        and old["data"].get("delta", {}).get("type") == delta.get("type")
    )
    if part is None or not same:
        return None
    delta[part] = old["data"]["delta"].get(part, "") + delta.get(part, "")
    return encode(newer)


def decode_object(body: bytes) -> dict[str, Any]:
    """A JSON object that is not a command. Raises MalformedFrameError."""
    try:
        return _ids.decode(body)
    except _UNREADABLE as exc:
        raise MalformedFrameError(f"the body is not a JSON object: {exc}: correct it") from exc
