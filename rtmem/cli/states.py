"""A thread's state as a gateway sends it (JSON), read for somebody who talks: messages, their text, open questions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_YES: Final = {"yes", "y", "ok", "approve", "approved", "да", "д", "ок"}
_NO: Final = {"no", "n", "nope", "reject", "cancel", "нет", "н", "не"}


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


def wording_of(question: Question) -> str:
    """What to ask the user: the graph's own words, or LangChain's action requests, or the bare value."""
    value = question.value
    if isinstance(value, Mapping):
        if "question" in value:
            return str(value["question"])
        if requests := _action_requests(value):
            return "; ".join(str(one.get("description") or f"{one.get('name')}({one.get('args')})") for one in requests)
    return str(value)


def is_yes_or_no(question: Question) -> bool:
    """Does it ask for approval of an action, and not for a text?"""
    return isinstance(question.value, Mapping) and ("action" in question.value or "action_requests" in question.value)


def is_clear(question: Question, words: str) -> bool:
    """Can `words` be an answer? A yes stands alone; a no may have its reason behind it."""
    first = re.split(r"\W", words, maxsplit=1)[0].casefold()
    return not is_yes_or_no(question) or _says_yes(words) or first in _NO


def answer_to(question: Question, words: str) -> Any:
    """The user's words in the shape that the question's asker reads.

    Source: HumanInTheLoopMiddleware (langchain 1.2) takes one decision for each of its action requests.
    """
    if isinstance(question.value, Mapping) and (requests := _action_requests(question.value)):
        decision = {"type": "approve"} if _says_yes(words) else {"type": "reject", "message": words}
        return {"decisions": [decision for _ in requests]}
    return words


def _says_yes(words: str) -> bool:
    return words.strip(" .!").casefold() in _YES


def _action_requests(value: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = value.get("action_requests")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
