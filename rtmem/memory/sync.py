"""Facts, blocking: one line per verb, the algorithms are in `rtmem.operations`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self, Unpack

from langgraph.checkpoint.serde.base import SerializerProtocol

from rtmem import settings as all_settings
from rtmem.drivers import SyncDriver
from rtmem.memory.base import FactMemory, checked_url, note
from rtmem.memory.words import Bounds, Changes, Filters, Properties
from rtmem.operations import fact_search, facts, vector_index
from rtmem.operations.fact_items import Moment
from rtmem.operations.fact_scope import WritePolicy
from rtmem.operations.fact_search import RetrievedFacts
from rtmem.records import Fact, FactPage, Principal
from rtmem.steps import Embedder, R, Steps


class Memory(FactMemory):
    """Facts of one principal and of what it belongs to. Blocking; see `rtmem.memory` for all verbs.

    Safe to share between threads.

    Args:
        redis_url: redis://, rediss://, unix:// or redis+sentinel://; a Redis with the query engine, no Cluster.
        driver: a SyncDriver to share, instead of a URL.
        principal: a user's name, or a Principal with teams and an application; nothing in a message can change it.
        embedder: who turns texts into vectors; without one, facts are found by their words.
        policy: looks at each fact before it is embedded or stored, and may change or refuse it.
        serde: how facts are written; LangGraph's JsonPlusSerializer.
        settings: section [memory]. store: section [store], which says how it is kept. retrieval: section [retrieval].
        redis: deadlines and connections, with a URL.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        driver: SyncDriver | None = None,
        principal: str | Principal = "",
        embedder: Embedder | None = None,
        policy: WritePolicy | None = None,
        serde: SerializerProtocol | None = None,
        settings: all_settings.Memory | None = None,
        store: all_settings.Store | None = None,
        retrieval: all_settings.Retrieval | None = None,
        redis: all_settings.Redis | None = None,
    ) -> None:
        super().__init__(
            principal=principal,
            embedder=embedder,
            policy=policy,
            serde=serde,
            settings=settings,
            store=store,
            retrieval=retrieval,
        )
        self._owns_driver = driver is None
        self._driver = driver or SyncDriver.lazy(checked_url(redis_url), redis)

    @classmethod
    @contextmanager
    def from_conn_string(cls, redis_url: str | None = None, **options: Any) -> Iterator[Self]:
        """A memory for the length of an with block; options as for the class."""
        memory = cls(redis_url, **options)
        try:
            yield memory
        finally:
            memory.close()

    @property
    def driver(self) -> SyncDriver:
        """The connections, to share."""
        return self._driver

    def setup(self) -> None:
        """Make the index. Optional: the first call does it too. Raises ModuleMissingError, EmbedderMismatchError."""
        self.run(vector_index.ensure(self.scope.index))

    def close(self) -> None:
        """Close the connections, unless the driver was given."""
        if self._owns_driver:
            self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, steps: Steps[R]) -> R:
        """Run steps of your own over the same connections: `memory.run(operation(memory.scope, ...))`."""
        return self._driver.run(steps, self.scope.embedder)

    def _call(self, verb: str, steps: Steps[R]) -> R:
        with self._counter.call(verb) as tally:
            result = self.run(steps)
            note(result, tally)
            return result

    def write(self, text: str | None = None, **properties: Unpack[Properties]) -> Fact:
        """See operations.facts.write."""
        return self._call("write", self._durably(facts.write(self.scope, text, **properties)))

    def update(self, fact: str | Fact, text: str | None = None, **changes: Unpack[Changes]) -> Fact:
        """See operations.facts.update."""
        return self._call("update", self._durably(facts.update(self.scope, fact, text, **changes)))

    def invalidate(self, fact: str | Fact, reason: str, *, at: Moment | None = None) -> Fact:
        """See operations.facts.invalidate."""
        return self._call("invalidate", self._durably(facts.invalidate(self.scope, fact, reason, at=at)))

    def forget(self, fact: str | Fact, *, history: bool = False) -> int:
        """See operations.facts.forget."""
        return self._call("forget", self._durably(facts.forget(self.scope, fact, history=history)))

    def read(self, key: str, *, of: str = "user") -> Fact | None:
        """See operations.facts.read."""
        return self._call("read", facts.read(self.scope, key, of=of))

    def history(self, fact: str | Fact) -> tuple[Fact, ...]:
        """See operations.facts.history."""
        return self._call("history", facts.history(self.scope, fact))

    def query(self, **filters: Unpack[Filters]) -> FactPage:
        """See operations.fact_search.query."""
        return self._call("query", fact_search.query(self.scope, **filters))

    def retrieve(self, question: str, **bounds: Unpack[Bounds]) -> RetrievedFacts:
        """See operations.fact_search.retrieve."""
        return self._call("retrieve", fact_search.retrieve(self.scope, question, **bounds))

    def reembed(self, limit: int = 1_000) -> int:
        """See operations.facts.reembed."""
        return self._call("reembed", facts.reembed(self.scope, limit))
