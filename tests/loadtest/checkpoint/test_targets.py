"""Verdicts follow from what was measured, and a target that was not measured does not pass."""

from __future__ import annotations

from loadtest.checkpoint.targets import verdicts
from rtmem.loadtest import Experiment, Measured


def experiment(name: str, rows: list[Measured], baseline: str = "floor+serde", concurrency: int = 1) -> Experiment:
    return Experiment(name=name, baseline=baseline, concurrency=concurrency, rounds=1, operations=1, rows=rows)


def test_a_ratio_is_judged_for_each_saver_and_shown_beside_the_best_peer() -> None:
    rows = [
        Measured(contender="floor+serde", ratio=1.0),
        Measured(contender="rtmem full", ratio=1.25),
        Measured(contender="rtmem shallow", ratio=1.35),
        Measured(contender="sqlite", ratio=1.5),
        Measured(contender="postgres", ratio=3.0),
        Measured(contender="memory", ratio=0.4),
    ]

    full, shallow = verdicts([experiment("aput, whole state new, 50 KB", rows)])

    assert (full.measured, full.passed) == (1.25, True)
    assert (shallow.measured, shallow.passed) == (1.35, False)
    # InMemorySaver and the floor are yardsticks, not peers.
    assert full.best_other == "sqlite 1.50"


def test_a_saver_that_failed_has_not_passed() -> None:
    rows = [Measured(contender="rtmem full", errors=3, first_error="boom")]

    (verdict,) = verdicts([experiment("aput_writes, 2 KB", rows)])

    assert verdict.measured is None
    assert not verdict.passed


def test_a_graph_is_judged_against_the_floor_and_against_memory() -> None:
    rows = [
        Measured(contender="floor saver", ratio=1.0),
        Measured(contender="memory", ratio=0.5),
        Measured(contender="rtmem full", ratio=1.1),
        Measured(contender="plainredis", ratio=1.5),
    ]

    to_floor, to_memory = verdicts([experiment("3-node graph, one turn of 20", rows, "floor saver", 32)])

    assert (to_floor.target, to_floor.measured, to_floor.passed) == (1.2, 1.1, True)
    assert (to_memory.target, to_memory.measured, to_memory.passed) == (1.6, 2.2, False)
    assert to_memory.best_other == "3.00"


def test_growth_is_judged_in_megabytes_and_shallow_against_shallow() -> None:
    rows = [
        Measured(contender="rtmem full", facts={"bytes": 400_000}),
        Measured(contender="rtmem shallow", facts={"bytes": 150_000}),
        Measured(contender="lg-redis full", facts={"bytes": 5_000_000}),
        Measured(contender="lg-redis shallow", facts={"bytes": 600_000}),
    ]

    full, shallow = verdicts([experiment("growth, 200 super-steps", rows, "")])

    assert (full.measured, full.passed, full.best_other) == (0.4, True, "5.00 MB")
    assert (shallow.measured, shallow.passed, shallow.best_other) == (0.15, False, "0.60 MB")


def test_a_missing_fact_of_the_full_saver_is_a_failure() -> None:
    rows = [Measured(contender="rtmem full", facts={"held get B": 200}), Measured(contender="rtmem shallow", facts={})]

    found = {verdict.what: verdict for verdict in verdicts([experiment("on the wire (RT: round trips)", rows, "")])}

    assert found["B on the wire, head held: rtmem full"].passed
    lost = found["round trips, 60 messages in a delta channel: rtmem full"]
    assert lost.measured is None
    assert not lost.passed
