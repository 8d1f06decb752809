"""What is written after a turn, by policy: nothing, or the user's message as an episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.messages import AnyMessage, HumanMessage

from rtmem.agent.recall.verbs import Call, Verbs
from rtmem.memory import Fact
from rtmem.settings import Recall as Policy

EVENT: Final = "rtmem.episode"

WRITER: Final = "turn"


@dataclass(frozen=True, slots=True)
class Episode:
    """What became of a turn in memory: "written", "off" (the policy writes none) or "failed" with its reason."""

    status: Literal["written", "off", "failed"]
    fact: Fact | None = None
    reason: str = ""

    @property
    def event(self) -> dict[str, Any]:
        """What a stream tells of it."""
        return {
            "name": EVENT,
            "status": self.status,
            "fact": self.fact.id if self.fact is not None else "",
            "reason": self.reason,
        }


def last_message(messages: Sequence[AnyMessage]) -> tuple[int, HumanMessage] | None:
    """The last message of the user, and its place."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if isinstance(message, HumanMessage):
            return at, message
    return None


def episode_of(
    settings: Policy, messages: Sequence[AnyMessage], thread_id: str, characters_max: int
) -> Verbs[Episode] | Episode:
    """How to write the turn; or that there is nothing to write.

    Only what the user said: an answer of the model would come back as something that somebody knows.
    """
    found = last_message(messages)
    text = "" if found is None else str(found[1].text).strip()
    if settings.episodic_write != "turn" or found is None or not text:
        return Episode("off")
    at, message = found
    options = {
        "kind": "episodic",
        "thread_id": thread_id,
        "message_id": message.id or "",
        "position": at,
        "writer": WRITER,
    }
    return _written(text[:characters_max], options)


def _written(text: str, options: dict[str, Any]) -> Verbs[Episode]:
    fact: Fact = yield Call("write", (text,), options)
    return Episode("written", fact)
