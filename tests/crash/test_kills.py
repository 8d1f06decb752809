"""kill -9 of Redis and of the gateway: the short form of `python -m loadtest crash --only kills`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from loadtest.crash import kills
from loadtest.crash.lab import Lab, laboratory
from rtmem.settings import Ack
from tests.crash.faults import covering

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

TRIES_MAX = 5


@pytest.fixture
def lab() -> Iterator[Lab]:
    with laboratory(random.randrange(2**32), 1) as lab:
        yield lab


async def test_a_healthy_disk_keeps_what_redis_acknowledged(lab: Lab) -> None:
    outcome = await kills.kill_redis(lab, 0)
    print(outcome)
    assert outcome.turns > 0
    assert outcome.lost == 0
    assert outcome.faults == ()


@pytest.mark.parametrize("ack", ["fsync", "memory"])
async def test_a_stalled_disk_takes_what_was_only_in_memory(ack: Ack, lab: Lab) -> None:
    lost = 0
    for number in range(1 if ack == "fsync" else TRIES_MAX):
        with covering():
            outcome = await kills.kill_redis_while_its_disk_stalls(lab, ack, number)
        print(outcome)
        assert outcome.acked > 0
        assert outcome.faults == ()
        # A killer that comes two seconds late finds that Redis has written after all: then the control is repeated.
        if lost := outcome.lost:
            break
    assert (lost > 0) is (ack == "memory")


async def test_turns_survive_the_gateway_and_a_cut_one_is_told_and_goes_on(lab: Lab) -> None:
    outcome = await kills.kill_gateway(lab, 0)
    print(outcome)
    assert outcome.turns > 0
    assert outcome.lost == 0
    assert outcome.faults == ()
