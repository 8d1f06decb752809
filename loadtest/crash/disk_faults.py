"""A disk that fails, fills up or crawls below `rtmem up`, and then works again. Nobody is called.

What has to hold: nothing is acknowledged as durable that a power cut takes away, in the middle of the fault or after
it; whoever is not served is told by an error of ours; and when the disk works again everybody is served, by itself.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import anyio
import anyio.to_thread
import msgspec

from loadtest.crash.checking import check
from loadtest.crash.lab import Lab, Scenario
from loadtest.crash.outcome import DISK_FAULT, Outcome, Verdict
from loadtest.crash.persevering import Client, becomes, savers, talkers, told_words
from loadtest.crash.rtmem_up import PRINCIPAL, RtmemUp
from loadtest.crash.victim import restart
from loadtest.crash.volumes import Shim, Volume, volume
from rtmem import errors
from rtmem.errors import RtmemError
from rtmem.settings import Profile

Fault = Literal["EIO fsync once", "EIO fsync", "EIO write", "ENOSPC", "slow fsync"]
Moment = Literal["in the fault", "after it"]

SLOW_MS: Final = 3_000
_ROOM_BYTES: Final = 4_096  # until a disk of the shim is full: a write that is cut short, then none
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """One fault, and when the power goes on top of it."""

    fault: Fault
    profile: Profile
    cut: Moment
    volume: str = "shim"  # or ext4, for a disk that is really full

    @property
    def name(self) -> str:
        return f"disk fault {self.fault} {self.profile} {self.volume} cut {self.cut}"


def plan(lab: Lab) -> list[Case]:
    """Every fault under both profiles, with the power cut in its middle and after it."""
    profiles: tuple[Profile, ...] = ("balanced", "durable")
    moments: tuple[Moment, ...] = ("in the fault", "after it")
    faults: tuple[Fault, ...] = ("EIO fsync once", "EIO fsync", "EIO write", "ENOSPC", "slow fsync")
    cases = [Case(fault, profile, cut) for fault in faults for profile in profiles for cut in moments]
    return cases + [Case("ENOSPC", profile, cut, "ext4") for profile in profiles for cut in moments]


async def run(lab: Lab) -> list[Outcome]:
    """Every case, as often as the number of cuts allows for runs of ten seconds."""
    cases = plan(lab) * max(1, lab.cuts // 50)
    lab.bar.announce(len(cases))
    outcomes = []
    for number, case in enumerate(cases):
        with lab.covering():
            lab.bar.describe(case.name)
            outcomes.append(await live_through(lab, case, number))
            lab.bar.step()
    return outcomes


async def live_through(lab: Lab, case: Case, number: int) -> Outcome:
    """One fault under a fleet of four savers and a client of the gateway, and one power cut."""
    with volume(case.volume, lab.folder()) as disk:
        environment = {
            **disk.environment,
            "RTMEM_GATEWAY__TURN_DURABILITY": "fsync",
            "RTMEM_AGENT__TOKEN_INTERVAL_MS": "0",
        }
        up = await anyio.to_thread.run_sync(RtmemUp, case.profile, disk.folder, lab.folder(), environment)
        try:
            return await _live_through(lab, case, lab.label(case.name, number), disk, up)
        finally:
            up.kill()


async def _live_through(lab: Lab, case: Case, seed: str, disk: Volume, up: RtmemUp) -> Outcome:
    over = threading.Event()
    async with AsyncExitStack() as stack:
        lives = await savers(stack, up.redis_url, seed, ("memory", "fsync"))
        lives += talkers(up.url, up.token, PRINCIPAL, seed, "fsync", count=2)
        clients = [client for client, _ in lives]
        async with anyio.create_task_group() as fleet:
            for _, life in lives:
                fleet.start_soon(life, over)
            try:
                await becomes(
                    lambda: all(len(one.acked) > 1 for one in clients), "everybody is served", within_s=_PATIENCE_S
                )
                with _breakable(case, disk) as (break_it, heal):
                    broken_s, recovery_ms, wrong = await _break_and_heal(case, break_it, heal, up, clients)
                    # In this thread: no acknowledgement may slip in between the moment and the cut.
                    moment_s = disk.cut(up)
            finally:
                over.set()
                # Whoever waits for a Redis that is gone shall not wait for a deadline.
                up.kill()
                fleet.cancel_scope.cancel()
    told = told_words(clients, broken_s)
    wrong += _told_badly(clients, broken_s)
    return await _after_the_cut(case, seed, disk, clients, moment_s, recovery_ms, wrong, told)


async def _break_and_heal(
    case: Case, break_it: Callable[[], None], heal: Callable[[], None], up: RtmemUp, clients: Sequence[Client]
) -> tuple[float, float, list[str]]:
    """Returns when it began, how long after its end the last client was served again (0 where the power goes before),
    and what has gone wrong."""
    broken_s = time.monotonic()
    await anyio.to_thread.run_sync(break_it)
    await becomes(lambda: _noticed(case, clients, broken_s), f"they are told of {case.fault}", within_s=_PATIENCE_S)
    if case.profile == "balanced" and case.fault not in ("slow fsync", "EIO fsync once"):
        # A single error may be over before a busy machine has looked.
        await becomes(lambda: "Redis refuses writes" in up.output(), "rtmem up tells of it", within_s=_PATIENCE_S)
    if case.cut == "in the fault":
        return broken_s, 0.0, []
    await anyio.to_thread.run_sync(heal)
    healed_s = time.monotonic()

    def all_served() -> bool:
        return all(len(one.acked_since(healed_s)) > 1 for one in clients)

    try:
        await becomes(all_served, "all are served again", within_s=_PATIENCE_S)
    except TimeoutError as exc:
        late = [one.thread.name for one in clients if not one.acked_since(healed_s)]
        return broken_s, 0.0, [f"{exc}: not {late}; rtmem up says {up.output()}"]
    return broken_s, max(one.gap_ms(healed_s) for one in clients), []


def _noticed(case: Case, clients: Sequence[Client], since_s: float) -> bool:
    """Whether every saver's client has heard of the fault; with a slow disk: has got some answer.

    Who talks to a gateway may hear of it later: the SDK reopens its stream again and again while Redis is away.
    """
    if case.fault == "slow fsync":
        return all(one.told_since(since_s) or len(one.acked_since(since_s)) > 2 for one in clients)
    if case.fault == "EIO fsync once":
        # It is over with the next fsync: who happens not to write in that second hears nothing.
        return any(one.told_since(since_s) for one in clients if not one.thread.turns)
    return all(one.told_since(since_s) for one in clients if not one.thread.turns)


@contextmanager
def _breakable(case: Case, disk: Volume) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """What breaks the disk, and what heals it; it is healed at the end in any case."""
    if isinstance(disk, Shim):
        break_it, heal = partial(_order, case, disk), disk.disk.heal
    else:
        ballast = disk.folder.parent / "ballast"
        break_it, heal = partial(_fill, ballast), partial(ballast.unlink, missing_ok=True)
    try:
        yield break_it, heal
    finally:
        heal()


def _order(case: Case, disk: Shim) -> None:
    match case.fault:
        case "EIO fsync once":
            disk.disk.fail_once()
        case "EIO fsync":
            disk.disk.order(fsync=errno.EIO)
        case "EIO write":
            disk.disk.order(write=errno.EIO)
        case "slow fsync":
            disk.disk.order(delay_ms=SLOW_MS)
        case "ENOSPC":
            log = max((path.stat().st_size for path in disk.folder.rglob("*.incr.aof")), default=0)
            disk.disk.order(full_at_bytes=log + _ROOM_BYTES)


def _fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with ballast.open("wb") as file:
        size, step = 0, 1 << 26
        while step >= 4096:
            try:
                os.posix_fallocate(file.fileno(), size, step)
                size += step
            except OSError:
                step >>= 1


_OF_A_FAULT: Final = (
    errors.PersistenceError,
    errors.NotDurableError,
    errors.ServerUnavailableError,  # under durable Redis ends, and is started again
    errors.ServerLoadingError,
    errors.DeadlineExceededError,
)


def _told_badly(clients: Sequence[Client], since_s: float) -> list[str]:
    """Errors that are not the right ones, or that do not say what to do."""
    # An error reply of the gateway reaches us as whatever the SDK makes of it.
    right = {kind.__name__ for kind in _OF_A_FAULT} | {"refused"}
    wrong = [
        f"{one.thread.name} was told {told.kind}: {told.message}"
        for one in clients
        for told in one.told_since(since_s)
        if (told.kind not in right or ": " not in told.message)
        # The SDK has errors of its own for streams that break.
        and not (one.thread.turns and told.kind.startswith("Connection"))
    ]
    return wrong[:5]


async def _after_the_cut(
    case: Case,
    seed: str,
    disk: Volume,
    clients: Sequence[Client],
    moment_s: float,
    recovery_ms: float,
    wrong: list[str],
    told: str,
) -> Outcome:
    acked = [one for client in clients for one in client.ledger.until(moment_s)]
    promised = {id(one) for client in clients if _is_durable(case, client) for one in client.acked}
    known = Outcome(
        scenario=f"{DISK_FAULT}{case.fault}, power cut {case.cut}",
        profile=case.profile,
        ack="all" if case.profile == "durable" else "fsync",
        volume=case.volume,
        seed=seed,
        acked=sum(id(one) in promised for one in acked),
        turns=sum(one.verb == "turn" for one in acked),
        recovery_ms=round(recovery_ms, 1),
        faults=tuple(wrong),
        note=told,
    )
    try:
        back = await anyio.to_thread.run_sync(partial(restart, case.profile, disk.folder, modules=True))
    except RtmemError as exc:
        what = f"it does not start: {type(exc).__name__}: {exc}"
        return msgspec.structs.replace(known, start="failed", lost=known.acked, faults=(*known.faults, what))
    try:
        checked = await check(back.server.url, acked)
    finally:
        back.release()
    lost = [one for one in checked.lost if id(one) in promised]
    others = len(checked.lost) - len(lost)
    return msgspec.structs.replace(
        known,
        start=back.start,
        lost=len(lost),
        turns_lost=sum(one.verb == "turn" for one in lost),
        faults=(*known.faults, *checked.faults),
        note=f"{told}; {others} of {len(acked) - known.acked} others gone" if len(acked) > known.acked else told,
    )


def _is_durable(case: Case, client: Client) -> bool:
    return case.profile == "durable" or client.ack == "fsync"


def judge(outcomes: list[Outcome]) -> list[Verdict]:
    """What was promised of faults of the disk."""
    lost, acked = sum(one.lost for one in outcomes), sum(one.acked for one in outcomes)
    after = [one for one in outcomes if one.scenario.endswith("after it")]
    stuck = [one for one in after if any("served again" in fault for fault in one.faults)]
    slowest_ms = max((one.recovery_ms for one in after), default=0.0)
    return [
        Verdict(
            what="a disk that fails, fills up or crawls: nothing called durable is lost",
            promised="0 acknowledged writes and turns lost, in the fault and after it",
            found=f"{lost} of {acked:,} lost in {len(outcomes)} faults with a power cut",
            kept=lost == 0 and acked > 0,
        ),
        Verdict(
            what="a disk that works again: everybody is served, by itself",
            promised="no command typed; every client goes on",
            found=f"{len(after) - len(stuck)} of {len(after)}, the slowest client after {slowest_ms / 1000:.1f} s",
            kept=not stuck and bool(after),
        ),
    ]


SCENARIOS: Final = [
    Scenario(
        name="disk faults", what="EIO, ENOSPC, slow fsync below rtmem up, and a power cut on top", run=run, judge=judge
    )
]
