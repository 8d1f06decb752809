"""An answer out of the cache as it is given: a message of its own, in pieces, marked as what it is."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.language_models._compat_bridge import message_to_events
from langchain_core.messages import AIMessage

from rtmem.operations.cache_records import Hit
from rtmem.operations.cached_messages import replayed

_PIECE_CHARACTERS: Final = 24
_WORD: Final = re.compile(rf"\s*\S{{1,{_PIECE_CHARACTERS}}}|\s+")


def message_of(answer: AIMessage, hit: Hit) -> AIMessage:
    """The answer as a new message: no model was used for it, and its metadata say what was used once."""
    return replayed(answer, hit).model_copy(update={"id": f"rtmem-{uuid.uuid4()}"})


def pieces(text: str) -> Iterator[str]:
    """A text in pieces of some words; together they are the text."""
    piece = ""
    for word in _WORD.findall(text):
        if piece and len(piece) + len(word) > _PIECE_CHARACTERS:
            yield piece
            piece = ""
        piece += word
    if piece:
        yield piece


def events_of(message: AIMessage) -> Iterator[Mapping[str, Any]]:
    """The events of a message that a model would be streaming."""
    for event in message_to_events(message, message_id=message.id):
        delta: Any = event.get("delta")
        if event["event"] != "content-block-delta" or not isinstance(delta, Mapping) or not delta.get("text"):
            yield event
            continue
        for piece in pieces(delta["text"]):
            yield {**event, "delta": {**delta, "text": piece}}
