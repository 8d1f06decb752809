"""What the lab makes of outcomes: a broken promise and a control that does not bite are both failures."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.crash import power_plans
from loadtest.crash.lab import laboratory
from loadtest.crash.outcome import Outcome, Verdict
from loadtest.crash.scenarios import SCENARIOS, always_promised


def outcome(**fields: Any) -> Outcome:
    return Outcome(**{"scenario": "s", "profile": "balanced", "seed": "7", "volume": "ext4", "acked": 10, **fields})


def kept(verdicts: list[Verdict]) -> list[bool]:
    return [one.kept for one in verdicts]


def test_one_lost_acknowledgement_breaks_a_promise_of_none() -> None:
    assert kept(power_plans.nothing_lost("durable", [outcome(), outcome()])) == [True]
    assert kept(power_plans.nothing_lost("durable", [outcome(), outcome(lost=1)])) == [False]


def test_a_run_in_which_nothing_was_acknowledged_proves_nothing() -> None:
    assert kept(power_plans.nothing_lost("durable", [outcome(acked=0)])) == [False]


def test_the_window_may_be_longer_by_the_longest_fsync_of_its_own_run() -> None:
    slow = outcome(window_ms=2_400.0, longest_fsync_ms=500.0)
    assert kept(power_plans.window_kept([outcome(window_ms=1_900.0), slow])) == [True]
    assert kept(power_plans.window_kept([outcome(window_ms=2_400.0), slow])) == [False]


def test_the_control_has_to_lose_on_every_volume() -> None:
    lost = [outcome(volume=kind, lost=1) for kind in ("ext4", "xfs", "shim")]
    assert kept(power_plans.must_lose("relaxed", lost)) == [True]
    assert kept(power_plans.must_lose("relaxed", [*lost[:2], outcome(volume="shim")])) == [False]


def test_the_control_without_multi_has_to_tear_and_multi_must_not() -> None:
    def groups(control: int, multi: int) -> list[Outcome]:
        names = ("groups without MULTI (control)", "groups in MULTI")
        return [outcome(scenario=name, torn=torn) for name, torn in zip(names, (control, multi), strict=True)]

    assert kept(power_plans.groups_torn(groups(3, 0))) == [True, True]
    assert kept(power_plans.groups_torn(groups(0, 0))) == [False, True]
    assert kept(power_plans.groups_torn(groups(3, 1))) == [True, False]


@pytest.mark.parametrize(
    ("starts", "good"),
    [(["repaired", "unattended"], True), (["unattended"], False), (["repaired", "accept-loss"], False)],
    ids=["all alone", "no damage at all", "somebody was needed"],
)
def test_tail_damage_has_to_happen_and_to_be_repaired_unasked(starts: list[Any], good: bool) -> None:
    assert kept(power_plans.started_unattended([outcome(start=start) for start in starts])) == [good]


def test_a_lost_sector_that_is_not_refused_breaks_the_promise() -> None:
    assert kept(power_plans.refused_and_resolved([outcome(start="accept-loss")])) == [True]
    assert kept(power_plans.refused_and_resolved([outcome(start="accept-loss"), outcome()])) == [False]


def test_after_every_crash_all_is_whole_and_the_server_is_back() -> None:
    assert kept(always_promised([outcome(), outcome(lost=5, start="accept-loss")])) == [True, True]
    assert kept(always_promised([outcome(faults=("half a checkpoint",))])) == [False, True]
    assert kept(always_promised([outcome(start="failed", faults=("it does not start",))])) == [False, False]


def test_the_usual_run_cuts_often_enough() -> None:
    with laboratory(7, 104) as lab:
        for plan in (power_plans.durable(lab), power_plans.balanced_fsync(lab)):
            on_disks = [cell for cell in plan if cell.volume in ("ext4", "xfs")]
            assert sum(cell.cuts for cell in on_disks) >= 100
            assert {(cell.volume, cell.rewrite, cell.side_fsync) for cell in on_disks} == {
                (kind, rewrite, side) for kind in ("ext4", "xfs") for rewrite in (0, 1) for side in (0, 1)
            }
        assert sum(cell.cuts for cell in power_plans.tail_damage(lab)) >= 60


def test_the_same_seed_decides_the_same_whatever_else_is_run() -> None:
    with laboratory(7, 1) as one, laboratory(7, 1) as other:
        other.chance("something else").random()
        assert one.chance("durable", 3).random() == other.chance("durable", 3).random()
        assert one.chance("durable", 3).random() != one.chance("durable", 4).random()


def test_every_scenario_has_a_name_of_its_own() -> None:
    names = [one.name for one in SCENARIOS]
    assert len(set(names)) == len(names)
