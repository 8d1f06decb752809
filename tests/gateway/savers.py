"""LangGraph's own in-memory saver, one for each principal."""

from __future__ import annotations

from langgraph.checkpoint.memory import InMemorySaver


class PrincipalsInMemory:
    """Has the one method that the gateway needs."""

    def __init__(self) -> None:
        self.savers: dict[str, InMemorySaver] = {}

    def bind(self, principal: str) -> InMemorySaver:
        return self.savers.setdefault(principal, InMemorySaver())
