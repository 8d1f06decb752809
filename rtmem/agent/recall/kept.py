"""What was recalled, or is being recalled, for a thread: a prefetch until it is asked for, then the turn's own recall.

One for each principal and thread. It ends by its age, by the next one, or when too many others came after it; a
prefetch also by a write of the same principal.
"""

from __future__ import annotations

import threading
import time
from asyncio import Task
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from rtmem.agent.recall import policy
from rtmem.agent.recall.policy import Plan
from rtmem.agent.recall.reading import Recalled
from rtmem.memory import Principal
from rtmem.settings import Recall as Policy

Work: TypeAlias = "Task[Any] | Future[Any]"
"""A recall under way: gives a Recalled, or the RtmemError that ended it."""

Place: TypeAlias = tuple[Principal, str]
"""Whose, and in which thread."""


@dataclass(slots=True)
class Kept:
    """One recall of a thread."""

    plan: Plan
    words: frozenset[str]
    began_s: float
    work: Work
    turn: str | None = None  # id of the message it was made for, or ""; None: a prefetch that nobody has asked for
    outcome: Recalled | None = None  # what that turn was told

    @property
    def has_failed(self) -> bool:
        """It has ended without facts."""
        return self.work.done() and (self.work.cancelled() or not isinstance(self.work.result(), Recalled))


class Shelf:
    """The recalls that are kept. From any thread."""

    def __init__(self, settings: Policy) -> None:
        self._settings: Final = settings
        self._lock: Final = threading.Lock()
        self._kept: OrderedDict[Place, Kept] = OrderedDict()

    def told(self, place: Place, plan: Plan, turn: str) -> Recalled | None:
        """What this turn was told already."""
        with self._lock:
            kept = self._fresh(place)
            return kept.outcome if kept is not None and kept.turn == turn and kept.plan == plan else None

    def take_prefetched(self, place: Place, plan: Plan, words: frozenset[str], turn: str) -> Kept | None:
        """The prefetch of a query that is close enough to this one; it is this turn's from now on."""
        with self._lock:
            kept = self._fresh(place)
            if kept is None or kept.turn is not None or kept.has_failed:
                return None
            if (kept.plan.standing, kept.plan.searched) != (plan.standing, plan.searched):
                return None
            if kept.plan.query != plan.query and policy.likeness(kept.words, words) < self._settings.likeness_min:
                return None
            kept.turn, kept.plan = turn, plan
            return kept

    def prefetching(self, place: Place, plan: Plan) -> bool:
        """Whether exactly this is prefetched already."""
        with self._lock:
            kept = self._fresh(place)
            return kept is not None and kept.turn is None and kept.plan == plan and not kept.has_failed

    def put(self, place: Place, kept: Kept) -> None:
        """Keep a recall; a prefetch in its place that nobody has asked for is cancelled."""
        with self._lock:
            dropped = [self._kept.pop(place)] if place in self._kept else []
            self._kept[place] = kept
            while len(self._kept) > self._settings.kept_max:
                dropped.append(self._kept.popitem(last=False)[1])
        _cancel(dropped)

    def forget(self, principal: Principal) -> None:
        """The memory of this principal has changed. A turn at work keeps what it was told: it made the change."""
        with self._lock:
            places = [place for place, kept in self._kept.items() if place[0] == principal and not kept.turn]
            dropped = [self._kept.pop(place) for place in places]
        _cancel(dropped)

    def clear(self) -> None:
        """Cancel what is under way."""
        with self._lock:
            dropped = list(self._kept.values())
            self._kept.clear()
        _cancel(dropped)

    def _fresh(self, place: Place) -> Kept | None:
        kept = self._kept.get(place)
        if kept is None:
            return None
        keep_ms = self._settings.prefetch_keep_ms if kept.turn is None else self._settings.turn_keep_ms
        return kept if (time.monotonic() - kept.began_s) * 1_000 <= keep_ms else None


def _cancel(dropped: list[Kept]) -> None:
    for kept in dropped:
        if kept.turn is None:  # of the others somebody waits for the answer
            kept.work.cancel()
