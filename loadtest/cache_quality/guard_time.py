"""How long a look-up waits for the guard, by what this process has read before: nothing, a question or both.

All of it is waited for, after the embedding and the query. To read the question beside the embedding was tried: what
comes after takes 18 us less then, and the embedding 80 to 120 us more, because both want the interpreter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from rtmem.operations.labelled_pairs import LabelledPair

FIRST, BOTH_NEW, ASKED_NEW, READ = FAMILIARITY = (
    *("no word ever read", "both questions new", "the asked one new", "both read before"),
)
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

    What is held out is asked after all of dev, whose words are known then; half of it with the stored question compared
    before.

    clock: seconds; of this thread by default, because the guard waits for nothing, and others are at work, too.
    """
    _timed(dev[:1], guard, clock)  # tables that are made once
    first = _timed(dev[1 : _FIRST_PAIRS + 1], guard, clock)
    _timed(dev[_FIRST_PAIRS + 1 :], guard, clock)
    both_new = _timed(held_out[::2], guard, clock)
    asked_new = []
    for pair in held_out[1::2]:
        guard(pair.first, "")
        asked_new += _timed([pair], guard, clock)
    read = [each for _ in range(_TURNS) for each in _timed(held_out, guard, clock)]
    return {FIRST: first, BOTH_NEW: both_new, ASKED_NEW: asked_new, READ: read}


def _timed(
    pairs: Sequence[LabelledPair], guard: Callable[[str, str], object], clock: Callable[[], float]
) -> list[float]:
    taken = []
    for pair in pairs:
        begin = clock()
        guard(pair.second, pair.first)
        taken.append((clock() - begin) * 1e6)
    return taken
