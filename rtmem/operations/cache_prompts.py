"""What must be the same for a hit: the scope that a caller names, and what a prompt adds to it.

A scope fails closed. Model and parameters must be given; everything else that changes an answer is part of it, and
what cannot be written down is an error rather than left out. Each is written so that no two are written alike, and
hashed: nothing that people type reaches a key or a query.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import is_dataclass
from enum import Enum
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec
from blake3 import blake3
from langchain_core.messages import BaseMessage
from pydantic import BaseModel
from typing_extensions import is_typeddict

from rtmem.errors import InvalidRequestError

Conversation: TypeAlias = Literal["context", "last_turn"]
Prompt: TypeAlias = str | Sequence[BaseMessage | Mapping[str, Any] | tuple[str, Any]]

_ROLES: Final = {"user": "human", "assistant": "ai", "developer": "system"}
_DIGEST_BYTES: Final = 16
_SHORT_CHARACTERS: Final = 500
_LONG_CHARACTERS: Final = 4_096
_TOLD_OF_CALLS: Final = ("tool_calls", "invalid_tool_calls")
_CALL_IDS: Final = ("id", "tool_call_id", "tool_use_id", "call_id")
_CALL_BLOCKS: Final = ("tool_use", "tool_result", "tool_call", "function_call", "function_call_output")
_MESSAGE_FIELDS: Final = ("name", *_TOLD_OF_CALLS, "tool_call_id")


class CacheScope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose answers may be taken: those of the same model, asked in the same way.

    What is given is written down at once: changing a dictionary afterwards changes nothing.

    Raises InvalidRequestError: model or parameters are missing, or something cannot be written as JSON.
    """

    model: str = ""  # must be given
    parameters: Mapping[str, Any] | None = None  # must be given, {} if there are none: temperature, stop...
    system: str | None = None  # system prompt; those of a list of messages count too
    tools: Sequence[Any] = ()  # their schemas, or what LangChain makes schemas of
    response_format: Any = None
    conversation: Conversation = "context"  # whether all messages before the last one must be the same too
    digest: str = ""  # of all this; whatever is given for it is replaced

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model:
            raise InvalidRequestError(
                f"a scope's model is {self.model!r}: name the model whose answers these are, for an answer of another "
                "one is another answer"
            )
        if not isinstance(self.parameters, Mapping):
            raise InvalidRequestError(
                f"a scope's parameters are {self.parameters!r:.100}: give temperature, stop and whatever else changes "
                "an answer as a dictionary, or {} if nothing does"
            )
        if self.conversation not in get_args(Conversation):
            raise InvalidRequestError(f"a scope's conversation is {self.conversation!r}: context or last_turn")
        parts = {name: getattr(self, name) for name in self.__struct_fields__ if name != "digest"}
        msgspec.structs.force_setattr(self, "digest", digest_of("scope", parts))


class Question(msgspec.Struct, frozen=True):  # made for each look-up: 0.2 us, a frozen dataclass 1 us
    """A prompt, read."""

    entry_id: str  # 128 bits, as hex: of tenant, scope and the question's exact text
    scope: str  # the same of tenant, scope and whatever of the prompt belongs to it: what must be equal for a hit
    text: str  # of the last message
    why_exact_only: str  # empty if it can be compared by meaning


def read_question(tenant: str, prompt: Prompt, scope: CacheScope, characters_max: int) -> Question:
    """What is asked, and within which scope.

    Raises InvalidRequestError: no scope, or a prompt that is none.
    """
    if not isinstance(scope, CacheScope):
        raise InvalidRequestError(
            f"scope is a {type(scope).__name__}: give CacheScope(model=..., parameters={{...}}); without one, answers "
            "would leak between models and prompts"
        )
    if isinstance(prompt, str):
        read = _read_short if len(prompt) <= _SHORT_CHARACTERS else _read_text
        return read(tenant, prompt, scope.digest, characters_max)
    *before, last = _with_own_call_ids([_read_message(message) for message in _messages(prompt)])
    whole = _hashed("prompt", tenant, scope.digest, digest_of("context", _context(before, last, scope)))
    text, why = _text_of(last)
    if why:
        return Question(_hashed("message", whole, digest_of("message", last)), whole, text, why)
    return question_in(whole, text, characters_max)


def _read_text(tenant: str, text: str, digest: str, characters_max: int) -> Question:
    nothing_else = digest_of("context", ((), (), None))
    return question_in(_hashed("prompt", tenant, digest, nothing_else), text, characters_max)


