"""What stands in a conversation in place of a large tool result.

    the result is                     over the limit it becomes
    text                              a preview with a pointer to it
    JSON (lists, dicts, numbers)      the same; tools get lists and dicts back
    a table, an array, bytes          always a pointer, as no text would be all of it
    content blocks                    a preview of their texts; images and files stay, models take them as such
    another object                    a pointer to the text that the model would have read
    (content, artifact)               each by itself; a large artifact becomes its pointer's record, as a dict
    ToolMessage, Command              itself, with its content (its tool messages) treated like results
    an error                          itself

A value that cannot be kept (quota, size) is cut, and the model is told so: the tool has done its work, and failing now
would lose that too. Errors of Redis rise, like those of the saver beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import orjson
import ormsgpack
from langchain_core.messages import ToolMessage
from langchain_core.messages.tool import ToolOutputMixin
from langchain_core.tools.base import TOOL_MESSAGE_BLOCK_TYPES
from langgraph.types import Command

from rtmem.agent.offload.counts import Counter
from rtmem.errors import InvalidRequestError, QuotaExceededError, TooLargeError
from rtmem.operations.pointer_previews import cut, json_head, printable, render
from rtmem.operations.pointer_uploads import offload
from rtmem.operations.pointers import PointerScope
from rtmem.records import Pointer
from rtmem.steps import Steps

# With these, ormsgpack takes nothing but the types that JSON has (and bytes).
_PLAIN_TYPES_ONLY: Final = (
    ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_UUID
)
_TABLE_LIBRARIES: Final = frozenset(("numpy", "pandas", "pyarrow"))


@dataclass(frozen=True, slots=True)
class Results:
    """How the results of one call of a tool are treated."""

    scope: PointerScope
    counter: Counter
    characters_max: int  # the longest result that stays
    tools: Collection[str]  # with which the model can look into a value
    name: str
    thread_id: str | None  # that pins what is offloaded; without one, it lives as long as the settings say
    ttl_ms: int | None = None  # or at least so long

    def replaced(self, result: Any, *, has_artifact: bool) -> Steps[Any]:
        """What a tool returns to its caller, in place of `result`."""
        if has_artifact and type(result) is tuple and len(result) == 2:
            content = yield from self._content(result[0])
            return content, (yield from self._artifact(result[1]))
        return (yield from self._content(result))

    def _content(self, value: Any) -> Steps[Any]:
        if isinstance(value, ToolMessage):
            return (yield from self._message(value))
        if isinstance(value, Command):
            return (yield from self._command(value))
        if type(value) is list and value and all(isinstance(item, ToolOutputMixin) for item in value):
            return (yield from self._each(value))
        if _are_blocks(value):
            return (yield from self._blocks(value))
        if is_table(value) or type(value) is bytes or longer_than(value, self.characters_max):
            return (yield from self._preview(as_kept(value)))
        return value

    def _message(self, message: ToolMessage) -> Steps[ToolMessage]:
        if message.status == "error":
            return message
        content = yield from self._content(message.content)
        artifact = yield from self._artifact(message.artifact)
        if content is message.content and artifact is message.artifact:
            return message
        return message.model_copy(update={"content": content, "artifact": artifact})

    def _command(self, command: Command[Any]) -> Steps[Command[Any]]:
        """The tool messages of a Command; what else it does to the state is the tool's own business."""
        if not isinstance(command.update, dict):
            return command
        update: dict[str, Any] = {}
        for channel, value in command.update.items():
            if isinstance(value, ToolMessage):
                update[channel] = yield from self._message(value)
            elif type(value) is list and any(isinstance(item, ToolMessage) for item in value):
                update[channel] = yield from self._each(value)
            else:
                update[channel] = value
        return replace(command, update=update)

    def _each(self, values: list[Any]) -> Steps[list[Any]]:
        treated = []
        for value in values:
            treated.append((yield from self._content(value)) if isinstance(value, ToolOutputMixin) else value)
        return treated

    def _blocks(self, blocks: list[Any]) -> Steps[list[Any]]:
        """One preview for all texts among content blocks, before the blocks of other kinds."""
        texts = [block for block in blocks if not _is_medium(block)]
        if not longer_than(texts, self.characters_max):
            return blocks
        alone = texts[0] if type(texts[0]) is str else texts[0].get("text")
        shown = yield from self._preview(alone if len(texts) == 1 and type(alone) is str else as_kept(texts))
        return [{"type": "text", "text": shown}, *(block for block in blocks if _is_medium(block))]

    def _preview(self, value: Any) -> Steps[Any]:
        try:
            pointer = yield from self._offload(value)
        except (QuotaExceededError, TooLargeError) as exc:
            self.counter.add(refused=1)
            why = "no room is left for it" if isinstance(exc, QuotaExceededError) else "it is too large"
            begin = printable(_beginning(value, self.characters_max // 2))
            return f"{begin}\n[cut here; the rest is not kept, as {why}: ask for less]"
        except InvalidRequestError:
            # A table or array of a kind that nothing can store: what LangChain makes of it is all there is.
            text = value if type(value) is str else str(value)
            return value if text is value or len(text) <= self.characters_max else (yield from self._preview(text))
        shown = render(pointer, tools=self.tools)
        self.counter.offloaded(pointer, shown)
        return shown

    def _artifact(self, artifact: Any) -> Steps[Any]:
        """An artifact costs no tokens, but lies in each checkpoint: a large one becomes the record of its pointer."""
        large = is_table(artifact) or longer_than(artifact, self.characters_max)
        if artifact is None or not large:
            return artifact
        try:
            pointer = yield from self._offload(artifact)
        except (QuotaExceededError, InvalidRequestError):
            return artifact
        self.counter.offloaded(pointer, "")
        return {"type": "rtmem_pointer", **msgspec.to_builtins(pointer)}

    def _offload(self, value: Any) -> Steps[Pointer]:
        return (
            yield from offload(
                self.scope, value, thread_id=self.thread_id, ttl_ms=self.ttl_ms, name=f"{self.name} result"
            )
        )


def _beginning(value: Any, characters_max: int) -> str:
    # Never `str` of all of a large value; that of a table shows a part of it.
    if type(value) in (list, dict):
        return json_head(value, characters_max)
    return f"{len(value):,} bytes" if type(value) is bytes else cut(str(value), characters_max)


def _are_blocks(value: Any) -> bool:
    """What LangChain takes for message content and not for JSON; a list of strings is JSON to us."""
    return (
        type(value) is list
        and all(
            type(item) is str or (type(item) is dict and item.get("type") in TOOL_MESSAGE_BLOCK_TYPES) for item in value
        )
        and any(type(item) is dict for item in value)
    )


def _is_medium(block: Any) -> bool:
    """An image or file that a model takes as such."""
    return type(block) is dict and block.get("type") in _MEDIA and not _CONTENT.isdisjoint(block)


_MEDIA: Final = frozenset(("image", "image_url", "audio", "video", "file", "document"))
_CONTENT: Final = frozenset(("base64", "url", "data", "source", "image_url", "file_id", "file"))


def is_table(value: Any) -> bool:
    """A table or array, of which `str` shows a part."""
    library = type(value).__module__.partition(".")[0]
    return library in _TABLE_LIBRARIES and (getattr(value, "ndim", 0) >= 1 or hasattr(value, "num_rows"))


def longer_than(value: Any, characters_max: int) -> bool:
    """Whether a value would take more characters in a message. Looks at no more of it than it takes to know."""
    if type(value) is str:
        return len(value) > characters_max
    room = characters_max
    waiting = [value]
    while waiting:
        item = waiting.pop()
        room -= 2  # brackets, quotes, a comma
        if isinstance(item, (str, bytes)):
            room -= len(item)
        elif isinstance(item, (list, tuple, set, frozenset, dict)):
            if 2 * len(item) > room:
                return True
            waiting.extend(item)
            if isinstance(item, dict):
                waiting.extend(item.values())
        else:
            room -= len(str(item))
        if room < 0:
            return True
    return False


def as_kept(value: Any) -> Any:
    """A result as it is offloaded: as exactly as a model can look into it.

    Tuples become arrays, dates and the like their text, as in the message that the model would have read. What has only
    the types of JSON stays as it is (also NaN, which JSON does not have); so do bytes and tables.
    """
    if type(value) in (str, bytes) or is_table(value):
        return value
    try:
        ormsgpack.packb(value, option=_PLAIN_TYPES_ONLY)
    except (TypeError, ormsgpack.MsgpackEncodeError):
        return _as_json(value)
    return value


def _as_json(value: Any) -> Any:
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY
    try:
        return orjson.loads(orjson.dumps(value, _model_or_text, options))
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        # Integers above 64 bits, half a surrogate pair, deep nesting: as the JSON text that the model would have read.
        return json.dumps(value, default=_model_or_text, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _model_or_text(value: Any) -> Any:
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    return str(value)
