"""How long the guard takes: for the first texts of a process, for new ones later, and for texts it has just seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rtmem.operations.labelled_pairs import LabelledPair

FIRST, NEW_TEXTS, AGAIN = "first of the process", "new texts", "the same again"
_FIRST_PAIRS: Final = 50
_TURNS: Final = 5

Times: TypeAlias = dict[str, list[float]]
"""Of each call, in µs, by what the guard knew of its texts."""


def times_us(
    dev: Sequence[LabelledPair],
    held_out: Sequence[LabelledPair],
    guard: Callable[[str, str], object],
    clock: Callable[[], float] = time.thread_time,
) -> Times:
    """What the guard takes for pairs. Call it before it has seen any: what it keeps of words is part of the answer.

    clock: seconds; of this thread by default, because the guard waits for nothing, and others are at work, too.
    """
    _timed(dev[:1], guard, clock)  # tables that are made once
    first = _timed(dev[1 : _FIRST_PAIRS + 1], guard, clock)
    _timed(dev[_FIRST_PAIRS + 1 :], guard, clock)
    new = _timed(held_out, guard, clock)
    again = [each for _ in range(_TURNS) for each in _timed(held_out, guard, clock)]
    return {FIRST: first, NEW_TEXTS: new, AGAIN: again}


def _timed(
    pairs: Sequence[LabelledPair], guard: Callable[[str, str], object], clock: Callable[[], float]
) -> list[float]:
    taken = []
    for pair in pairs:
        begin = clock()
        guard(pair.second, pair.first)
        taken.append((clock() - begin) * 1e6)
    return taken
