"""What each verb did: calls, errors, timeouts, latency, tokens."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from rtmem.errors import DeadlineExceededError


class VerbCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Of one verb, since the memory was opened; all that are bound to other principals included."""

    calls: int = 0
    errors: int = 0  # of these; timeouts included
    timeouts: int = 0
    abstained: int = 0  # of retrieve: nothing was known
    tokens: int = 0  # of retrieve: in what it gave
    latency_us_total: int = 0
    latency_us_max: int = 0


class Tally:
    """What one call will have counted; the call fills it in."""

    __slots__ = ("abstained", "tokens")

    def __init__(self) -> None:
        self.abstained = 0
        self.tokens = 0


class Counter:
    """Counts, from any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._counts: dict[str, VerbCounts] = {}

    @property
    def counts(self) -> dict[str, VerbCounts]:
        """As of now, by verb."""
        return dict(self._counts)

    @contextmanager
    def call(self, verb: str) -> Iterator[Tally]:
        """Count what happens inside as one call; one that was given up (cancelled) is an error."""
        tally, began = Tally(), time.perf_counter_ns()
        errors = timeouts = 0
        try:
            yield tally
        except BaseException as exc:
            errors, timeouts = 1, int(isinstance(exc, DeadlineExceededError))
            raise
        finally:
            took_us = (time.perf_counter_ns() - began) // 1_000
            with self._lock:
                old = self._counts.get(verb, VerbCounts())
                self._counts[verb] = VerbCounts(
                    calls=old.calls + 1,
                    errors=old.errors + errors,
                    timeouts=old.timeouts + timeouts,
                    abstained=old.abstained + tally.abstained,
                    tokens=old.tokens + tally.tokens,
                    latency_us_total=old.latency_us_total + took_us,
                    latency_us_max=max(old.latency_us_max, took_us),
                )
