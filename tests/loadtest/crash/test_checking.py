"""The lab notices what it is there to notice: what is gone, what is half there, what does not resume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from loadtest.crash.checking import check
from loadtest.crash.fleet import Crew, run_fleet
from loadtest.crash.lab import Lab, laboratory
from loadtest.crash.ledger import Acked, Ledger, Thread, window_ms
from loadtest.crash.power_cuts import lose_a_sector
from loadtest.crash.victim import restart

pytestmark = pytest.mark.anyio
INDEX, HASH = "rtmem:t:{{/{}}}:i", "rtmem:t:{{/{}}}:c"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with laboratory(7, 1) as lab:
        yield lab


async def written(url: str, ack_count: int = 100) -> list[Acked]:
    """What a fleet with one thread of each kind was acknowledged; nothing crashes."""

    async def enough(ledger: Ledger) -> float:
        await ledger.reaches(ack_count)
        return float("inf")

    ledger, moment_s = await run_fleet(url, "memory", seed="7", crew=Crew(1, 1, 1, 1), crash=enough)
    return ledger.until(moment_s)


async def test_what_nobody_touched_is_all_there_and_resumes(redis_url: str, redis_client: redis.Redis) -> None:
    acked = await written(redis_url)
    checked = await check(redis_url, acked)
    assert (checked.lost, checked.faults) == ([], [])
    assert checked.resumed == checked.threads == len({one.thread for one in acked})


async def test_a_checkpoint_without_its_index_entry_is_a_fault(redis_url: str, redis_client: redis.Redis) -> None:
    acked = await written(redis_url)
    redis_client.zremrangebyrank(INDEX.format("async-0"), 0, 0)
    faults = (await check(redis_url, acked)).faults
    assert any("has a record and is not in the index" in fault for fault in faults)


async def test_a_checkpoint_without_one_of_its_pieces_is_a_fault(redis_url: str, redis_client: redis.Redis) -> None:
    acked = await written(redis_url)
    key = HASH.format("async-0")
    piece = next(name for name in redis_client.hkeys(key) if name.isdigit())
    redis_client.hdel(key, piece)
    checked = await check(redis_url, acked)
    assert checked.faults
    assert checked.lost  # what cannot be read is not there either


async def test_a_thread_that_is_gone_is_lost_and_no_fault(redis_url: str, redis_client: redis.Redis) -> None:
    acked = await written(redis_url)
    redis_client.delete(INDEX.format("sync-shallow-0"), HASH.format("sync-shallow-0"))
    checked = await check(redis_url, acked)
    assert checked.faults == []
    assert checked.lost == [one for one in acked if one.thread.name == "sync-shallow-0"]


async def test_a_state_that_nobody_put_is_a_fault(redis_url: str, redis_client: redis.Redis) -> None:
    acked = await written(redis_url)
    other = {one.thread: Thread(one.thread.name, "8", one.thread.shallow) for one in acked}
    claimed = [Acked(one.verb, other[one.thread], one.checkpoint_id, one.number, one.at_s) for one in acked]
    assert any("is not what was put" in fault for fault in (await check(redis_url, claimed)).faults)


def test_a_window_is_the_age_of_the_oldest_loss() -> None:
    lost = [Acked("put", Thread("t", "7"), "id", 1, at_s) for at_s in (9.5, 9.0, 9.9)]
    assert window_ms(lost, 10.0) == pytest.approx(1_000)
    assert window_ms([], 10.0) == 0


async def test_a_start_that_is_refused_is_resolved_by_accepting_the_loss(lab: Lab) -> None:
    data_dir = lab.folder() / "data"
    victim = lab.serve("balanced", data_dir)
    acked = await written(victim.url, 400)
    victim.kill()
    lose_a_sector(data_dir)
    back = restart("balanced", data_dir)
    try:
        checked = await check(back.server.url, acked)
    finally:
        back.release()
    assert back.start == "accept-loss"
    assert "whole commands follow the damage" in " ".join(back.report)
    assert checked.faults == []
    assert 0 < len(checked.lost) < len(acked)
