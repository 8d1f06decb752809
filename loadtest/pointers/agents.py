"""A scripted agent on LangChain's create_agent, and what its model calls cost.

The script stands for a model that makes no mistakes: it may use what is in its messages and nothing else, and writes
out what it passes on. It is the same for both arms; where a result is a pointer it passes the pointer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool
from pydantic import Field

from loadtest.pointers.tokens import Tokens

_PRIMING: Final = 3  # tokens with which an answer begins
_KEPT_OUT: Final = re.compile(r"kept out of the conversation: (mp_[a-z2-7]{26})\n")

Call = tuple[str, dict[str, Any]]
Script = Callable[[list[ToolMessage]], Sequence[Call] | str]
"""What the model says after these results: the tools that it calls with their arguments, or its answer."""


@dataclass(slots=True)
class Spent:
    """What the model calls of a run cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    largest_prompt: int = 0

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(slots=True)
class Outcome:
    """How a run ended."""

    answer: str
    spent: Spent


class ScriptedModel(BaseChatModel):
    """A chat model that follows a script, and counts what a real one would be charged for."""

    script: Script
    tokens: Any
    spent: Spent = Field(default_factory=Spent)
    tools_tokens: int = 0

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.tools_tokens = self.tokens.of_tools(tools)
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        said = self.script([message for message in messages if isinstance(message, ToolMessage)])
        number = self.spent.calls + 1
        message = AIMessage(said, id=f"answer-{number}") if isinstance(said, str) else _calling(said, number)
        prompt = self.tools_tokens + sum(self.tokens.of_message(message) for message in messages) + _PRIMING
        self.spent.calls = number
        self.spent.prompt_tokens += prompt
        self.spent.completion_tokens += self.tokens.of_message(message)
        self.spent.largest_prompt = max(self.spent.largest_prompt, prompt)
        return ChatResult(generations=[ChatGeneration(message=message)])


def _calling(calls: Sequence[Call], number: int) -> AIMessage:
    return AIMessage(
        "",
        id=f"answer-{number}",
        tool_calls=[
            {"name": name, "args": args, "id": f"call-{number}-{at}", "type": "tool_call"}
            for at, (name, args) in enumerate(calls)
        ],
    )


@dataclass(slots=True)
class Agent:
    """Runs a script with tools and middleware, each time from the beginning."""

    script: Script
    tools: Sequence[BaseTool]
    middleware: Sequence[Any] = field(default_factory=tuple)

    def run(self, question: str, thread_id: str) -> Outcome:
        """The answer to a question, and what it cost."""
        model = ScriptedModel(script=self.script, tokens=Tokens())
        agent = create_agent(model, self.tools, middleware=self.middleware)
        done = agent.invoke(
            {"messages": [{"role": "user", "content": question}]}, {"configurable": {"thread_id": thread_id}}
        )
        return Outcome(answer=done["messages"][-1].text, spent=model.spent)


def passed_on(result: ToolMessage) -> Any:
    """What a model writes to hand a result on: its pointer if it is one, else all of it."""
    pointer = pointer_in(result)
    if pointer:
        return pointer
    text = result.text
    return json.loads(text) if text[:1] in ("[", "{") else text


def pointer_in(result: ToolMessage) -> str:
    """The pointer that stands in place of a result; empty if the result itself stands there."""
    found = _KEPT_OUT.search(result.text[:300])
    return found[1] if found else ""
