"""The tools with which a model looks into a value. No answer is longer than its bound, and each says how to go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import orjson
from langchain_core.tools import ToolException
from pydantic import BaseModel, Field

from rtmem.agent.offload.arguments import told_to_model
from rtmem.agent.offload.counts import Counter
from rtmem.errors import CorruptRecordError, InvalidRequestError, PointerNotFoundError
from rtmem.operations import pointer_reading, pointer_slices, pointers
from rtmem.operations.pointer_previews import printable, reading_unit
from rtmem.operations.pointers import PointerScope
from rtmem.records import Slice
from rtmem.steps import Steps

_FRAME_CHARACTERS: Final = 200  # what an answer has besides its content: a first line, and how to go on
_PLACE_CHARACTERS: Final = 40  # before each match
_MATCHES_MAX: Final = 20

Answer = Callable[..., Steps[str]]

_POINTER: Any = Field(description="mp_...")
_CONTINUATION: Any = Field("", description="from the last answer; other arguments unchanged")


class _Read(BaseModel):
    pointer: str = _POINTER
    unit: Literal["auto", "characters", "lines", "items", "rows"] = "auto"
    start: int = Field(0, description="from 0")
    count: int = Field(0, description="0: as many as fit")
    continuation: str = _CONTINUATION


class _Search(BaseModel):
    pointer: str = _POINTER
    pattern: str
    regex: bool = Field(False, description="RE2; else literal")
    ignore_case: bool = False
    continuation: str = _CONTINUATION


class _Select(BaseModel):
    pointer: str = _POINTER
    expression: str = Field(description="JMESPath, e.g. [?price < `10`].name | [0]")
    continuation: str = _CONTINUATION


def read(
    scope: PointerScope, characters_max: int, *, pointer: str, unit: Any, start: int, count: int, continuation: str
) -> Steps[str]:
    """A part of a value as text."""
    if unit == "auto":
        told = yield from pointers.describe(scope, pointer)
        unit = reading_unit(told)
        if unit is None:
            return f"{pointer} is {told.media_type}, which has no text to read: pass the pointer to a tool."
    room = characters_max - _FRAME_CHARACTERS
    part = yield from pointer_slices.slice_value(
        scope, pointer, unit, start, count or None, characters_max=room, continuation=continuation
    )
    return _framed(*_part(part), part.continuation)


def search(scope: PointerScope, characters_max: int, *, pointer: str, pattern: str, **more: Any) -> Steps[str]:
    """The places where a value has a pattern."""
    matches_max = min(_MATCHES_MAX, max(1, characters_max // 200))
    room = characters_max - _FRAME_CHARACTERS - matches_max * _PLACE_CHARACTERS
    found = yield from pointer_reading.search(
        scope, pointer, pattern, matches_max=matches_max, characters_max=room, **more
    )
    places = "\n".join(f"line {match.line}, character {match.start}: {match.text}" for match in found.matches)
    count = len(found.matches)
    looked = f"searched up to character {found.searched_characters:,} of {found.characters:,}"
    head = f"{count or 'no'} match{'es' * (count > 1)}, {looked}"
    return _framed(head, places, found.continuation)


def select(scope: PointerScope, characters_max: int, *, pointer: str, expression: str, continuation: str) -> Steps[str]:
    """What an expression selects."""
    room = characters_max - _FRAME_CHARACTERS
    found = yield from pointer_reading.select(
        scope, pointer, expression, characters_max=room, continuation=continuation
    )
    if not found.start and not found.continuation:
        return found.text
    head = f"characters {found.start:,}-{found.start + len(found.text):,} of {found.characters:,}"
    return _framed(head, found.text, found.continuation)


TOOLS: Final[dict[str, tuple[Answer, type[BaseModel], str]]] = {
    "read_pointer": (read, _Read, "Read a part of a value that was kept out of the conversation."),
    "search_pointer": (search, _Search, "Find text in a value that was kept out of the conversation."),
    "select_pointer": (select, _Select, "Query JSON that was kept out of the conversation."),
}
"""By name: what answers it, its arguments, and what the model is told of it."""


def answered(
    name: str, scope: PointerScope, characters_max: int, counter: Counter, arguments: dict[str, Any]
) -> Steps[str]:
    """The answer of one of these tools.

    Raises:
        ToolException: the model asked for something that is not there, or cannot be asked; says what it can do.
    """
    answer, _, _ = TOOLS[name]
    asked = {**arguments, "pointer": arguments["pointer"].strip()}
    try:
        # What reads a message next, a provider's client say, may fail at half a surrogate pair.
        text = printable((yield from answer(scope, characters_max, **asked)))
    except (PointerNotFoundError, CorruptRecordError) as exc:
        raise ToolException(told_to_model(exc, asked["pointer"], counter)) from exc
    except InvalidRequestError as exc:
        raise ToolException(str(exc)) from exc
    counter.add(refetches=1, refetched_characters=len(text))
    return text


def _framed(head: str, content: str, continuation: str) -> str:
    parts = [head, content] if content else [head]
    if continuation:
        parts.append(f"[more: the same call with continuation={continuation!r}]")
    return "\n".join(parts)


def _part(part: Slice) -> tuple[str, str]:
    """What a slice is, and its content."""
    if not part.count and not part.excerpt:
        return f"nothing from {part.start:,} on: the value has {part.total:,} {part.unit}", ""
    if part.excerpt:
        return f"{part.unit} {part.start:,} of {part.total:,} is too long for one answer; it begins", part.excerpt
    head = f"{part.unit} {part.start:,}-{part.start + part.count - 1:,} of {part.total:,} (counted from 0)"
    if isinstance(part.content, str):
        return head, part.content
    return head, "\n".join(_line(item) for item in part.content)


def _line(item: Any) -> str:
    return orjson.dumps(item, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
