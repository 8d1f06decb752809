"""A run of messages to JsonPlusSerializer's bytes and back, without pydantic.

A conversation is nearly all of what a saver stores. JsonPlusSerializer encodes a message in 3 us, most of them in
`model_dump`, and decodes it in 8, most of them in validation. Here a message of plain values is packed once (its
fingerprint is a hash of the same bytes) and put between two constants of its class; what is read back is checked to
be what validation would leave as it is. Whatever is not as expected goes the official way, message by message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2, JsonPlusSerializer
from xxhash import xxh3_128_digest

from rtmem.operations.fingerprints import EXACT, NOT_PLAIN, refuse, seeds

State = dict[str, Any]

_EXT_16, _EXT_32 = struct.Struct(">BHB").pack, struct.Struct(">BIB").pack  # heads of msgpack's `ext 16` and `ext 32`

_COMMON = ("content", "additional_kwargs", "response_metadata", "type", "name", "id")
_TOOL_CALL = ("name", "args", "id", "type")
_USAGE = ("input_tokens", "output_tokens", "total_tokens")


class _Frame(NamedTuple):
    """What stands around the state of a message of one class, and what its state has to look like."""

    cls: type[BaseMessage]
    before: bytes
    after: bytes
    fields: tuple[str, ...]
    fields_set: set[str]
    type: str
    is_valid: Callable[..., bool]


def _is_valid_ai(extra: State, calls: Any, invalid_calls: Any, usage: Any) -> bool:
    if type(calls) is not list or invalid_calls != []:
        return False
    # AIMessage makes tool calls out of those of the model's provider.
    valid = all(map(_is_tool_call, calls)) if calls else not extra.get("tool_calls")
    return valid and (usage is None or _is_usage(usage))


def _is_tool_call(call: Any) -> bool:
    if type(call) is not dict or tuple(call) != _TOOL_CALL:
        return False
    name, args, id_, kind = call.values()
    return (
        type(name) is str
        and type(args) is dict
        and all(type(key) is str for key in args)
        and (id_ is None or type(id_) is str)
        and kind == "tool_call"
    )


def _is_usage(usage: Any) -> bool:
    return type(usage) is dict and tuple(usage) == _USAGE and all(type(count) is int for count in usage.values())


def _is_valid_tool(extra: State, tool_call_id: Any, artifact: Any, status: Any) -> bool:
    return type(tool_call_id) is str and status in ("success", "error")


def _is_valid_other(extra: State) -> bool:
    return True


# Everything that is known of the classes: a sample, what they declare beside the common fields, their validators.
_KNOWN: list[tuple[BaseMessage, tuple[str, ...], set[str], Callable[..., bool]]] = [
    (HumanMessage("sample"), (), set(), _is_valid_other),
    (SystemMessage("sample"), (), set(), _is_valid_other),
    (
        AIMessage("sample"),
        ("tool_calls", "invalid_tool_calls", "usage_metadata"),
        {"_backwards_compat_tool_calls"},
        _is_valid_ai,
    ),
    (
        ToolMessage("sample", tool_call_id="sample"),
        ("tool_call_id", "artifact", "status"),
        {"coerce_args"},
        _is_valid_tool,
    ),
]


def _frames() -> dict[type, _Frame]:
    """The frames of those classes that are as known in the installed langchain-core and langgraph-checkpoint."""
    found: dict[type, _Frame] = {}
    official = JsonPlusSerializer(allowed_msgpack_modules=None)
    for sample, more, validators, is_valid in _KNOWN:
        cls, fields = type(sample), (*_COMMON, *more)
        decorators = cls.__pydantic_decorators__
        before = b"\x94" + ormsgpack.packb(cls.__module__) + ormsgpack.packb(cls.__name__)
        after = ormsgpack.packb("model_validate_json")
        state = ormsgpack.packb(sample.__dict__)
        packed = ormsgpack.packb(ormsgpack.Ext(EXT_PYDANTIC_V2, before + state + after))
        if (
            tuple(cls.model_fields) == tuple(sample.__dict__) == fields
            and set(decorators.model_validators) == validators
            and not decorators.field_validators
            and not decorators.root_validators
            and official.loads_typed(("msgpack", packed)) == sample
        ):
            found[cls] = _Frame(cls, before, after, fields, set(fields), sample.type, is_valid)
    return found


FRAMES = _frames()

# The second byte of a frame is the length of its module's name, by chance another one for each class.
_BY_SECOND_BYTE = {frame.before[1]: frame for frame in FRAMES.values()}


def pack_messages(run: list[Any]) -> tuple[bytes, list[bytes]] | None:
    """`run` as JsonPlusSerializer's msgpack, and the fingerprint of each message; None unless all are plain ones."""
    packed, prints = [_array_head(len(run))], []
    add, pack, hashed, short, long = packed.append, ormsgpack.packb, xxh3_128_digest, _EXT_16, _EXT_32
    for element in run:
        cls = type(element)
        frame = FRAMES.get(cls)
        # What is in __dict__ beside the fields, as __dict__.update() leaves it, is not stored by the serialiser.
        if frame is None or element.__pydantic_extra__ or len(element.__dict__) != len(frame.fields):
            return None
        try:
            state = pack(element.__dict__, refuse, EXACT)
        except NOT_PLAIN:
            return None
        prints.append(hashed(state, seeds[cls]))
        length = len(frame.before) + len(state) + len(frame.after)
        add(short(0xC8, length, EXT_PYDANTIC_V2) if length < 1 << 16 else long(0xC9, length, EXT_PYDANTIC_V2))
        add(frame.before)
        add(state)
        add(frame.after)
    return b"".join(packed), prints


