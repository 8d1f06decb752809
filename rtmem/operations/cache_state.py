"""Whose answers an operation is about, how they are kept, and what this process remembers of them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
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
from rtmem.operations.cache_notes import Counts, Ending, Known, OpenQuestions, Pause, Unembedded, Usage
from rtmem.operations.cache_records import CacheDraft, CachePolicy, Guard, Judge
from rtmem.operations.serde import Serde

if TYPE_CHECKING:
    from rtmem.operations.cache_index import CacheIndex  # needs the extra `memory`, which a cache of nodes does not

_logger: Final = logging.getLogger(__name__)

Waiting = Callable[[Future[Any], float], Any]
"""Waits so many seconds for a future, in the colour of the cache: returns or awaits whether it is done."""


@dataclass(slots=True)
class CacheState:
    """What a process remembers; shared by all caches that are bound to other principals."""

    settings: all_settings.Cache
    clock: Callable[[], float] = time.monotonic
    redis_pause: Pause = field(init=False)
    embedder_pause: Pause = field(init=False)  # of look-ups
    writing_pause: Pause = field(init=False)  # of writes, which give the embedder more time
    known: Known = field(default_factory=Known)
    unembedded: Unembedded = field(default_factory=Unembedded)
    open: OpenQuestions = field(init=False)
    counts: Counts = field(default_factory=Counts)
    _flights: dict[str, Future[Ending]] = field(default_factory=dict)
    _usage: Usage = field(init=False)
    _pid: int = field(default_factory=os.getpid)

    def __post_init__(self) -> None:
        self.redis_pause = Pause(self.settings.pause_ms, self.clock)
        self.embedder_pause = Pause(self.settings.pause_ms, self.clock)
        self.writing_pause = Pause(self.settings.pause_ms, self.clock)
        self._usage = Usage(self.settings.usage_max)
        self.open = OpenQuestions(self.settings.question_ms_max, self.clock)

    @property
    def flights(self) -> dict[str, Future[Ending]]:
        """Id -> how its computing in this process ends."""
        self._begin_anew_in_a_child()
        return self._flights

    @property
    def usage(self) -> Usage:
        """What Redis was not told of yet."""
        self._begin_anew_in_a_child()
        return self._usage

    def _begin_anew_in_a_child(self) -> None:
        # In a forked child those who compute do not exist, and its parent tells of the hits that it had.
        if self._pid != os.getpid():
            self._flights, self._usage, self._pid = {}, Usage(self.settings.usage_max), os.getpid()

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
