"""Small graphs that stream what the test decides, through LangGraph's own machinery."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, TypedDict

import anyio
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.pregel import Pregel
from langgraph.types import interrupt

Graph = Pregel[Any, Any, Any, Any]


class Parrot(BaseChatModel):
    """A model that says words about the last message, `pause_s` apart, and after `words_max` of them waits for `gate`.

    Without a gate it waits for ever: it is in the middle of its answer for as long as a test likes.
    """

    pause_s: float = 0.0
    words_max: int | None = None
    gate: Any = None  # an anyio.Event

    @property
    def _llm_type(self) -> str:
        return "parrot"

    def _words(self, messages: list[BaseMessage]) -> Iterator[str]:
        heard = str(messages[-1].text)
        count = int(heard.split()[-1]) if heard.split()[-1].isdigit() else 4
        yield f"You said {heard}:"
        for number in range(count):
            yield f" word{number}"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(self._words(messages))))])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for number, word in enumerate(self._words(messages)):
            if self.words_max is not None and number > self.words_max:
                await (self.gate.wait() if self.gate is not None else anyio.sleep_forever())
            if self.pause_s:
                await anyio.sleep(self.pause_s)
            chunk = ChatGenerationChunk(message=AIMessageChunk(word))
            if run_manager is not None:
                await run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk


def chat(pause_s: float = 0.0, *, words_max: int | None = None, gate: anyio.Event | None = None) -> Graph:
    """Answers with a streaming model."""
    model = Parrot(pause_s=pause_s, words_max=words_max, gate=gate)

    async def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=InMemorySaver())


def approval(gate: anyio.Event | None = None) -> Graph:
    """Asks a person, then says what it was told; its last node reports, and then waits for `gate` if there is one."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        told = interrupt({"question": "really?"})
        return {"messages": [AIMessage(f"told {told}")]}

    async def after(state: MessagesState) -> dict[str, Any]:
        get_stream_writer()({"name": "progress", "done": True})
        if gate is not None:
            await gate.wait()
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_node("after", after)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "after")
    builder.add_edge("after", END)
    return builder.compile(checkpointer=InMemorySaver())


class Steps(TypedDict):
    done: Annotated[list[int], operator.add]


def failing() -> Graph:
    """Fails in its second step."""

    def first(state: Steps) -> Steps:
        return {"done": [1]}

    def second(state: Steps) -> Steps:
        raise RuntimeError("the second step broke")

    builder = StateGraph(Steps)
    builder.add_node("first", first)
    builder.add_node("second", second)
    builder.add_edge(START, "first")
    builder.add_edge("first", "second")
    return builder.compile(checkpointer=InMemorySaver())


def nested(child: Graph | None = None) -> Graph:
    """A chat graph inside another one."""
    builder = StateGraph(MessagesState)
    builder.add_node("child", child or chat())
    builder.add_edge(START, "child")
    return builder.compile(checkpointer=InMemorySaver())


def all_graphs(pause_s: float = 0.0) -> dict[str, Graph]:
    return {
        "chat": chat(pause_s),
        "approval": approval(),
        "failing": failing(),
        "nested": nested(),
        "slow": chat(0.02),
        "held": chat(words_max=20),
    }
