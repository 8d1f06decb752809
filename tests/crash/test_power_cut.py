"""The power goes while a fleet writes checkpoints: what was acknowledged as durable is there afterwards.

Seeds are printed. The controls (`relaxed`; `ack="memory"` where the disk is slow) have to lose: a model of a power cut
that takes nothing away proves nothing.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from rtmem.server import binaries, conf, embedded
from rtmem.server.binaries import Binaries
from rtmem.settings import Ack, Profile, Server
from tests.conftest import kill_server
from tests.crash.disks import Volume, volume
from tests.crash.faults import Disk, build
from tests.crash.fleet import lost, run_fleet
from tests.drivers.processes import Process, Spawn, spawning

pytestmark = pytest.mark.anyio


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's tmp_path: its long names would push the socket out of the directory.
    made = Path(tempfile.mkdtemp(prefix="rtmem-crash-"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    with spawning() as spawn:
        yield spawn


def serve(spawn: Spawn, profile: Profile, data_dir: Path, environment: dict[str, str]) -> Process:
    """A server of our own profile that nobody watches over, with its data in `data_dir`."""
    lines = [line for line in conf.profile_text(profile).splitlines() if line != "port 0"]
    process = spawn(*lines, f"dir {data_dir}", environment=environment)
    return process.wait_until_answering()


async def lost_after_restart(data_dir: Path, profile: Profile, acked: list[object], size_bytes: int) -> list[object]:
    """What is gone once the embedded server, with its repair, has started on what the disk kept."""
    program = Binaries(binaries.find().server, ())
    settings = Server(data_dir=str(data_dir), profile=profile, maxmemory_bytes=256 * 1024**2)
    server = await anyio.to_thread.run_sync(lambda: embedded.start(settings, program=program))
    try:
        return await lost(server.url, acked, size_bytes)  # type: ignore[arg-type, return-value]
    finally:
        kill_server(data_dir)
        server.release()


@pytest.mark.parametrize("kind", ["ext4", "shim"])
@pytest.mark.parametrize(
    ("profile", "ack", "loses"),
    [("durable", "memory", False), ("balanced", "fsync", False), ("relaxed", "memory", True)],
    ids=["durable", "balanced + ack fsync", "relaxed"],
)
async def test_a_power_cut_takes_only_what_may_be_lost(
    kind: str, profile: Profile, ack: Ack, loses: bool, folder: Path, spawn: Spawn
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for cut in range(2):
        inside = folder / str(cut)
        inside.mkdir()
        with volume(kind, inside) as disk:
            counts = await one_cut(disk, profile, ack, chance, spawn)
        line = f"{kind} {profile} ack={ack} seed {seed} cut {cut}: {counts[0]} acknowledged, {counts[1]} lost"
        print(line)
        assert counts[0] > 0, line
        assert (counts[1] > 0) is loses, line


async def one_cut(disk: Volume, profile: Profile, ack: Ack, chance: random.Random, spawn: Spawn) -> tuple[int, int]:
    """How many checkpoints were acknowledged before the cut, and how many of them are gone."""
    size_bytes = chance.choice([200, 2_000, 20_000])
    run_s = chance.uniform(1.5, 3.0)
    # Each waits up to a second for its ack: more of them, so that there is something to lose.
    writers = 128 if ack == "fsync" else 16
    server = serve(spawn, profile, disk.folder, disk.environment)

    async def cut() -> float:
        await anyio.sleep(run_s)  # the length of the run, not a synchronisation
        # In this thread: no acknowledgement may slip into the ledger between the moment and the cut.
        return disk.cut(server)

    ledger, moment_s = await run_fleet(server.url, ack, writers=writers, size_bytes=size_bytes, cut=cut)
    acked = ledger.until(moment_s)
    gone = await lost_after_restart(disk.folder, profile, list(acked), size_bytes)
    return len(acked), len(gone)


@pytest.mark.parametrize(("ack", "loses"), [("fsync", False), ("memory", True)])
async def test_kill_9_of_redis_while_its_disk_stalls(ack: Ack, loses: bool, folder: Path, spawn: Spawn) -> None:
    # While an fsync runs, Redis keeps back the write itself for up to 2 s, though it answers: kill -9 takes that away.
    data_dir = folder / "data"
    data_dir.mkdir(mode=0o700)
    disk = Disk(build(folder), folder, data_dir)
    server = serve(spawn, "balanced", data_dir, disk.environment)

    async def kill() -> float:
        await anyio.sleep(1.5)
        disk.order(delay_ms=3_000)
        await anyio.sleep(1.3)
        server.kill()
        return float("inf")

    ledger, _ = await run_fleet(server.url, ack, writers=16, size_bytes=200, cut=kill)
    assert ledger.acked
    gone = await lost_after_restart(data_dir, "balanced", list(ledger.acked), 200)
    print(f"kill -9 with a stalled fsync, ack={ack}: {len(ledger.acked)} acknowledged, {len(gone)} lost")
    assert bool(gone) is loses
