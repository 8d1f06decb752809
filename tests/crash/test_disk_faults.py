"""A disk fails below `rtmem up` and works again: nothing called durable is lost, and everybody is served again.

The short form of `python -m loadtest crash --only "disk faults"`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from loadtest.crash.disk_faults import Case, live_through
from loadtest.crash.lab import Lab, laboratory
from tests.crash.faults import covering

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with laboratory(random.randrange(2**32), 1) as lab:
        yield lab


@pytest.mark.parametrize(
    "case",
    [
        Case("EIO fsync once", "balanced", "after it"),
        Case("EIO fsync", "durable", "after it"),
        Case("ENOSPC", "balanced", "in the fault", "ext4"),
    ],
    ids=lambda case: case.name,
)
async def test_nothing_proved_is_lost_and_everybody_is_served_again(case: Case, lab: Lab) -> None:
    with covering():
        outcome = await live_through(lab, case, 0)
    print(outcome)
    assert outcome.acked > 0
    assert outcome.lost == 0
    assert outcome.faults == ()
