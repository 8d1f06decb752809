"""Answers that are given again, in agents: of a model, or of a whole turn.

    model = CachedChatModel(ChatOpenAI(model="gpt-5-mini"), AsyncSemanticCache(url, principal="ann"))

answers, and streams, from the cache what it was asked before.

    graph = cached_turns(
        builder.compile(), model="openai:gpt-5-mini", parameters={"temperature": 0}, system=PROMPT, answer_node="model"
    )

A gateway that serves `graph` looks every new question up before it runs it, for the principal who asks. A hit is
streamed like an answer of the model, told as a custom event `rtmem.cache`, and stored in the thread as if the graph had
run. See `rtmem.cache` for what a hit is, and `cached_turns` for which turns are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rtmem.agent.cache.turns import CachedTurns, cached_turns

if TYPE_CHECKING:
    from rtmem.agent.cache.model import CachedChatModel

__all__ = ["CachedChatModel", "CachedTurns", "cached_turns"]


def __getattr__(name: str) -> Any:
    # Lazily: a graph says that its turns are cached without what a cache needs.
    if name != "CachedChatModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rtmem.agent.cache import model

    return model.CachedChatModel
