"""Pointers in an agent: large tool results stay out of the conversation, and tools get the values that are meant.

    agent = create_agent(model, [search, plot], middleware=[PointerMiddleware(pointers)])

or, in a graph of your own, without LangChain's agents:

    edge = ToolPointers(pointers)
    tools = [edge.wrap(search), edge.wrap(plot), *edge.tools]

A tool takes values by pointer where it says so: `def plot(rows: Annotated[list[dict], ByPointer])`. The model passes
the pointer, the tool gets the rows, and no token is spent on them.

Behind `rtmem serve` leave `pointers` out: each run has the gateway's, bound to whoever was authenticated. Those that
you give are bound to him too.

What the model reads instead of a large result is made of the value alone: the same value gives the same text, but for
the id. Each result has an id of its own, also if an equal one is there already (the value is stored once): an id that
came back for equal content would end with the life of the first. The text is written into the conversation once and
stays as it is, so a prompt cache holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtmem.embedding.extras import imported

imported("langgraph.types", "agent")  # says which extra is missing, where it is

from rtmem.agent.offload.arguments import ByPointer  # noqa: E402
from rtmem.agent.offload.counts import PointerCounts  # noqa: E402
from rtmem.agent.offload.tools import ToolPointers  # noqa: E402
from rtmem.errors import ExtraMissingError  # noqa: E402

if TYPE_CHECKING:
    from rtmem.agent.offload.middleware import PointerMiddleware

__all__ = ["ByPointer", "PointerCounts", "PointerMiddleware", "ToolPointers"]


def __getattr__(name: str) -> Any:
    # The one name that needs LangChain itself; all others need its core, which LangGraph brings.
    if name != "PointerMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rtmem.agent.offload.middleware import PointerMiddleware
    except ModuleNotFoundError as exc:
        raise ExtraMissingError(
            "PointerMiddleware is for the agents of LangChain, which is not installed: pip install 'rtmem[agent]', or "
            "wrap your tools with ToolPointers",
            extra="agent",
        ) from exc
    return PointerMiddleware
