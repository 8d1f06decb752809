"""Whether the time of an answer tells a stranger's pointer from one that never was (it must not).

Each kind is asked for in turn, in an order shuffled by the seed, and a rank test (Mann and Whitney 1947) says how
probable differences like these are if there is none. At a true "no difference", 1 run in 100 ends below p = .01.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from rtmem.errors import PointerNotFoundError
from rtmem.loadtest import Experiment, Latency, Measured, Verdict
from rtmem.operations.pointers import new_id
from rtmem.pointers import Pointers

FOREIGN, ABSENT = "somebody else's", "never made"
_CERTAINTY: Final = "certainty %"
_CERTAINTY_MAX: Final = 99.0
_VERBS: Final[dict[str, Callable[[Pointers, str], Any]]] = {
    "resolve": lambda pointers, pointer: pointers.resolve(pointer),
    "slice": lambda pointers, pointer: pointers.slice(pointer, "characters", 0, 100),
    "delete": lambda pointers, pointer: pointers.delete(pointer),
}


def guessing(url: str, seed: int, *, count: int = 1_000) -> list[Experiment]:
    """One experiment a verb, `count` timings of each kind of id."""
    with Pointers(url, principal="owner") as owner:
        foreign = [owner.offload(f"{number}, and a secret. " * 50, ttl_ms=600_000).id for number in range(count)]
        stranger = owner.bind("stranger")
        return [_timed(name, verb, stranger, foreign, Random(seed)) for name, verb in _VERBS.items()]


def verdicts(experiments: Sequence[Experiment]) -> list[Verdict]:
    """One a verb: p is above .01 where the certainty of a difference is below 99 %."""
    return [
        Verdict.of(
            f"{experiment.name}, against one that never was: certainty of a difference",
            target=_CERTAINTY_MAX,
            measured=row.facts[_CERTAINTY],
            unit="%",
        )
        for experiment in experiments
        for row in experiment.rows
        if row.contender == FOREIGN
    ]


def _timed(
    name: str, verb: Callable[[Pointers, str], Any], stranger: Pointers, foreign: list[str], random: Random
) -> Experiment:
    asked = [(FOREIGN, pointer) for pointer in foreign] + [(ABSENT, new_id()) for _ in foreign]
    random.shuffle(asked)
    took: dict[str, list[float]] = {FOREIGN: [], ABSENT: []}
    for _, pointer in asked[:100]:
        _ask(verb, stranger, pointer)  # connections and caches
    for kind, pointer in asked:
        took[kind].append(_ask(verb, stranger, pointer))
    p = rank_test(took[FOREIGN], took[ABSENT])
    rows = [
        Measured(contender=kind, latency=Latency.of(times), facts={_CERTAINTY: 100 * (1 - p)})
        for kind, times in took.items()
    ]
    return Experiment(
        name=f"{name}, an id that is somebody else's",
        baseline=ABSENT,
        concurrency=1,
        rounds=1,
        operations=len(foreign),
        rows=rows,
        note=f"rank test: p = {p:.3f}; the certainty of a difference is 1 - p",
    )


def _ask(verb: Callable[[Pointers, str], Any], stranger: Pointers, pointer: str) -> float:
    begin = time.perf_counter_ns()
    try:
        answered = verb(stranger, pointer)
    except PointerNotFoundError:
        answered = False
    took_us = (time.perf_counter_ns() - begin) / 1000
    assert answered is False, f"a stranger was answered: {answered!r}"
    return took_us


def rank_test(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of Mann and Whitney's U, by the normal approximation with its correction for ties."""
    n, m = len(first), len(second)
    merged = sorted([(value, 0) for value in first] + [(value, 1) for value in second])
    ranks, ties, at = 0.0, 0, 0
    while at < n + m:
        end = at
        while end < n + m and merged[end][0] == merged[at][0]:
            end += 1
        equal = end - at
        ties += equal**3 - equal
        ranks += sum(1 for _, which in merged[at:end] if which == 0) * (at + 1 + end) / 2
        at = end
    u = ranks - n * (n + 1) / 2
    spread = math.sqrt(n * m / 12 * ((n + m + 1) - ties / ((n + m) * (n + m - 1))))
    if spread == 0:
        return 1.0
    return math.erfc(max(0.0, abs(u - n * m / 2) - 0.5) / spread / math.sqrt(2))