_read_short = lru_cache(maxsize=2048)(_read_text)  # questions that come again: 0.2 us instead of 8


def question_in(whole: str, text: str, characters_max: int) -> Question:
    """A text that is asked within a scope of which its hash is known, as entries have it."""
    why = ""
    if not text.strip():
        why = "there is no text"
    elif len(text) > characters_max:
        why = f"it has {len(text)} characters, over text_characters_max ({characters_max})"
    return Question(_hashed("text", whole, text), whole, text, why)


def link(kind: Literal["s", "m", "g"], name: str) -> str:
    """What an entry is filed under: its scope as the caller named it (s), its model (m), a tag (g)."""
    return f"{kind}:{name}" if kind == "s" else f"{kind}:{_hashed(kind, name)}"


def _hashed(*parts: str) -> str:
    *front, last = parts
    # Only the last part may be of any length and have anything in it.
    text = "\n".join((*(part if len(part) <= 64 and "\n" not in part else _hashed(part) for part in front), last))
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest(_DIGEST_BYTES)


# Messages ------------------------------------------------------------------------------------------------------------


def _messages(prompt: Any) -> list[Any]:
    if isinstance(prompt, BaseMessage | Mapping):
        prompt = [prompt]
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray) or not prompt:
        raise InvalidRequestError(f"a prompt is {prompt!r:.100}: a string, or a list of messages that is not empty")
    return list(prompt)


def _read_message(message: Any) -> dict[str, Any]:
    """Role and content of a message, and what else of it a model sees. Ids are left out: they are made up."""
    if isinstance(message, BaseMessage):
        role = getattr(message, "role", None) or message.type  # a ChatMessage has a role of its own
        found: dict[str, Any] = {"content": message.content}
        found |= {name: value for name in _MESSAGE_FIELDS if (value := getattr(message, name, None))}
        if getattr(message, "status", "") == "error":
            found["status"] = "error"
        found |= _more_of(message)
    elif isinstance(message, Mapping) and ("role" in message or "type" in message):
        found = {name: value for name, value in message.items() if name not in ("id", "role", "type")}
        role = message.get("role", message.get("type"))
    elif isinstance(message, tuple | list) and len(message) == 2:
        role, content = message
        found = {"content": content}
    elif isinstance(message, str):
        role, found = "human", {"content": message}
    else:
        raise InvalidRequestError(
            f"a message is {message!r:.100}: a LangChain message, {{'role': ..., 'content': ...}} or (role, content)"
        )
    if not isinstance(role, str):
        raise InvalidRequestError(f"a message's role is {role!r:.100}: human, ai, system or tool")
    return {**found, "role": _ROLES.get(role, role)}


def _more_of(message: BaseMessage) -> dict[str, Any]:
    """What providers are given of a message beyond LangChain's own fields: audio, reasoning, an old call of a function.

    Not what stands in fields of its own too, nor what integrations note for themselves, by ids that are made up.
    """
    told = "tool_calls" if any(getattr(message, name, None) for name in _TOLD_OF_CALLS) else ""
    more = {
        name: value
        for name, value in message.additional_kwargs.items()
        if value is not None and name != told and not name.startswith("__")
    }
    call = more.pop("function_call", None)
    return ({"function_call": call} if call else {}) | ({"additional_kwargs": more} if more else {})


