"""Which power cuts prove which promise, and the controls without which they would prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from loadtest.crash.fleet import Crew
from loadtest.crash.lab import Lab, Scenario
from loadtest.crash.outcome import UNATTENDED, Outcome, Verdict
from loadtest.crash.power_cuts import NO_CREW, Cell, run

MADE_FOR_DISKS: Final = ("ext4", "xfs")
WINDOW_MS: Final = 2_000  # of `balanced`, and the longest fsync on top
_WAITING_CREW: Final = Crew().times(4)  # each waits up to a second for its proof: more of them, to have acks at all


def _everywhere(cuts: int, cell: Callable[..., Cell]) -> list[Cell]:
    """`cuts` spread over ext4 and XFS, with and without a rewrite and a side process; and some under the shim."""
    real = [(kind, rewrite, side) for kind in MADE_FOR_DISKS for rewrite in (False, True) for side in (False, True)]
    each = -(-cuts // len(real))
    cells = [cell(volume=kind, rewrite=rewrite, side_fsync=side, cuts=each) for kind, rewrite, side in real]
    return [*cells, *(cell(volume="shim", rewrite=rewrite, cuts=-(-cuts // 50)) for rewrite in (False, True))]


def durable(lab: Lab) -> list[Cell]:
    return _everywhere(lab.cuts, partial(Cell, scenario="durable", profile="durable"))


def balanced_fsync(lab: Lab) -> list[Cell]:
    cell = partial(Cell, scenario="ack fsync", profile="balanced", ack="fsync")
    return _everywhere(lab.cuts, partial(cell, run_s=(1.3, 2.6), crew=_WAITING_CREW, talkers=4))


def balanced_window(lab: Lab) -> list[Cell]:
    # Long enough that more than the window could be lost.
    return _everywhere(-(-lab.cuts // 4), partial(Cell, scenario="window", profile="balanced", run_s=(2.5, 4.0)))


def tail_damage(lab: Lab) -> list[Cell]:
    cell = Cell(
        scenario="tail damage",
        profile="balanced",
        volume="ext4",
        side_fsync=True,
        cuts=-(-lab.cuts * 6 // 10),
        run_s=(1.2, 2.2),
        # ext4 (Linux 6.18) makes such tails where small writes follow an fsync; a torrent makes hardly any.
        crew=Crew(1, 0, 1, 0, quiet=True),
        talkers=0,
        ask_raw_redis=True,
    )
    return [cell]


def sector_lost(lab: Lab) -> list[Cell]:
    cell = partial(Cell, scenario="sector lost", profile="durable", sector_lost=True, ask_raw_redis=True)
    return [cell(volume=kind, cuts=max(1, lab.cuts // 25)) for kind in MADE_FOR_DISKS]


def relaxed(lab: Lab) -> list[Cell]:
    cell = partial(Cell, scenario="relaxed (control)", profile="relaxed", cuts=max(1, lab.cuts // 35))
    return [cell(volume=kind) for kind in (*MADE_FOR_DISKS, "shim")]


def unsynced_rewrite(lab: Lab) -> list[Cell]:
    cell = partial(
        Cell,
        scenario="no fsync in a rewrite (control)",
        profile="durable",
        rewrite=True,
        # The second line makes the rewrite last until the cut: 50 ms for each key.
        extra_conf=("no-appendfsync-on-rewrite yes", "rdb-key-save-delay 50000"),
        talkers=0,
    )
    return [cell(volume=kind, cuts=max(2, lab.cuts // 25)) for kind in (*MADE_FOR_DISKS, "shim")]


def groups(lab: Lab) -> list[Cell]:
    cuts = max(1, lab.cuts // 25)
    cell = partial(Cell, profile="balanced", crew=NO_CREW, talkers=0, groups=24, cuts=cuts)
    return [
        cell(scenario=scenario, volume=kind, multi=multi, side_fsync=kind == "ext4")
        for scenario, multi in (("groups without MULTI (control)", False), ("groups in MULTI", True))
        for kind in (*MADE_FOR_DISKS, "shim")
    ]


# --- what was promised ---------------------------------------------------------------------------------------------


def nothing_lost(what: str, outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Not one acknowledgement, in any cut."""
    acked, lost = sum(one.acked for one in outcomes), sum(one.lost for one in outcomes)
    found = f"{lost:,} lost of {acked:,} in {len(outcomes)} power cuts"
    return [Verdict(what=what, promised="0 acknowledged calls lost", found=found, kept=acked > 0 and lost == 0)]


