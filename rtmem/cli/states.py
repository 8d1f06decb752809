"""A thread's state as a gateway sends it (JSON), read for somebody who talks: messages, their text, open questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Question:
    """The run waits for a decision."""

    interrupt_id: str
    value: Any


def messages_of(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The messages in a thread's state; an empty list if it has none."""
    values = state.get("values")
    found = values.get("messages") if isinstance(values, Mapping) else None
    return [message for message in found if isinstance(message, Mapping)] if isinstance(found, list) else []


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whichever shape its content has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in blocks)


def questions_of(state: Mapping[str, Any]) -> list[Question]:
    """What the thread's run waits for."""
    return [
        Question(str(interrupt.get("id")), interrupt.get("value"))
        for task in state.get("tasks") or ()
        for interrupt in task.get("interrupts") or ()
    ]
