"""Verdicts follow from what was measured, and a target that was not measured does not pass."""

from __future__ import annotations

from loadtest.memory.growth import INDEX
from loadtest.memory.targets import verdicts
from rtmem.loadtest import Experiment, Measured


def experiment(name: str, rows: list[Measured], baseline: str = "raw") -> Experiment:
    return Experiment(name=name, baseline=baseline, concurrency=1, rounds=1, operations=1, rows=rows)


def test_a_ratio_is_judged_beside_the_best_peer() -> None:
    rows = [
        Measured(contender="raw", ratio=1.0),
        Measured(contender="rtmem", ratio=1.4),
        Measured(contender="InMemoryStore", ratio=0.1),
        Measured(contender="RedisVL index", ratio=1.6),
        Measured(contender="AsyncPostgresStore", ratio=7.0),
    ]
    (verdict,) = verdicts([experiment("put, one item", rows)])
    assert (verdict.measured, verdict.target, verdict.passed) == (1.4, 1.3, False)
    assert verdict.best_other == "RedisVL index 1.60"  # InMemoryStore is a yardstick


def test_a_ratio_is_also_judged_to_commands_that_encode_in_the_measured_time() -> None:
    rows = [
        Measured(contender="raw", ratio=1.0),
        Measured(contender="raw+serde", ratio=1.5),
        Measured(contender="rtmem", ratio=1.8),
    ]
    strict, fair = verdicts([experiment("put, one item", rows)])
    assert (strict.measured, strict.passed) == (1.8, False)
    assert (fair.measured, fair.passed) == (1.8 / 1.5, True)


def test_a_failed_store_has_not_passed() -> None:
    (verdict,) = verdicts([experiment("search", [Measured(contender="rtmem", errors=3, first_error="boom")])])
    assert (verdict.measured, verdict.passed) == (None, False)


def test_growth_is_judged_to_ten_thousand_items_only() -> None:
    rows = [Measured(contender="10,000 items", ratio=1.0), Measured(contender="1,000,000 items", ratio=1.8)]
    (verdict,) = verdicts([experiment("search, hnsw, a tenant of 100", rows, "10,000 items")])
    assert (verdict.measured, verdict.target, verdict.passed) == (1.8, 2.0, True)
    assert verdicts([experiment("search, hnsw, a tenant of 100", rows[1:], "500 items")]) == []


def test_recall_must_be_there_and_high_enough() -> None:
    rows = [Measured(contender="hnsw, 10,000 items", facts={"recall of 100": 0.96})]
    small, large = verdicts([experiment(INDEX, rows, "")])
    assert (small.measured, small.passed) == (0.96, True)
    assert (large.measured, large.passed) == (None, False)
