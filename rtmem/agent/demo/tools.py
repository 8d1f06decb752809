"""The tools of the demo agent. Each does what it says and nothing outside this process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, interrupt

from rtmem.agent.demo.arithmetic import ArithmeticRefusedError, evaluate
from rtmem.agent.demo.phrases import language_of

SENT = "put into the outbox"
DECLINED = "not sent: the user declined"

_SEND_QUESTION = {"en": "Send to {}: {}", "ru": "Отправить ({}): {}"}


class ToolRefusedError(ValueError):
    """A tool cannot do what it was asked; the message is for the model, which may tell the user or try again."""


@tool
def calculate(expression: str) -> str:
    """Evaluate an arithmetic expression exactly, for example "(2 + 3) * 4.5" or "2**10"."""
    try:
        return evaluate(expression)
    except ArithmeticRefusedError as exc:
        raise ToolRefusedError(str(exc)) from exc


@tool
def current_time(time_zone: str = "UTC") -> str:
    """Tell the date and time now. time_zone is an IANA name such as "Europe/Berlin"."""
    try:
        zone = UTC if time_zone == "UTC" else ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise ToolRefusedError(f"{time_zone!r} is no IANA time zone such as Europe/Berlin") from exc
    return f"{datetime.now(zone):%Y-%m-%d %H:%M} {time_zone}"


@tool
def send_message(
    recipient: str,
    text: str,
    call_id: Annotated[str, InjectedToolCallId],
    state: Annotated[dict[str, Any], InjectedState],
) -> Command[Any]:
    """Send a text message. The user is asked for approval before anything is sent."""
    answer = interrupt(
        {
            "action": "send_message",
            "arguments": {"recipient": recipient, "text": text},
            "question": _SEND_QUESTION[language_of(text)].format(recipient, text),
        }
    )
    if not approves(answer):
        return Command(update={"messages": [ToolMessage(DECLINED, tool_call_id=call_id)]})
    outbox = [*state.get("outbox", []), {"recipient": recipient, "text": text}]
    report = f"{SENT} for {recipient}; the demo delivers nothing outside"
    return Command(update={"outbox": outbox, "messages": [ToolMessage(report, tool_call_id=call_id)]})


TOOLS: list[BaseTool] = [calculate, current_time, send_message]


def explain_refusal(error: ToolRefusedError) -> str:
    """What the model reads instead of a result."""
    return f"refused: {error}"


def approves(answer: Any) -> bool:
    """Whether the reply to an approval request says yes: true, a word for yes, or {"approve": true}.

    Anything else is a no, so that an empty or garbled reply never sends or deletes.
    """
    if isinstance(answer, dict):
        answer = answer.get("approve", answer.get("type"))
    if isinstance(answer, str):
        return answer.strip(" .!").casefold() in {"yes", "y", "ok", "approve", "approved", "true", "да", "д", "ок"}
    return answer is True
