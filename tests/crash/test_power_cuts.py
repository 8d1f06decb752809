"""The power goes while a fleet writes checkpoints and talks: what was acknowledged as durable is there afterwards.

The short form of `python -m loadtest crash`: every kind of cut once or twice, with seeds printed. The controls have to
lose, or to tear: a model of a power cut that takes nothing away proves nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from loadtest.crash.fleet import Crew
from loadtest.crash.lab import Lab, laboratory
from loadtest.crash.outcome import UNATTENDED, Outcome
from loadtest.crash.power_cuts import NO_CREW, Cell, cut_once
from tests.crash.faults import covering

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

EVERYWHERE = pytest.mark.parametrize("kind", ["ext4", "xfs", "shim"])
RUN_S = (0.3, 0.8)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with laboratory(random.randrange(2**32), 1) as lab:
        yield lab


async def cut(lab: Lab, cell: Cell, number: int = 0) -> Outcome:
    """One cut; whatever it takes away, what is left is whole, and the server is back."""
    with covering():
        outcome = await cut_once(lab, cell, number)
    print(outcome)
    assert outcome.faults == ()
    assert outcome.start != "failed"
    return outcome


@EVERYWHERE
async def test_nothing_acknowledged_is_lost_under_durable(kind: str, lab: Lab) -> None:
    outcome = await cut(lab, Cell(scenario="durable", profile="durable", volume=kind, cuts=1, run_s=RUN_S))
    assert outcome.acked > 0
    assert outcome.lost == 0
    assert outcome.start in UNATTENDED


@EVERYWHERE
async def test_nothing_proved_by_fsync_is_lost_under_balanced(kind: str, lab: Lab) -> None:
    cell = Cell(scenario="ack fsync", profile="balanced", ack="fsync", volume=kind, cuts=1, crew=Crew().times(3))
    outcome = await cut(lab, cell)
    assert outcome.acked > 0
    assert outcome.lost == 0


@pytest.mark.parametrize("kind", ["ext4", "xfs"])
async def test_nothing_proved_is_lost_near_a_rewrite_beside_another_who_fsyncs(kind: str, lab: Lab) -> None:
    cell = Cell(scenario="durable", profile="durable", volume=kind, cuts=1, rewrite=True, side_fsync=True, run_s=RUN_S)
    assert (await cut(lab, cell)).lost == 0
    proved = replace(cell, scenario="ack fsync", profile="balanced", ack="fsync", talkers=0, crew=Crew().times(3))
    assert (await cut(lab, proved)).lost == 0


@EVERYWHERE
async def test_relaxed_has_to_lose(kind: str, lab: Lab) -> None:
    cell = Cell(scenario="relaxed", profile="relaxed", volume=kind, cuts=1, run_s=RUN_S, talkers=0)
    outcome = await cut(lab, cell)
    assert outcome.lost > 0
    assert outcome.window_ms > 0


async def test_a_log_that_is_not_synced_during_a_rewrite_has_to_lose_near_one(lab: Lab) -> None:
    spoiled = ("no-appendfsync-on-rewrite yes", "rdb-key-save-delay 50000")
    cell = Cell(scenario="rewrite", profile="durable", volume="shim", cuts=10, rewrite=True, run_s=RUN_S, talkers=0)
    cell = replace(cell, extra_conf=spoiled)
    # Where the rewrite begins right before the cut there is nothing to lose yet.
    for number in range(cell.cuts):
        if (await cut(lab, cell, number)).lost:
            return
    pytest.fail(f"{cell.cuts} cuts during a rewrite without fsync, and nothing was lost")


async def test_a_log_with_a_damaged_tail_starts_unattended(lab: Lab) -> None:
    cell = Cell(scenario="tail", profile="balanced", volume="ext4", cuts=2, side_fsync=True, talkers=0)
    cell = replace(cell, crew=Crew(1, 0, 1, 0, quiet=True))
    for number in range(cell.cuts):
        assert (await cut(lab, cell, number)).start in UNATTENDED


async def test_commands_without_multi_have_to_tear(lab: Lab) -> None:
    cell = Cell(scenario="groups", profile="balanced", volume="shim", cuts=10, crew=NO_CREW, groups=24, talkers=0)
    cell = replace(cell, multi=False, run_s=(0.6, 1.2))
    # Most cuts fall into a group of somebody, not all.
    for number in range(cell.cuts):
        if (await cut(lab, cell, number)).torn:
            return
    pytest.fail(f"{cell.cuts} cuts, and no group was torn")


@EVERYWHERE
async def test_the_same_commands_in_multi_do_not_tear(kind: str, lab: Lab) -> None:
    cell = Cell(scenario="groups", profile="balanced", volume=kind, cuts=1, crew=NO_CREW, groups=24, talkers=0)
    assert (await cut(lab, cell)).torn == 0
