"""A turn of an agent, and the agents themselves: what is above the savers and below the gateway.

What you use in agents of your own is in `rtmem.agent.offload` and `rtmem.agent.recall`, and here by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rtmem.embedding.extras import imported

if TYPE_CHECKING:
    from rtmem.agent.offload import ByPointer, PointerCounts, PointerMiddleware, ToolPointers
    from rtmem.agent.recall import Recall, Recalled, RecallMiddleware

__all__ = [
    "ByPointer",
    "PointerCounts",
    "PointerMiddleware",
    "Recall",
    "RecallMiddleware",
    "Recalled",
    "ToolPointers",
]

_RECALL: Final = ("Recall", "RecallMiddleware", "Recalled")


def __getattr__(name: str) -> Any:
    # Lazily: the gateway imports from this folder, and does without LangChain's tools and the query engine's.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(imported("rtmem.agent.recall" if name in _RECALL else "rtmem.agent.offload", "agent"), name)
