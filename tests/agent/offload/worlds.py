"""Agents of LangChain whose model follows a script, in each combination of colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from rtmem import settings as all_settings
from rtmem.agent import PointerMiddleware, ToolPointers
from rtmem.pointers import AsyncPointers, Pointers
from tests.checkpoint.colours import Loop

Turn = Callable[[list[BaseMessage]], AIMessage | dict[str, dict[str, Any]] | str]
"""What the model says to these messages: a text, or the tools that it calls with their arguments."""


class Scripted(BaseChatModel):
    """A model whose n-th answer is the n-th function of the messages."""

    turns: list[Turn]
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    bound: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.bound[:] = tools
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = self.turns[len(self.seen)](messages)
        self.seen.append(list(messages))
        if isinstance(said, dict):
            calls = [
                {"name": name, "args": args, "id": f"call-{len(self.seen)}-{at}", "type": "tool_call"}
                for at, (name, args) in enumerate(said.items())
            ]
            said = AIMessage("", tool_calls=calls)
        message = said if isinstance(said, AIMessage) else AIMessage(said)
        return ChatResult(generations=[ChatGeneration(message=message)])


@dataclass(slots=True)
class World:
    """Runs agents in one combination of colours."""

    url: str
    loop: Loop
    awaiting: bool
    awaiting_pointers: bool

    @contextmanager
    def pointers(self, principal: str = "ann", **settings: Any) -> Iterator[Any]:
        # How long a query may compute is another test's subject, and here a busy machine must not matter.
        limits = all_settings.Pointers(**{"compute_ms_max": 60_000, **settings})
        options: Any = {"principal": principal, "settings": limits}
        if not self.awaiting_pointers:
            with Pointers(self.url, **options) as blocking:
                yield blocking
            return
        awaiting = AsyncPointers(self.url, **options)
        try:
            yield awaiting
        finally:
            self.loop.wait(awaiting.aclose())

    def now(self, result: Any) -> Any:
        """The result of a verb of `pointers`."""
        return self.loop.wait(result) if self.awaiting_pointers else result

    def run(
        self, tools: Sequence[Any], turns: list[Turn], *, middleware: Sequence[Any] = (), thread_id: str | None = "t1"
    ) -> list[BaseMessage]:
        """The messages of a whole run."""
        saver = InMemorySaver() if thread_id else None
        agent = create_agent(Scripted(turns=turns), tools, middleware=middleware, checkpointer=saver)
        config: Any = {"configurable": {"thread_id": thread_id}} if thread_id else {}
        given: Any = {"messages": [("user", "go")]}
        done = self.loop.wait(agent.ainvoke(given, config)) if self.awaiting else agent.invoke(given, config)
        messages: list[BaseMessage] = done["messages"]
        return messages

    def call(self, tool: Any, args: dict[str, Any], *, thread_id: str | None = "t1") -> Any:
        """What a tool answers to one call."""
        config: Any = {"configurable": {"thread_id": thread_id}} if thread_id else {}
        call = {"name": tool.name, "args": args, "id": "call-1", "type": "tool_call"}
        return self.loop.wait(tool.ainvoke(call, config)) if self.awaiting else tool.invoke(call, config)


def last_result(messages: Sequence[BaseMessage]) -> ToolMessage:
    """The newest tool message."""
    return next(message for message in reversed(messages) if isinstance(message, ToolMessage))


def pointer_in(text: Any) -> str:
    """The one pointer that a preview names."""
    start = str(text).index("mp_")
    return str(text)[start : start + 29]


def say(text: str) -> Turn:
    return lambda _: text


def call(**tools: dict[str, Any]) -> Turn:
    return lambda _: tools


__all__ = ["PointerMiddleware", "Scripted", "ToolPointers", "Turn", "World", "call", "last_result", "pointer_in", "say"]
