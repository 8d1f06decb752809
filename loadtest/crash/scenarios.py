"""Every scenario of the lab, in the order in which they run. A module that adds some is named here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from loadtest.crash import disk_faults, full_memory, kills, power_plans, replicas
from loadtest.crash.lab import Scenario
from loadtest.crash.outcome import Outcome, Verdict

SCENARIOS: Final[list[Scenario]] = [
    *power_plans.SCENARIOS,
    *kills.SCENARIOS,
    *disk_faults.SCENARIOS,
    *full_memory.SCENARIOS,
    *replicas.SCENARIOS,
]


def always_promised(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """What holds after every crash of every kind."""
    faults = [fault for one in outcomes for fault in one.faults]
    starts = {how: sum(1 for one in outcomes if one.start == how) for how in ("accept-loss", "failed")}
    alone = len(outcomes) - sum(starts.values())
    return [
        Verdict(
            what="everything stored is whole",
            promised="no half checkpoint, no dangling or left piece, no index entry without value, graphs resume",
            found=f"{len(faults)} faults after {len(outcomes)} crashes" + (f", first: {faults[0]}" if faults else ""),
            kept=not faults,
        ),
        Verdict(
            what="it comes back",
            promised="unattended, or by `rtmem repair --accept-loss`",
            found=f"{alone} unattended, {starts['accept-loss']} by accept-loss, {starts['failed']} not",
            kept=not starts["failed"],
        ),
    ]
