"""Whose memory an operation is about, and how it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as _replace

from rtmem import settings as all_settings
from rtmem.keys import Keys, check_id
from rtmem.operations.memory_items import WHOLE
from rtmem.operations.serde import Serde
from rtmem.operations.vector_index import Index
from rtmem.steps import Embedder


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """Long-term memory with the eyes of one principal."""

    principal: str
    settings: all_settings.Store
    keys: Keys
    serde: Serde
    index: Index
    retrieval: all_settings.Retrieval = field(default_factory=all_settings.Retrieval)  # of ranking "hybrid"
    fields: tuple[str, ...] = (WHOLE,)  # what of a value is embedded, unless a put says otherwise

    @property
    def embedder(self) -> Embedder | None:
        """Who turns texts into vectors."""
        return self.index.embedder

    @property
    def vectors_guess(self) -> int:
        """About how many vectors an item has."""
        return sum(4 if "*" in path else 1 for path in self.fields) or 1

    def bound(self, principal: str) -> MemoryScope:
        """The same memory with the eyes of another principal. Raises IdTooLongError."""
        return _replace(self, principal=check_id(principal, "principal"))
