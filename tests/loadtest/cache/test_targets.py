"""Verdicts follow from what was measured, and a target that was not measured does not pass."""

from __future__ import annotations

from loadtest.cache.targets import verdicts
from loadtest.cache.verbs import GET, MISS, SEARCH
from rtmem.loadtest import Experiment, Measured


def experiment(name: str, ratios: dict[str, float | None], baseline: str) -> Experiment:
    rows = [Measured(contender=contender, ratio=ratio) for contender, ratio in ratios.items()]
    return Experiment(name=name, baseline=baseline, concurrency=1, rounds=1, operations=1, rows=rows)


def test_an_exact_hit_is_judged_beside_the_best_peer() -> None:
    (verdict,) = verdicts(
        [experiment("exact hit, 10 entries", {GET: 1.0, "rtmem": 1.3, "redisvl": 40.0, "LangChain": 30.0}, GET)]
    )
    assert (verdict.measured, verdict.target, verdict.passed) == (1.3, 1.2, False)
    assert verdict.best_other == "LangChain 30.00"


def test_a_miss_is_judged_by_what_raw_commands_take_for_its_own_texts() -> None:
    ratios = {SEARCH: 1.0, "rtmem": 1.1, f"rtmem{MISS}": 2.2, f"{SEARCH}{MISS}": 2.0, "redisvl": 1.4}
    hit, miss = verdicts([experiment("by meaning, 10 entries", dict(ratios), SEARCH)])
    assert (hit.measured, hit.passed, hit.best_other) == (1.1, True, "redisvl 1.40")
    assert miss.measured is not None
    assert abs(miss.measured - 1.0) < 1e-9
    assert miss.passed


def test_what_failed_has_not_passed() -> None:
    ratios: dict[str, float | None] = {SEARCH: 1.0, "rtmem": None}
    assert [verdict.passed for verdict in verdicts([experiment("by meaning", ratios, SEARCH)])] == [False, False]
