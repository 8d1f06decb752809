"""What a process notes of a cache: who is left alone, what is known to be there, what was asked, found and counted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

KNOWN_MAX: Final = 65_536
OPEN_MAX: Final = 16_384
UNEMBEDDED_MAX: Final = 1_024
TENANTS_MAX: Final = 4_096  # whose misses are counted before Redis is told of them
UNKNOWN_US: Final = 0
"""Of a question that was asked nobody knows when: all that was invalidated lately was invalidated after it."""


class Handed(NamedTuple):
    """An answer that Redis cannot hand on, for those who wait for it in this process."""

    answer: bytes  # so that each has one of its own
    began_s: float  # who asked later does not get it


Ending: TypeAlias = str | Handed
"""How a flight ended (`cache_flights` has the words for it), or the answer itself."""


class Pause:
    """Leaves somebody alone for a while after a failure."""

    __slots__ = ("_clock", "_pause_s", "_until_s")

    def __init__(self, pause_ms: int, clock: Callable[[], float]) -> None:
        self._pause_s = pause_ms / 1_000
        self._clock = clock
        self._until_s = -1e9

    def begin(self) -> None:
        """From now on."""
        self._until_s = self._clock() + self._pause_s

    @property
    def is_on(self) -> bool:
        """Whether not to ask."""
        return self._clock() < self._until_s


class Known:
    """Entries that this process knows to be stored: their questions are asked exactly before they are embedded."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, entry_id: str) -> bool:
        return entry_id in self._ids

    def add(self, entry_id: str) -> None:
        """It is there."""
        self._ids[entry_id] = None
        if len(self._ids) > KNOWN_MAX:
            _drop_oldest(self._ids)

    def discard(self, entry_id: str) -> None:
        """It is not."""
        self._ids.pop(entry_id, None)


class Unembedded:
    """Texts of entries that this process stored without a vector, as the embedder failed."""

    __slots__ = ("_lock", "_texts")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()

    def add(self, tenant: str, entry_id: str, text: str) -> None:
        """It lacks one."""
        with self._lock:
            self._texts[tenant, entry_id] = text
            if len(self._texts) > UNEMBEDDED_MAX:
                self._texts.popitem(last=False)

    def discard(self, tenant: str, entry_id: str) -> None:
        """It has one."""
        if self._texts:
            with self._lock:
                self._texts.pop((tenant, entry_id), None)

    def some_of(self, tenant: str, most: int) -> dict[str, str]:
        """Ids and texts of a tenant's, the oldest first."""
        if not self._texts:
            return {}
        with self._lock:
            found = ((entry_id, text) for (owner, entry_id), text in self._texts.items() if owner == tenant)
            return dict(islice(found, most))


class OpenQuestions:
    """When questions were asked that found no answer, by the server's clock.

    An answer that was computed before something was invalidated must not be stored after it. Who asked which of several
    answers to one question nobody knows, so all count from the first that is open: at worst an answer is not stored
    that could have been. Who never comes back with an answer is forgotten after `question_ms_max`.
    """

    __slots__ = ("_asked", "_clock", "_keep_s", "_lock", "_lost")

    def __init__(self, question_ms_max: int, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._keep_s = question_ms_max / 1_000
        self._asked: OrderedDict[str, tuple[int, int, float]] = OrderedDict()  # first us, how many, since s
        self._lost = False

    def ask(self, entry_id: str, now_us: int) -> None:
        """It was asked, and an answer may follow."""
        now_s = self._clock()
        with self._lock:
            first_us, count, since_s = self._asked.get(entry_id, (now_us, 0, now_s))
            if now_s - since_s > self._keep_s:
                first_us, count, since_s = now_us, 0, now_s
            self._asked[entry_id] = (min(first_us, now_us), count + 1, since_s)
            if len(self._asked) > OPEN_MAX:
                _, (_, _, since_s) = self._asked.popitem(last=False)
                self._lost = self._lost or now_s - since_s <= self._keep_s

    def began_us(self, entry_id: str) -> int | None:
        """When the question was asked whose answer comes now; None if it was not asked here."""
        with self._lock:
            found = self._asked.get(entry_id)
            if found is None:
                return UNKNOWN_US if self._lost else None
            first_us, count, since_s = found
            if count > 1:
                self._asked[entry_id] = (first_us, count - 1, since_s)
            else:
                del self._asked[entry_id]
            return first_us


def _drop_oldest(found: OrderedDict[str, Any]) -> None:
    with suppress(KeyError):  # another thread took the last one
        found.popitem(last=False)


class Usage:
    """Hits, and how look-ups ended, that Redis was not told of yet, by tenant."""

    __slots__ = ("_hits", "_lock", "_most", "_pending")

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._most = most
        self._pending = 0
        self._hits: dict[str, dict[str, list[int]]] = {}  # tenant -> id -> hits, saved ms

    def add(self, tenant: str, entry_id: str, saved_ms: int, kind: str) -> bool:
        """Count a hit. Whether Redis should be told now."""
        with self._lock:
            hits = self._hits.setdefault(tenant, {})
            hit = hits.setdefault(entry_id, [0, 0])
            hit[0] += 1
            hit[1] += saved_ms
            hits.setdefault(f"={kind}", [0, 0])[0] += 1
            self._pending += 1
            return self._pending >= self._most

    def note(self, tenant: str, what: str) -> None:
        """Count how a look-up ended, to be told when there is something to tell."""
        with self._lock:
            if tenant in self._hits or len(self._hits) < TENANTS_MAX:
                self._hits.setdefault(tenant, {}).setdefault(f"={what}", [0, 0])[0] += 1

    def take(self, tenant: str) -> list[str | int]:
        """What a tenant's hits are, as functions take them; they count as told."""
        with self._lock:
            hits = self._hits.pop(tenant, {})
            self._pending -= sum(hit[0] for entry_id, hit in hits.items() if entry_id[0] != "=")
        words: list[str | int] = []
        for entry_id, (count, saved_ms) in hits.items():
            words += (entry_id, count, saved_ms)
        return words

    @property
    def tenants(self) -> tuple[str, ...]:
        """Who has some."""
        return tuple(self._hits)


class Counts:
    """How often what happened, from any thread."""

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    def add(self, what: str) -> None:
        """It happened once more."""
        with self._lock:
            self._counts[what] = self._counts.get(what, 0) + 1

    def read(self) -> dict[str, int]:
        """As of now."""
        with self._lock:
            return dict(sorted(self._counts.items()))
