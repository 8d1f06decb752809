"""The promise of `balanced` is measured against the longest fsync: it has to be seen."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from loadtest.crash.disturbances import FsyncWatch
from loadtest.crash.faults import Disk
from loadtest.crash.lab import Lab, laboratory
from rtmem.settings import Profile
from tests.crash.faults import build


@pytest.fixture
def lab() -> Iterator[Lab]:
    with laboratory(7, 1) as lab:
        yield lab


@pytest.mark.parametrize("profile", ["balanced", "durable"])
def test_a_slow_fsync_is_seen_under_either_policy(profile: Profile, lab: Lab) -> None:
    folder = lab.folder()
    disk = Disk(build(folder), folder, folder / "data")
    victim = lab.serve(profile, folder / "data", disk.environment)
    disk.order(delay_ms=400)
    deadline = time.monotonic() + 60
    longest_ms = 0.0
    with victim.client() as client:
        # A busy machine may look away while an fsync begins or ends: then the next one is seen.
        while longest_ms < 250:
            assert time.monotonic() < deadline
            watch = FsyncWatch(victim)
            client.set("a", "b")
            time.sleep(1.2)
            longest_ms = watch.stop()
