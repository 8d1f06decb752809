"""Redis is full: the short form of `python -m loadtest crash --only "full memory"`."""

from __future__ import annotations

import random

import pytest

from loadtest.crash import full_memory
from loadtest.crash.lab import laboratory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


async def test_a_full_redis_says_so_keeps_what_it_has_and_serves_again_when_there_is_room() -> None:
    with laboratory(random.randrange(2**32), 1) as lab:
        outcome = await full_memory.fill(lab, 0)
    print(outcome)
    assert outcome.acked > 0
    assert outcome.lost == 0
    assert outcome.faults == ()