def window_kept(outcomes: Sequence[Outcome]) -> list[Verdict]:
    worst = max(outcomes, key=lambda one: one.window_ms - one.longest_fsync_ms)
    kept = all(one.window_ms <= WINDOW_MS + one.longest_fsync_ms for one in outcomes)
    found = f"at most {worst.window_ms:,.0f} ms, longest fsync of that run {worst.longest_fsync_ms:,.0f} ms"
    promised = f"window <= {WINDOW_MS:,} ms + the longest fsync"
    return [Verdict(what="balanced", promised=promised, found=found, kept=kept)]


def must_lose(control: str, outcomes: Sequence[Outcome]) -> list[Verdict]:
    """A model of a power cut that takes nothing away proves nothing: on every volume something has to go."""
    kinds = sorted({one.volume for one in outcomes})
    biting = [kind for kind in kinds if any(one.lost for one in outcomes if one.volume == kind)]
    found = f"{sum(one.lost for one in outcomes):,} lost of {sum(one.acked for one in outcomes):,}"
    return [
        Verdict(
            what=f"control: {control}",
            promised=f"has to lose on {', '.join(kinds)}",
            found=f"{found}; on {', '.join(biting) or 'none'}",
            kept=biting == kinds,
        )
    ]


def groups_torn(outcomes: Sequence[Outcome]) -> list[Verdict]:
    verdicts = []
    for name in dict.fromkeys(one.scenario for one in outcomes):
        mine = [one for one in outcomes if one.scenario == name]
        torn, cuts = sum(one.torn for one in mine), sum(1 for one in mine if one.torn)
        control = "control" in name
        verdicts.append(
            Verdict(
                what="control: commands without MULTI" if control else "the same commands in MULTI",
                promised="has to tear" if control else "never torn",
                found=f"{torn} torn groups, in {cuts} of {len(mine)} power cuts",
                kept=torn > 0 if control else torn == 0,
            )
        )
    return verdicts


def started_unattended(outcomes: Sequence[Outcome]) -> list[Verdict]:
    damaged = sum(1 for one in outcomes if one.start != "unattended")
    alone = sum(1 for one in outcomes if one.start in UNATTENDED)
    raw = sum(1 for one in outcomes if one.raw_start == "starts")
    return [
        Verdict(
            what="tail damage, balanced, ext4, side fsync",
            promised="every cut starts unattended",
            found=f"{alone} of {len(outcomes)}; {damaged} had damage; raw Redis starts in {raw}",
            kept=alone == len(outcomes) and damaged > 0,
        )
    ]


def refused_and_resolved(outcomes: Sequence[Outcome]) -> list[Verdict]:
    """Whole commands behind a damage are given up by nobody but their owner, and then what is kept is whole."""
    agreed = sum(1 for one in outcomes if one.start == "accept-loss")
    raw = sum(1 for one in outcomes if one.raw_start == "starts")
    return [
        Verdict(
            what="a sector in the middle of the log is lost",
            promised="every start is refused, and `rtmem repair --accept-loss` resolves it",
            found=f"{agreed} of {len(outcomes)}; raw Redis starts in {raw}",
            kept=agreed == len(outcomes),
        )
    ]


SCENARIOS: Final = [
    Scenario(
        "durable",
        "profile durable: nothing acknowledged is lost",
        lambda lab: run(lab, durable(lab)),
        partial(nothing_lost, "durable"),
    ),
    Scenario(
        "ack fsync",
        'ack="fsync" under balanced: nothing acknowledged is lost',
        lambda lab: run(lab, balanced_fsync(lab)),
        partial(nothing_lost, "balanced, ack fsync"),
    ),
    Scenario("window", "profile balanced: how much is lost", lambda lab: run(lab, balanced_window(lab)), window_kept),
    Scenario(
        "tail damage",
        "balanced on ext4 with a side process: every cut starts unattended",
        lambda lab: run(lab, tail_damage(lab)),
        started_unattended,
    ),
    Scenario(
        "sector lost",
        "a damaged middle of the log: refused, and resolved by accept-loss",
        lambda lab: run(lab, sector_lost(lab)),
        refused_and_resolved,
    ),
    Scenario("relaxed", "control: has to lose", lambda lab: run(lab, relaxed(lab)), partial(must_lose, "relaxed")),
    Scenario(
        "rewrite",
        "control: durable without fsync during a rewrite has to lose near one",
        lambda lab: run(lab, unsynced_rewrite(lab)),
        partial(must_lose, "durable, but no fsync during a rewrite"),
    ),
    Scenario("groups", "control: without MULTI groups have to tear", lambda lab: run(lab, groups(lab)), groups_torn),
]