def _with_own_call_ids(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose calls of tools are numbered: what providers call them is made up, and says only what belongs
    together."""
    if not any(name in message for message in messages for name in (*_TOLD_OF_CALLS, "tool_call_id")):
        return messages
    numbers: dict[Any, str] = {}

    def number(part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part
        ids = {name: part[name] for name in _CALL_IDS if isinstance(part.get(name), str)}
        return {**part, **{name: numbers.setdefault(value, str(len(numbers))) for name, value in ids.items()}}

    numbered = []
    for message in messages:
        changed = number(message)
        for name in (*_TOLD_OF_CALLS, "content") if message["role"] != "human" else ():
            if isinstance(parts := message.get(name), list | tuple):
                # An id of anything else, a file say, is what it is about.
                changed[name] = [number(part) if name != "content" or _is_call(part) else part for part in parts]
        numbered.append(changed)
    return numbered


def _is_call(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") in _CALL_BLOCKS


def _context(before: list[dict[str, Any]], last: dict[str, Any], scope: CacheScope) -> tuple[Any, ...]:
    system = [message for message in before if message["role"] == "system"]
    others = before if scope.conversation == "context" else []
    if others[: len(system)] == system:
        others = others[len(system) :]  # all at its head, as they mostly are: counted already
    who = {name: value for name, value in last.items() if name not in ("role", "content")} or None
    return ([message.get("content") for message in system], others, who)


def _text_of(message: dict[str, Any]) -> tuple[str, str]:
    """The text of a human's message, and why it cannot be compared by meaning."""
    content = message.get("content")
    if message["role"] != "human":
        return _shown(content), f"its last message is of role {message['role']}"
    if isinstance(content, str):
        return content, ""
    if isinstance(content, Sequence) and all(_is_text(block) for block in content):
        if len(content) == 1:
            block = content[0]
            return block if isinstance(block, str) else block["text"], ""
        return _shown(content), "its last message has several parts"
    return _shown(content), "its last message has more than text"


def _is_text(block: Any) -> bool:
    if isinstance(block, str):
        return True
    return isinstance(block, Mapping) and set(block) == {"type", "text"} and isinstance(block["text"], str)


def _shown(content: Any) -> str:
    """What of a content can be shown to people."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, Sequence) else ()
    return "\n".join(
        block if isinstance(block, str) else str(block.get("text", ""))
        for block in blocks
        if isinstance(block, str | Mapping)
    )


# Writing down -------------------------------------------------------------------------------------------------------


_json: Final = json.JSONEncoder(ensure_ascii=False).encode  # of 1 MB of Cyrillic 3 ms; as \\u escapes 50


def digest_of(what: str, value: Any) -> str:
    """128 bits of a value, as hex. Raises InvalidRequestError for what cannot be written down."""
    try:
        text = _json(_written(value, what))
    except RecursionError as exc:
        raise InvalidRequestError(f"{what} is nested too deeply to be compared") from exc
    return _hashed(what, text)


def _written(value: Any, where: str) -> Any:
    """`value` as JSON in which no two look alike: dictionaries in order, and types told apart; 0 and 0.0 are one."""
    if isinstance(value, str) and len(value) > _LONG_CHARACTERS:
        return {"text": _hashed("text", str(value))}  # 1 MB: 3 ms, as JSON 20
    if isinstance(value, float) and value.is_integer() and not isinstance(value, Enum):
        return int(value)  # a temperature of 0.0 is one of 0; True, which is another word to a model, is no 1
    if value is None or (isinstance(value, str | bool | int | float) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Mapping):
        pairs = [[_written(key, where), _written(each, f"{where}.{key!s:.40}")] for key, each in value.items()]
        # Texts by themselves, as they nearly always are: in JSON, sorting took longer than all the rest.
        by_text = all(isinstance(pair[0], str) for pair in pairs)
        return {"map": sorted(pairs, key=itemgetter(0) if by_text else json.dumps)}
    if isinstance(value, list | tuple):
        return [_written(each, where) for each in value]
    if isinstance(value, AbstractSet):
        return {"set": sorted((_written(each, where) for each in value), key=_json)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, Enum):
        return {"enum": [type(value).__qualname__, _written(value.value, where)]}
    if isinstance(value, BaseMessage):
        return {"message": _written(_read_message(value), where)}
    return {"schema": _written(_schema_of(value, where), where)}


def _schema_of(value: Any, where: str) -> Any:
    """What a tool, a function or a type of an answer is to a model."""
    from langchain_core.utils.function_calling import convert_to_openai_tool

    try:
        if isinstance(value, type) and issubclass(value, BaseModel):
            return [value.__name__, value.model_json_schema()]
        if isinstance(value, BaseModel) and not hasattr(value, "args_schema"):
            # Its fields as they are: a dump would leave out what is excluded from it, and hide secrets.
            fields = {name: getattr(value, name) for name in type(value).model_fields}
            return [type(value).__name__, {**fields, **(value.model_extra or {})}]
        if callable(value) and not where.startswith(_TOOLS) and not _is_data_type(value):
            raise TypeError("of functions and classes only names can be told, and only a tool is no more than that")
        return convert_to_openai_tool(value)
    except Exception as exc:  # whatever a foreign schema raises, it is no scope
        raise InvalidRequestError(
            f"{where} has a {type(value).__name__}, which cannot be written down to be compared ({exc!s:.200}): give "
            "its JSON schema, or plain values"
        ) from exc


_TOOLS: Final = "scope.tools"


def _is_data_type(value: Any) -> bool:
    """Whether it is a tool of LangChain, or a class that is its fields."""
    return hasattr(value, "args_schema") or is_typeddict(value) or (isinstance(value, type) and is_dataclass(value))
