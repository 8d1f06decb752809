"""Conversations in `rtmem.Memory` and in `rtmem.RedisStore`, as a user would keep them: a tenant each."""

from __future__ import annotations

import time
from typing import Final

from langgraph.store.base import IndexConfig, PutOp

from loadtest.recall.locomo import Conversation, Turn
from rtmem.drivers import SyncDriver
from rtmem.memory import Memory, RetrievedFacts
from rtmem.operations.retrieval import Candidate, Ranked
from rtmem.settings import Retrieval, Store
from rtmem.steps import Embedder
from rtmem.store import RedisStore

WINDOW_MAX: Final = 100
_WIDE: Final = Retrieval(window=WINDOW_MAX, confidence_min=0.0)
_OURS: Final = Retrieval(confidence_min=0.0)  # nothing is refused: what would be is counted
_UNBOUNDED: Final = 10**6

# An index of its own: rarity of words is counted over all that an index holds.
_STORE: Final = Store(prefix="store", ranking="hybrid", thread="thread", position="position")
_PUTS_MAX: Final = 64


class Talk:
    """One conversation in the memory of a tenant of its own."""

    def __init__(self, conversation: Conversation, driver: SyncDriver, embedder: Embedder) -> None:
        self._turns: dict[str, Turn] = {turn.id: turn for turn in conversation.turns}
        tenant = {"driver": driver, "principal": conversation.name, "embedder": embedder}
        self._memory = Memory(retrieval=_OURS, **tenant)  # type: ignore[arg-type]
        self._wide = Memory(retrieval=_WIDE, **tenant)  # type: ignore[arg-type]
        index: IndexConfig = {"embed": embedder, "dims": embedder.dims, "fields": ["text"]}  # type: ignore[typeddict-item]
        self._store = RedisStore(driver=driver, principal=conversation.name, index=index, settings=_STORE)
        self.end_ms = max(turn.time_ms for turn in conversation.turns) + 1

    def remember(self) -> None:
        """Write every turn, as a fact and as an item."""
        for turn in self._turns.values():
            self._memory.write(
                turn.text,
                kind="episodic",
                thread_id=turn.thread,
                message_id=turn.id,
                position=turn.position,
                valid_from=turn.time_ms,
            )

        puts = [
            PutOp((turn.thread,), turn.id, {"text": turn.text, "thread": turn.thread, "position": turn.position})
            for turn in self._turns.values()
        ]
        for start in range(0, len(puts), _PUTS_MAX):
            self._store.batch(puts[start : start + _PUTS_MAX])

    def search(self, question: str, items_max: int) -> list[str]:
        """The same question to the store."""
        return [item.key for item in self._store.search((), query=question, limit=items_max)]

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
