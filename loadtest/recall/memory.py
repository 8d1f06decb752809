"""Conversations in `rtmem.Memory`, as a user would keep them: a tenant each, every turn an episode."""

from __future__ import annotations

import time
from typing import Final

from loadtest.recall.locomo import Conversation, Turn
from rtmem.drivers import SyncDriver
from rtmem.memory import Memory, RetrievedFacts
from rtmem.operations.retrieval import Candidate, Ranked
from rtmem.settings import Retrieval
from rtmem.steps import Embedder

WINDOW_MAX: Final = 100
_WIDE: Final = Retrieval(window=WINDOW_MAX, confidence_min=0.0)
_OURS: Final = Retrieval(confidence_min=0.0)  # nothing is refused: what would be is counted
_UNBOUNDED: Final = 10**6


class Talk:
    """One conversation in the memory of a tenant of its own."""

    def __init__(self, conversation: Conversation, driver: SyncDriver, embedder: Embedder) -> None:
        self._turns: dict[str, Turn] = {turn.id: turn for turn in conversation.turns}
        tenant = {"driver": driver, "principal": conversation.name, "embedder": embedder}
        self._memory = Memory(retrieval=_OURS, **tenant)  # type: ignore[arg-type]
        self._wide = Memory(retrieval=_WIDE, **tenant)  # type: ignore[arg-type]
        self.end_ms = max(turn.time_ms for turn in conversation.turns) + 1

    def remember(self) -> None:
        """Write every turn."""
        for turn in self._turns.values():
            self._memory.write(
                turn.text,
                kind="episodic",
                thread_id=turn.thread,
                message_id=turn.id,
                position=turn.position,
                valid_from=turn.time_ms,
            )

    def retrieve(self, question: str, items_max: int) -> tuple[list[str], float]:
        """Ids of turns, best first, and how sure it is: asked when the conversation had ended, as defaults have it."""
        found = self._memory.retrieve(question, k=items_max, tokens_max=_UNBOUNDED, as_of=self.end_ms)
        return [hit.fact.message_id for hit in found.hits], found.confidence

    def took_us(self, question: str) -> float:
        """How long a retrieval takes whose vector is there."""
        begin = time.perf_counter_ns()
        self._memory.retrieve(question)
        return (time.perf_counter_ns() - begin) / 1000

    def lists(self, question: str) -> tuple[Ranked, Ranked]:
        """What words and meaning found, 100 each, before they became one list."""
        found = self._wide.retrieve(question, k=2 * WINDOW_MAX, tokens_max=_UNBOUNDED, as_of=self.end_ms, explain=True)
        return self._list(found, "bm25"), self._list(found, "cosine")

    def _list(self, found: RetrievedFacts, signal: str) -> Ranked:
        scored = [
            (self._candidate(hit.fact.message_id), getattr(hit.explanation, signal))
            for hit in found.hits
            if getattr(hit.explanation, signal) is not None
        ]
        return sorted(scored, key=lambda row: -row[1])

    def _candidate(self, turn_id: str) -> Candidate:
        turn = self._turns[turn_id]
        return Candidate(
            turn.id, turn.text, thread=turn.thread, position=turn.position, time_ms=turn.time_ms, importance=0.5
        )
