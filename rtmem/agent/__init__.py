"""A turn of an agent, and the agents themselves: what is above the savers and below the gateway.

What you use in agents of your own is in `rtmem.agent.offload`, and here by name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtmem.agent.offload import ByPointer, PointerCounts, PointerMiddleware, ToolPointers

__all__ = ["ByPointer", "PointerCounts", "PointerMiddleware", "ToolPointers"]


def __getattr__(name: str) -> Any:
    # Lazily: the gateway imports from this folder, and does without LangChain's tools.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rtmem.agent.offload"), name)
