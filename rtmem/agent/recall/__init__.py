"""Long-term memory in an agent: read before the model, by policy and within a deadline; written by explicit tools.

    agent = create_agent(model, tools, middleware=[RecallMiddleware(memory)])

or, in a graph of your own, without LangChain's agents:

    recall = Recall(memory)
    model = model.bind_tools(model_tools(recall))
    builder.add_node("model", recall_node(recall) | model | (lambda answer: {"messages": [answer]}))

[recall] in configs/rtmem.toml is the policy: which kinds are read when, how much of each, and who may write.

A recall that is late, fails or finds nothing never stops a turn. The stream tells of each, as a custom event
`rtmem.recall` with its `status`; the model is told that memory could not be read, but not why. What is remembered is
put before the user's last message, framed as data that nobody has to obey, in the model's request only: it is never
stored in the thread.

`Recall.read(message)`, `aread`, `prefetch(partial)` are the same outside of LangGraph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtmem.embedding.extras import imported

imported("langgraph.types", "agent")  # says which extra is missing, where it is
imported("redisvl.schema", "memory")

from rtmem.agent.recall.messages import awith_memory, episode_node, recall_node, with_memory  # noqa: E402
from rtmem.agent.recall.reading import Recalled  # noqa: E402
from rtmem.agent.recall.recall import Recall  # noqa: E402
from rtmem.agent.recall.tools import model_tools  # noqa: E402
from rtmem.agent.recall.writing import Episode  # noqa: E402
from rtmem.agent.served import Served  # noqa: E402
from rtmem.errors import ExtraMissingError  # noqa: E402

if TYPE_CHECKING:
    from rtmem.agent.recall.middleware import RecallMiddleware

__all__ = [
    "Episode",
    "Recall",
    "RecallMiddleware",
    "Recalled",
    "Served",
    "awith_memory",
    "episode_node",
    "model_tools",
    "recall_node",
    "with_memory",
]


def __getattr__(name: str) -> Any:
    # The one name that needs LangChain itself; all others need its core, which LangGraph brings.
    if name != "RecallMiddleware":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rtmem.agent.recall.middleware import RecallMiddleware
    except ModuleNotFoundError as exc:
        raise ExtraMissingError(
            "RecallMiddleware is for the agents of LangChain, which is not installed: pip install 'rtmem[agent]', or "
            "use recall_node and model_tools in a graph of your own",
            extra="agent",
        ) from exc
    return RecallMiddleware
