"""kill -9 of Redis while its disk stalls: the one case in which the page cache does not keep what was acknowledged."""

from __future__ import annotations

import random
from collections.abc import Iterator

import anyio
import pytest

from loadtest.crash.checking import check
from loadtest.crash.faults import Disk
from loadtest.crash.fleet import Crew, run_fleet
from loadtest.crash.lab import Lab, laboratory
from loadtest.crash.ledger import Ledger
from loadtest.crash.victim import restart
from rtmem.settings import Ack
from tests.crash.faults import build

pytestmark = pytest.mark.anyio


@pytest.fixture
def lab() -> Iterator[Lab]:
    with laboratory(random.randrange(2**32), 1) as lab:
        yield lab


@pytest.mark.parametrize(("ack", "loses"), [("fsync", False), ("memory", True)])
async def test_kill_9_of_redis_while_its_disk_stalls(ack: Ack, loses: bool, lab: Lab) -> None:
    # While an fsync runs, Redis keeps back the write itself for up to 2 s, though it answers: kill -9 takes that away.
    folder = lab.folder()
    disk = Disk(build(folder), folder, folder / "data")
    victim = lab.serve("balanced", folder / "data", disk.environment)

    async def kill(ledger: Ledger) -> float:
        await ledger.begun()
        disk.order(delay_ms=10_000)
        await anyio.sleep(1.9)  # of which the first second may pass before the next fsync begins
        victim.kill()
        return float("inf")

    ledger, _ = await run_fleet(victim.url, ack, seed=lab.label("stalled"), crew=Crew(), crash=kill)
    assert ledger.acked
    back = restart("balanced", folder / "data")
    try:
        checked = await check(back.server.url, ledger.acked)
    finally:
        back.release()
    print(f"seed {lab.seed}, ack={ack}: {len(ledger.acked)} acknowledged, {len(checked.lost)} lost")
    assert checked.faults == []
    assert bool(checked.lost) is loses
