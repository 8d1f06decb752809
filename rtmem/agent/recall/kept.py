"""What was recalled, or is being recalled, for a thread: a prefetch until it is asked for, then the turn's own recall.

One of each for a principal and thread. It ends by its age, by the next one, or when too many others came after it; a
prefetch also by a write of the same principal.
"""

from __future__ import annotations

import threading
import time
from asyncio import Task
from collections import OrderedDict
from collections.abc import Callable
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
        """It has ended, and gave no answer."""
        if not self.work.done():
            return False
        gone = self.work.cancelled() or self.work.exception() is not None
        return gone or not isinstance(self.work.result(), Recalled)


class Shelf:
    """The recalls that are kept: of turns, and ahead of them. From any thread."""

    def __init__(self, settings: Policy) -> None:
        self._settings: Final = settings
        self._lock: Final = threading.Lock()
        self._turns: OrderedDict[Place, Kept] = OrderedDict()
        self._ahead: OrderedDict[Place, Kept] = OrderedDict()
        self._waking: Work | None = None

    def wake(self, begin: Callable[[], Work]) -> None:
        """Begin to wake what a recall would wait for, unless that is under way: it is the same for everybody."""
        with self._lock:
            if self._waking is None or self._waking.done():
                self._waking = begin()

    def told(self, place: Place, plan: Plan, turn: str) -> Recalled | None:
        """What this turn was told already; a turn without an id is another one each time."""
        if not turn:
            return None
        with self._lock:
            kept = self._turns.get(place)
            if kept is None or (kept.turn, kept.plan) != (turn, plan) or _is_old(kept, self._settings.turn_keep_ms):
                return None
            return kept.outcome

    def take_prefetched(self, place: Place, plan: Plan, words: frozenset[str], turn: str) -> Kept | None:
        """The prefetch of a query that is close enough to this one; it is this turn's from now on."""
        with self._lock:
            kept = self._fresh(place)
            if kept is None or (kept.plan.standing, kept.plan.searched) != (plan.standing, plan.searched):
                return None
            if kept.plan.query != plan.query and policy.likeness(kept.words, words) < self._settings.likeness_min:
                return None
            del self._ahead[place]
            kept.turn, kept.plan = turn, plan
        self.put(place, kept)
        return kept

    def prefetching(self, place: Place, plan: Plan) -> bool:
        """Whether exactly this is prefetched already."""
        with self._lock:
            kept = self._fresh(place)
            return kept is not None and kept.plan == plan

    def put(self, place: Place, kept: Kept) -> None:
        """Keep a recall; a prefetch in the place of a prefetch cancels that."""
        dropped = []
        with self._lock:
            shelf = self._ahead if kept.turn is None else self._turns
            if place in shelf:
                dropped.append(shelf.pop(place))
            shelf[place] = kept
            while len(shelf) > self._settings.kept_max:
                dropped.append(shelf.popitem(last=False)[1])
        _cancel(dropped)

    def cancel_prefetched(self, place: Place) -> None:
        """Nobody will ask for it."""
        with self._lock:
            kept = self._ahead.pop(place, None)
        _cancel([kept] if kept is not None else [])

    def forget(self, principal: Principal) -> None:
        """The memory of this principal has changed. A turn at work keeps what it was told: it made the change."""
        dropped = []
        with self._lock:
            for shelf in (self._ahead, self._turns):
                places = [place for place, kept in shelf.items() if place[0] == principal and not kept.turn]
                dropped += [shelf.pop(place) for place in places]
        _cancel(dropped)

    def clear(self) -> None:
        """Cancel what is under way."""
        with self._lock:
            dropped = list(self._ahead.values())
            self._ahead.clear()
            self._turns.clear()
        _cancel(dropped)

    def _fresh(self, place: Place) -> Kept | None:
        kept = self._ahead.get(place)
        if kept is None or kept.has_failed or _is_old(kept, self._settings.prefetch_keep_ms):
            return None
        return kept


def _is_old(kept: Kept, keep_ms: int) -> bool:
    return (time.monotonic() - kept.began_s) * 1_000 > keep_ms


def _cancel(dropped: list[Kept]) -> None:
    for kept in dropped:
        if kept.turn is None:  # for the others somebody waits, or has waited
            kept.work.cancel()
