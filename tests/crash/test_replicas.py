"""A master that dies, or freezes and comes back: the short form of `python -m loadtest crash --only replicas`."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from loadtest.crash import replicas
from loadtest.crash.lab import Lab, laboratory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with laboratory(random.randrange(2**32), 1) as lab:
        yield lab


async def test_replica_acks_survive_the_master_and_savers_go_on_by_themselves(lab: Lab) -> None:
    outcome = await replicas.kill_master(lab, 0, down_after_ms=1_000)
    print(outcome)
    assert outcome.acked > 0
    assert outcome.lost == 0
    assert outcome.faults == ()


async def test_a_master_that_was_replaced_while_frozen_loses_no_more_than_its_lag_allows(lab: Lab) -> None:
    outcome = await replicas.freeze_master(lab, 0, limits=True, frozen_s=replicas.MAX_LAG_S + 1, brief=True)
    print(outcome)
    assert outcome.acked > 0
    assert outcome.window_ms <= replicas.MAX_LAG_S * 1000
    assert outcome.faults == ()  # nothing that was proved by a replica is lost
