"""Answers that are given again, in agents.

    graph = cached_turns(
        builder.compile(), model="openai:gpt-5-mini", parameters={"temperature": 0}, system=PROMPT, answer_node="model"
    )

A gateway that serves `graph` looks every new question up before it runs it, for the principal who asks. A hit is
streamed like an answer of the model, told as a custom event `rtmem.cache`, and stored in the thread as if the graph had
run. See `rtmem.cache` for what a hit is, and `cached_turns` for which turns are kept.
"""

from __future__ import annotations

from rtmem.agent.cache.turns import CachedTurns, cached_turns

__all__ = ["CachedTurns", "cached_turns"]
