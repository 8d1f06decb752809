"""The power goes while a fleet writes checkpoints and talks: what was acknowledged as durable is there afterwards."""

from __future__ import annotations

import shutil
import subprocess
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import msgspec
import redis

from loadtest.crash.checking import check
from loadtest.crash.disturbances import FsyncWatch, SideWriter
from loadtest.crash.fleet import Crew, run_fleet
from loadtest.crash.gateway import gateway, talkers
from loadtest.crash.groups import group_writers, torn_groups
from loadtest.crash.lab import Lab
from loadtest.crash.ledger import Ledger, window_ms
from loadtest.crash.outcome import NotCovered, Outcome
from loadtest.crash.victim import restart, settings_of
from loadtest.crash.volumes import Killable, Volume, volume
from rtmem.errors import RtmemError
from rtmem.server import binaries, embedded
from rtmem.settings import Ack, Profile

USUAL_CREW: Final = Crew()
NO_CREW: Final = Crew(0, 0, 0, 0)
# At most so long before the cut: in its first moments, while it works, and when it has just ended.
_REWRITE_BEFORE_S: Final = (0.03, 0.1, 0.5)
_RAW_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One way of cutting the power, and how often."""

    scenario: str
    profile: Profile
    volume: str
    cuts: int
    ack: Ack = "memory"
    rewrite: bool = False
    side_fsync: bool = False
    run_s: tuple[float, float] = (0.6, 1.6)  # the fleet writes for so long, between these two
    crew: Crew = USUAL_CREW
    talkers: int = 2
    groups: int = 0  # raw writers of groups
    multi: bool = True  # they write each group at once
    ask_raw_redis: bool = False  # what does it make of the files by itself?
    extra_conf: tuple[str, ...] = ()  # lines of redis.conf that spoil the profile
    sector_lost: bool = False  # and a piece in the middle of the log is gone when the power is back

    @property
    def name(self) -> str:
        around = [word for word, on in (("rewrite", self.rewrite), ("side fsync", self.side_fsync)) if on]
        return " ".join((self.scenario, self.volume, *around))

    @property
    def crash(self) -> str:
        """What happened, for the table of promises, where only a power cut and nothing else counts for a profile."""
        if self.groups:
            return "power cut, raw writers"
        if self.extra_conf:
            return "power cut, profile spoiled"
        return "power cut, then a sector lost" if self.sector_lost else "power cut"


async def run(lab: Lab, plan: Sequence[Cell]) -> list[Outcome]:
    """Carry out a plan, one cut after the other. A volume that cannot be had here is noted and left out."""
    lab.bar.announce(sum(cell.cuts for cell in plan))
    outcomes: list[Outcome] = []
    for cell in plan:
        mine: list[Outcome] = []
        with lab.covering():
            for number in range(cell.cuts):
                lab.bar.describe(f"{cell.name} {number + 1}/{cell.cuts}")
                mine.append(await _cut_or_failure(lab, cell, number))
                lab.bar.step()
            lab.say(f"{cell.name}: {len(mine)} {'cut' if len(mine) == 1 else 'cuts'}, {_taken(mine)}")
        outcomes += mine
    return outcomes


def _taken(outcomes: Sequence[Outcome]) -> str:
    acked = sum(one.acked for one in outcomes)
    if not acked:  # raw writers keep no ledger
        return f"{sum(one.torn for one in outcomes):,} groups torn"
    return f"{sum(one.lost for one in outcomes):,} lost of {acked:,}"


async def _cut_or_failure(lab: Lab, cell: Cell, number: int) -> Outcome:
    """One cut; if the lab itself breaks on the way, hours of others are not thrown away, and the run has failed."""
    try:
        return await cut_once(lab, cell, number)
    except NotCovered:
        raise
    except Exception as exc:  # noqa: BLE001 - told as a fault, which no run is allowed to have
        what = "".join(traceback.format_exception(exc))
        return msgspec.structs.replace(_known(lab, cell, number), start="failed", faults=(what,))


async def cut_once(lab: Lab, cell: Cell, number: int) -> Outcome:
    """A new volume, a server, a fleet, the cut, the return, and what was there."""
    folder = lab.folder()
    try:
        with volume(cell.volume, folder) as disk:
            cut = await _let_it_happen(lab, cell, number, disk)
            if cell.sector_lost:
                lose_a_sector(disk.folder)
            raw = await anyio.to_thread.run_sync(_raw_start, disk.folder, folder) if cell.ask_raw_redis else ""
            with _stopped_at_the_end(cell.profile, disk.folder):
                return await _come_back(lab, cell, number, disk, cut, raw)
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True, slots=True)
class _Cut:
    """What is known when the power is back."""

    ledger: Ledger
    moment_s: float
    longest_fsync_ms: float


async def _let_it_happen(lab: Lab, cell: Cell, number: int, disk: Volume) -> _Cut:
    chance, seed = lab.chance(cell.name, number), lab.label(cell.name, number)
    run_s = chance.uniform(*cell.run_s)
    rewrite_after_s = max(0.0, run_s - chance.uniform(0.0, chance.choice(_REWRITE_BEFORE_S)))
    with ExitStack() as stack:
        serve = partial(lab.serve, cell.profile, disk.folder, disk.environment, extra_conf=cell.extra_conf)
        victim = await anyio.to_thread.run_sync(serve)
        stack.callback(victim.kill)
        victims: list[Killable] = [victim]
        others = group_writers(victim.url, count=cell.groups, multi=cell.multi)
        if cell.talkers:
            served = await anyio.to_thread.run_sync(stack.enter_context, gateway(victim.url, cell.ack))
            victims.append(served)
            others += talkers(served.url, cell.ack, seed=seed, count=cell.talkers)
        if cell.side_fsync:
            victims.append(SideWriter(disk.folder.with_name("side")))
            stack.callback(victims[-1].kill)
        watch = FsyncWatch(victim)
        stack.callback(watch.stop)

        async def crash(ledger: Ledger) -> float:
            if cell.crew != NO_CREW:
                await ledger.begun()
            await anyio.sleep(rewrite_after_s)  # the length of the run, not a synchronisation
            if cell.rewrite:
                with victim.client() as client:
                    client.bgrewriteaof()
            await anyio.sleep(run_s - rewrite_after_s)
            return disk.cut(*victims)

        ledger, moment_s = await run_fleet(victim.url, cell.ack, seed=seed, crew=cell.crew, crash=crash, others=others)
        return _Cut(ledger, moment_s, watch.stop())


async def _come_back(lab: Lab, cell: Cell, number: int, disk: Volume, cut: _Cut, raw: str) -> Outcome:
    acked = cut.ledger.until(cut.moment_s)
    known = msgspec.structs.replace(
        _known(lab, cell, number),
        acked=len(acked),
        turns=sum(one.verb == "turn" for one in acked),
        longest_fsync_ms=round(cut.longest_fsync_ms, 1),
        raw_start=raw,
    )
    try:
        back = await anyio.to_thread.run_sync(restart, cell.profile, disk.folder)
    except RtmemError as exc:
        what = f"it does not start: {type(exc).__name__}: {exc}"
        return msgspec.structs.replace(known, lost=len(acked), start="failed", faults=(what,))
    try:
        checked = await check(back.server.url, acked)
        torn = (await anyio.to_thread.run_sync(torn_groups, back.server.url))[1] if cell.groups else 0
    finally:
        back.release()  # its files are on the volume
    return msgspec.structs.replace(
        known,
        lost=len(checked.lost),
        turns_lost=sum(one.verb == "turn" for one in checked.lost),
        window_ms=round(window_ms(checked.lost, cut.moment_s), 1),
        start=back.start,
        recovery_ms=round((checked.first_read_s - back.began_s) * 1000, 1),
        faults=tuple(checked.faults),
        torn=torn,
        note="; ".join(sentence for sentence in back.report if "repaired" in sentence or "lost" in sentence),
    )


def _known(lab: Lab, cell: Cell, number: int) -> Outcome:
    """What is certain of an outcome before anything happens."""
    return Outcome(
        scenario=cell.scenario,
        crash=cell.crash,
        profile=cell.profile,
        ack=cell.ack,
        volume=cell.volume,
        rewrite=cell.rewrite,
        side_fsync=cell.side_fsync,
        seed=lab.label(cell.name, number),
    )


@contextmanager
def _stopped_at_the_end(profile: Profile, data_dir: Path) -> Iterator[None]:
    """No server is left on a volume that is about to be taken away, whatever happened."""
    try:
        yield
    finally:
        embedded.stop(settings_of(profile, data_dir))


def lose_a_sector(data_dir: Path) -> None:
    """Put zeros over the beginning of a command in the middle of the log: no power cut does this, a bad disk may."""
    path = max((data_dir / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_size)
    data = path.read_bytes()
    command = data.index(b"\r\n*", len(data) // 2) + 2
    with path.open("r+b") as file:
        file.seek(command)
        file.write(bytes(64))


def _raw_start(data_dir: Path, folder: Path) -> str:
    """Whether redis-server without us starts on a copy of these files: "starts" or "refuses"."""
    copy = folder / "raw"
    shutil.copytree(data_dir / "appendonlydir", copy / "appendonlydir")
    socket = copy / "raw.sock"
    lines = ("--dir", str(copy), "--port", "0", "--unixsocket", str(socket), "--appendonly", "yes", "--save", "")
    with subprocess.Popen([str(binaries.find().server), *lines], stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + _RAW_TIMEOUT_S
            while process.poll() is None:
                with suppress(redis.RedisError), redis.Redis(unix_socket_path=str(socket)) as client:
                    client.ping()
                    return "starts"
                if time.monotonic() > deadline:
                    raise TimeoutError(f"redis-server on a copy of {data_dir} neither answered nor ended")
                time.sleep(0.01)
            return "refuses"
        finally:
            process.kill()
