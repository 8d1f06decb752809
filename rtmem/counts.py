"""What each verb did: calls, errors, timeouts, latency, tokens."""

from __future__ import annotations

import threading
import time
from typing import Final

import msgspec

from rtmem.errors import DeadlineExceededError


class VerbCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Of one verb, since the memory or store was opened; all that are bound to other principals included."""

    calls: int = 0
    errors: int = 0  # of these; timeouts included
    timeouts: int = 0
    abstained: int = 0  # of retrieve: nothing was known
    tokens: int = 0  # of retrieve: in what it gave
    latency_us_total: int = 0
    latency_us_max: int = 0


class Tally:
    """One call, counted where its `with` ends; the call fills in what it gave."""

    __slots__ = ("_began_ns", "_counter", "_verb", "abstained", "tokens")

    def __init__(self, counter: Counter, verb: str) -> None:
        self._counter = counter
        self._verb = verb
        self.abstained = 0
        self.tokens = 0

    def __enter__(self) -> Tally:
        self._began_ns = time.perf_counter_ns()
        return self

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        self._counter.note(self._verb, self, (time.perf_counter_ns() - self._began_ns) // 1_000, exc)


class Counter:
    """Counts, from any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._counts: dict[str, VerbCounts] = {}

    @property
    def counts(self) -> dict[str, VerbCounts]:
        """As of now, by verb."""
        return dict(self._counts)

    def call(self, verb: str) -> Tally:
        """Count what happens inside as one call; one that was given up (cancelled) is an error."""
        return Tally(self, verb)

    def note(self, verb: str, tally: Tally, took_us: int, exc: BaseException | None) -> None:
        """One call has ended."""
        with self._lock:
            old = self._counts.get(verb, _NONE)
            self._counts[verb] = VerbCounts(
                calls=old.calls + 1,
                errors=old.errors + (exc is not None),
                timeouts=old.timeouts + isinstance(exc, DeadlineExceededError),
                abstained=old.abstained + tally.abstained,
                tokens=old.tokens + tally.tokens,
                latency_us_total=old.latency_us_total + took_us,
                latency_us_max=max(old.latency_us_max, took_us),
            )


_NONE: Final = VerbCounts()
