"""Whose answers an operation is about, how they are kept, and what this process remembers of them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rtmem import settings as all_settings
from rtmem.errors import (
    ConfigError,
    DeadlineExceededError,
    EmbeddingError,
    ModuleMissingError,
    RtmemError,
    ServerFullError,
    ServerLoadingError,
    ServerUnavailableError,
)
from rtmem.keys import CacheKeys, Keys
from rtmem.operations.cache_records import CacheDraft, CachePolicy, Guard, Judge
from rtmem.operations.serde import Serde

if TYPE_CHECKING:
    from rtmem.operations.cache_index import CacheIndex  # needs the extra `memory`, which a cache of nodes does not

_logger: Final = logging.getLogger(__name__)
KNOWN_MAX: Final = 65_536
OPEN_MAX: Final = 16_384
UNEMBEDDED_MAX: Final = 1_024
TENANTS_MAX: Final = 4_096  # whose misses are counted before Redis is told of them
UNKNOWN_US: Final = 0
"""Of a question that was asked nobody knows when: all that was invalidated lately was invalidated after it."""

Waiting = Callable[[Future[Any], float], Any]
"""Waits so many seconds for a future, in the colour of the cache: returns or awaits whether it is done."""


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


@dataclass(slots=True)
class CacheState:
    """What a process remembers; shared by all caches that are bound to other principals."""

    settings: all_settings.Cache
    clock: Callable[[], float] = time.monotonic
    redis_pause: Pause = field(init=False)
    embedder_pause: Pause = field(init=False)  # of look-ups
    writing_pause: Pause = field(init=False)  # of writes, which give the embedder more time
    usage: Usage = field(init=False)
    known: Known = field(default_factory=Known)
    unembedded: Unembedded = field(default_factory=Unembedded)
    open: OpenQuestions = field(init=False)
    counts: Counts = field(default_factory=Counts)
    _flights: dict[str, Future[str | bytes]] = field(default_factory=dict)
    _pid: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.redis_pause = Pause(self.settings.pause_ms, self.clock)
        self.embedder_pause = Pause(self.settings.pause_ms, self.clock)
        self.writing_pause = Pause(self.settings.pause_ms, self.clock)
        self.usage = Usage(self.settings.usage_max)
        self.open = OpenQuestions(self.settings.question_ms_max, self.clock)

    @property
    def flights(self) -> dict[str, Future[str | bytes]]:
        """Id -> how its computing in this process ends. In a forked child those who compute do not exist."""
        if self._pid != os.getpid():
            self._flights, self._pid = {}, os.getpid()
        return self._flights

    def note(self, exc: RtmemError) -> str:
        """Remember a failure: who is to be left alone, and how often it was. One word for it."""
        if isinstance(exc, EmbeddingError):
            what = "embedding_failed"
            self.embedder_pause.begin()
        elif isinstance(exc, DeadlineExceededError) and exc.data.get("late"):
            what = "too_late"
        elif isinstance(exc, DeadlineExceededError):
            what = "deadline"
            self.redis_pause.begin()
        elif isinstance(exc, ServerLoadingError):
            what = "loading"
            self.redis_pause.begin()
        elif isinstance(exc, ServerUnavailableError):
            what = "unavailable"
            self.redis_pause.begin()
        elif isinstance(exc, ServerFullError):
            what = "full"
        elif isinstance(exc, ModuleMissingError):
            what = "no_engine"
        else:
            what = "failed"
            _warn_once(exc)
        self.counts.add(what)
        return what


_warned: Final[set[str]] = set()


def _warn_once(exc: RtmemError) -> None:
    # Nobody expects this one, and it would be nothing but a number in `counts`. Once for each kind and process: it may
    # come with every look-up.
    kind = type(exc).__name__
    if kind not in _warned:
        _warned.add(kind)
        _logger.warning(
            "the cache does not work: %s: %s; models are asked instead, and `counts` counts how often as failed. Other "
            "errors of this kind are not logged again; `rtmem doctor` looks at the Redis and the functions in it",
            kind,
            exc,
        )


def accept_all(draft: CacheDraft) -> CacheDraft:
    """The policy that lets everything into the cache."""
    return draft


@dataclass(frozen=True, slots=True)
class CacheContext:
    """The cache with the eyes of one principal."""

    principal: str
    all_keys: Keys
    serde: Serde
    settings: all_settings.Cache
    index: CacheIndex | None
    guard: Guard | None
    judge: Judge | None
    policy: CachePolicy
    state: CacheState
    wait: Waiting
    _keys: CacheKeys = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_keys", self.all_keys.cache(self.principal))

    @property
    def keys(self) -> CacheKeys:
        """Where this principal's answers are. Raises ConfigError without one: whoever forgot to bind would share."""
        if not self.principal:
            raise ConfigError(
                "this cache is nobody's, and all who forget to say whose it is would share their answers: say it with "
                'cache.bind("ann"), or make it with principal="ann"'
            )
        return self._keys

    @property
    def function_keys(self) -> tuple[str, str]:
        """KEYS of every function."""
        return (self.keys.entries, self.keys.books)

    @property
    def threshold(self) -> float | None:
        """Up to which distance a question may hit; None if nobody said it for this embedder."""
        return None if self.index is None else self.settings.thresholds.get(self.index.embedder_name)

    def note(self, what: str) -> None:
        """Count how a look-up ended: in this process, and for the totals of the tenant."""
        self.state.counts.add(what)
        self.state.usage.note(self.keys.tenant, what)

    def bound(self, principal: str) -> CacheContext:
        """The same cache with the eyes of another principal. Raises IdTooLongError."""
        return replace(self, principal=principal)


class Deadline:
    """A moment until which something has to be done."""

    __slots__ = ("_clock", "_end_s")

    def __init__(self, ms: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end_s = clock() + ms / 1_000

    @property
    def left_ms(self) -> int:
        """How long it may take yet. Raises DeadlineExceededError when the time is over."""
        left_ms = int((self._end_s - self._clock()) * 1_000)
        if left_ms <= 0:
            raise DeadlineExceededError(
                "the cache was not asked in time: what came before it (an embedding, a judge) took all of the deadline",
                late=True,
            )
        return left_ms
