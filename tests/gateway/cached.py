"""Graphs whose turns are cached, and which say how often they were asked."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.graph import START, MessagesState, StateGraph

from rtmem.agent.cache import cached_turns
from tests.gateway.graphs import Graph


class Counted:
    """A graph that answers by the last message and the number of those before it. `asked`: what it was asked."""

    def __init__(self, **options: Any) -> None:
        self.asked: list[str] = []
        builder = StateGraph(MessagesState)
        builder.add_node("answer", self._answer)
        builder.add_edge(START, "answer")
        self.graph: Graph = cached_turns(builder.compile(), **{"model": "counted", "parameters": {}, **options})

    async def _answer(self, state: MessagesState) -> dict[str, Any]:
        *before, question = state["messages"]
        self.asked.append(str(question.text))
        usage = UsageMetadata(input_tokens=3, output_tokens=4, total_tokens=7)
        return {"messages": [AIMessage(answered(str(question.text), len(before)), usage_metadata=usage)]}


def answered(text: str, before: int = 0) -> str:
    """What a Counted says: in more words than one piece of an answer has."""
    return f"After {before} messages I was asked this, word for word: {text}"
