"""Agents with memory in each combination of colours, and what their streams tell."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from langchain.agents import create_agent
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from numpy.typing import NDArray

from rtmem import settings as all_settings
from rtmem.agent.recall import Recall, RecallMiddleware
from rtmem.memory import AsyncMemory, Memory
from rtmem.settings import Redis
from rtmem.steps import TextKind
from tests.agent.offload.worlds import Scripted, Turn
from tests.checkpoint.colours import Loop
from tests.embedders import Words
from tests.gateway.waiting import eventually

# How long things take is no test's subject, and a busy machine must not matter.
PATIENT = {"deadline_ms": 60_000, "tool_deadline_ms": 60_000, "prefetch_keep_ms": 600_000}


class Gate(Words):
    """An embedder whose questions wait until the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.waiting = threading.Semaphore(0)  # one for each question that has arrived
        self.arrived: list[str] = []
        self.cancelled = 0

    def embed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        if what == "query":
            self.arrived += texts
            self.waiting.release()
            assert self.opened.wait(60)
        return super().embed(texts, what)

    async def aembed(self, texts: Sequence[str], what: TextKind = "document") -> NDArray[np.float32]:
        if what == "query":
            self.arrived += texts
            self.waiting.release()
            try:
                await eventually(self.opened.is_set)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return Words.embed(self, texts, what)


@dataclass(slots=True)
class Told:
    """One turn, as its client sees it."""

    messages: list[BaseMessage]  # the state at its end
    events: list[dict[str, Any]]  # custom ones

    @property
    def recalls(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["name"] == "rtmem.recall"]


@dataclass(slots=True)
class World:
    """Runs agents in one combination of colours."""

    url: str
    loop: Loop
    awaiting: bool
    awaiting_memory: bool
    recalls: list[Recall] = field(default_factory=list)

    @contextmanager
    def memory(self, principal: Any = "ann", *, url: str = "", **options: Any) -> Iterator[Any]:
        given: dict[str, Any] = {
            "principal": principal,
            "embedder": Words(),
            "redis": Redis(deadline_ms=30_000),
            **options,
        }
        if not self.awaiting_memory:
            with Memory(url or self.url, **given) as blocking:
                yield blocking
                self._end()
            return
        awaiting = AsyncMemory(url or self.url, **given)
        try:
            yield awaiting
            self._end()
        finally:
            self.loop.wait(awaiting.aclose())

    def recall(self, memory: Any, **settings: Any) -> Recall:
        self.recalls.append(Recall(memory, all_settings.Recall(**{**PATIENT, **settings})))
        return self.recalls[-1]

    def _end(self) -> None:
        while self.recalls:
            self.loop.wait(self.recalls.pop().aclose())

    def now(self, result: Any) -> Any:
        """The result of a verb of either colour."""
        return self.loop.wait(result) if inspect.isawaitable(result) else result  # type: ignore[arg-type]

    def read(self, recall: Recall, message: str, **more: Any) -> Any:
        """A recall in the colour of this world's runs."""
        return self.loop.wait(recall.aread(message, **more)) if self.awaiting else recall.read(message, **more)

    def prefetch(self, recall: Recall, message: str, **more: Any) -> None:
        """A prefetch, where this world's memory lives."""

        async def inside() -> None:
            recall.prefetch(message, **more)

        if self.awaiting_memory:
            self.loop.wait(inside())
        else:
            recall.prefetch(message, **more)

    def agent(self, recall: Any, turns: list[Turn], tools: Any = (), **options: Any) -> tuple[Any, Scripted]:
        """An agent with a memory (a Recall, or None for the run's own) and its scripted model."""
        model = Scripted(turns=turns)
        middleware = [RecallMiddleware(recall, **options)]
        return create_agent(model, list(tools), middleware=middleware, checkpointer=InMemorySaver()), model

    def say(self, graph: Any, text: str, thread_id: str = "t1", **configurable: Any) -> Told:
        """One turn."""
        given = {"messages": [("user", text)]}
        config = {"configurable": {"thread_id": thread_id, **configurable}}
        if self.awaiting:
            parts = self.loop.wait(_all(graph.astream(given, config, stream_mode=["custom", "values"])))
        else:
            parts = list(graph.stream(given, config, stream_mode=["custom", "values"]))
        states = [data for mode, data in parts if mode == "values"]
        return Told(states[-1]["messages"], [data for mode, data in parts if mode == "custom"])


async def _all(stream: Any) -> list[Any]:
    return [part async for part in stream]


def memory_in(messages: list[BaseMessage]) -> list[str]:
    """The frames that a model was given."""
    return [str(message.text) for message in messages if str(message.text).startswith("<retrieved_memory>")]
