"""Rates, equal hit rates and verdicts follow from distances, refusals and what the classes answered."""

from __future__ import annotations

from loadtest.cache_quality.guard_time import ASKED_NEW, BOTH_NEW, FIRST, READ, times_us
from loadtest.cache_quality.looked import Looked
from loadtest.cache_quality.sets import PairSet
from loadtest.cache_quality.tables import verdicts
from rtmem.operations.calibration import Compared
from rtmem.operations.labelled_pairs import LabelledPair

COMPARED = [
    Compared("paraphrase", 0.01),
    Compared("paraphrase", 0.05),
    Compared("paraphrase", 0.06, "content"),
    Compared("paraphrase", 0.3),
    Compared("number", 0.02, "number"),
    Compared("swap", 0.03),
    Compared("unrelated", 0.8),
    Compared("unrelated", 0.9),
]
TIMES = {FIRST: [90.0], BOTH_NEW: [70.0, 80.0], ASKED_NEW: [10.0, 40.0, 900.0], READ: [10.0]}


def looked(threshold: float, redisvl: list[bool], rtmem: list[bool]) -> Looked:
    pairs = PairSet("en", "held_out", [LabelledPair(each.kind, "a", "b") for each in COMPARED])
    return Looked("local", pairs, COMPARED, threshold, redisvl, 0.1, rtmem)


def test_rates_are_those_of_the_pairs_of_a_kind() -> None:
    seen = looked(0.1, [], [])
    ours, bare = (seen.rates(seen.hits(0.1, guard=guard)) for guard in (True, False))
    assert (ours.hits, ours.false_hits, ours.hard, ours.unrelated, ours.precision) == (0.5, 0.25, 0.5, 0.0, 2 / 3)
    assert (bare.hits, bare.false_hits, bare.hard) == (0.75, 0.5, 1.0)
    assert seen.threshold_at(0.75, guard=True) == 0.3
    assert seen.threshold_at(0.75, guard=False) == 0.06
    assert seen.threshold_at(1.0, guard=True) is None


def test_targets_are_judged_at_equal_hit_rates_and_by_what_the_cache_really_answered() -> None:
    theirs = [each.distance <= 0.1 for each in COMPARED]
    honest = looked(0.1, theirs, [each.hits(0.1) for each in COMPARED])
    found = {verdict.what: verdict for verdict in verdicts([honest], TIMES)}
    hard = found["held out en, local: hard negatives that hit"]
    assert (hard.measured, hard.target, hard.passed) == (0.5, 0.01, False)
    at_theirs = found["held out en, local: false hits at redisvl's hit rate, 75.0%"]
    assert (at_theirs.measured, at_theirs.target) == (0.25, 0.5 / 5)
    at_ours = found["held out en, local: false hits at rtmem's hit rate, 50.0%"]
    assert (at_ours.measured, at_ours.target) == (0.25, 0.5 / 5)
    assert not found["guard, both questions new, median CPU"].passed
    asked_new = found["guard, the asked one new, median CPU"]
    assert (asked_new.measured, asked_new.target, asked_new.passed) == (40, 50, True)
    agreed = found["pairs of which rtmem.cache and the curve disagree"]
    assert (agreed.measured, agreed.passed) == (0, True)
    other = looked(0.1, theirs, theirs)
    assert verdicts([other], TIMES)[-1].measured == 2
    assert not verdicts([looked(0.1, theirs, [])], TIMES)[-1].passed  # it was not asked


def test_the_guard_is_timed_by_what_it_has_read_before() -> None:
    asked: list[str] = []
    ticks = iter(range(10_000))

    def guard(_one: str, other: str) -> None:
        asked.append(other)

    dev = [LabelledPair("name", f"dev {number}", "") for number in range(60)]
    held_out = [LabelledPair("name", f"held out {number}", "") for number in range(3)]
    times = times_us(dev, held_out, guard, clock=lambda: next(ticks) * 1e-6)
    assert {name: len(taken) for name, taken in times.items()} == {FIRST: 50, BOTH_NEW: 2, ASKED_NEW: 1, READ: 15}
    assert asked[:60] == [pair.first for pair in dev]
    assert asked[60:65] == ["held out 0", "held out 2", "", "held out 1", "held out 0"]
    assert all(abs(each - 1) < 1e-6 for taken in times.values() for each in taken)