def _array_head(length: int) -> bytes:
    if length < 16:
        return bytes((0x90 | length,))
    return struct.pack(">BH", 0xDC, length) if length < 1 << 16 else struct.pack(">BI", 0xDD, length)


def unpacker(official: Callable[[tuple[str, bytes]], Any]) -> Callable[[bytes], Any]:
    """A decoder of JsonPlusSerializer's msgpack; what is no plain message is left to `official` (its loads_typed)."""

    def one(code: int, data: bytes) -> Any:
        message = _message(data) if code == EXT_PYDANTIC_V2 else None
        if message is None:
            return official(("msgpack", ormsgpack.packb(ormsgpack.Ext(code, data))))
        return message

    return partial(ormsgpack.unpackb, ext_hook=one, option=ormsgpack.OPT_NON_STR_KEYS)


def _message(data: bytes) -> BaseMessage | None:
    frame = _BY_SECOND_BYTE.get(data[1])
    if frame is None or not data.startswith(frame.before):
        return None
    try:
        # Without ext_hook: a message that holds an object is decoded the official way.
        state = ormsgpack.unpackb(data[len(frame.before) : -len(frame.after)], option=ormsgpack.OPT_NON_STR_KEYS)
    except ormsgpack.MsgpackDecodeError:
        return None
    if type(state) is not dict or tuple(state) != frame.fields or not _is_valid(frame, *state.values()):
        return None
    # What pydantic's own constructor leaves behind.
    message = frame.cls.__new__(frame.cls)
    _set(message, "__dict__", state)
    _set(message, "__pydantic_fields_set__", frame.fields_set.copy())
    _set(message, "__pydantic_extra__", {})
    _set(message, "__pydantic_private__", None)
    return message


_set = object.__setattr__


def _is_valid(
    frame: _Frame, content: Any, extra: Any, metadata: Any, kind: Any, name: Any, id_: Any, *more: Any
) -> bool:
    """Whether validation would leave these values as they are."""
    return (
        (type(content) is str or (type(content) is list and all(type(part) in (str, dict) for part in content)))
        and type(extra) is dict
        and type(metadata) is dict
        and kind == frame.type
        and (name is None or type(name) is str)
        and (id_ is None or type(id_) is str)
        and frame.is_valid(extra, *more)
    )
