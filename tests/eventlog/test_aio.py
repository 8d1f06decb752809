"""The event log on a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import redis

from rtmem.drivers import AsyncDriver
from rtmem.errors import IdTooLongError, StaleWriterError
from rtmem.eventlog import AsyncEventLog
from rtmem.records import LOG_LAYOUT, LogEvent, LogGroup, LogHead
from rtmem.settings import Gateway, Redis

pytestmark = pytest.mark.anyio


def group(previous: int, *seqs: int, status: Any = "running") -> LogGroup:
    events = tuple(LogEvent(seq, "values", ("a:1",), b'{"seq": %d}' % seq) for seq in seqs)
    return LogGroup(LOG_LAYOUT, previous, "run", 0, status, events)


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
async def driver(
    request: pytest.FixtureRequest, redis_url: str, redis_client: redis.Redis
) -> AsyncIterator[AsyncDriver]:
    async with await AsyncDriver.connect(redis_url, Redis(protocol=request.param)) as connected:
        yield connected


async def test_what_was_appended_is_read_in_order_and_in_pages(driver: AsyncDriver) -> None:
    log = AsyncEventLog(driver, Gateway())
    key = log.key("alice", "t")
    for seq in range(1, 201):
        await log.append(key, group(seq - 1, seq))
    read: list[LogEvent] = []
    position, pages = 0, 0
    while True:
        page = await log.read_after(key, position)
        assert page.lost is None
        read += page.events
        position, pages = page.last_seq, pages + 1
        if page.complete:
            break
    assert [event.seq for event in read] == list(range(1, 201))
    assert read[6] == LogEvent(7, "values", ("a:1",), b'{"seq": 7}')
    assert pages > 1
    assert await log.head(key) == LogHead(200, "run", 0, "running")


async def test_no_seq_is_ever_given_twice(driver: AsyncDriver, redis_client: redis.Redis) -> None:
    log = AsyncEventLog(driver, Gateway())
    key = log.key("alice", "t")
    await log.append(key, group(0, 1, 2, 3))
    await log.append(key, group(0, 1, 2, 3))  # sent again after a lost connection
    for late in (group(0, 2), group(0, 3), group(2, 3)):
        with pytest.raises(StaleWriterError):
            await log.append(key, late)
    assert redis_client.xlen(key) == 1


async def test_the_log_is_bounded_and_expires_after_its_last_append(
    driver: AsyncDriver, redis_client: redis.Redis
) -> None:
    log = AsyncEventLog(driver, Gateway(log_groups_max=100, log_ttl_ms=60_000))
    key = log.key("alice", "t")
    for seq in range(1, 1_001):
        await log.append(key, group(seq - 1, seq))
    assert 100 <= redis_client.xlen(key) <= 300  # Redis trims whole nodes of the stream
    assert 0 < redis_client.pttl(key) <= 60_000
    assert await log.trim(key, groups_max=10) > 0
    assert redis_client.xlen(key) == 10
    page = await log.read_after(key, 500)
    assert page.lost is not None
    assert page.lost.before_seq == 991


async def test_tail_waits_for_the_next_group_and_holds_up_nobody(driver: AsyncDriver) -> None:
    log = AsyncEventLog(driver, Gateway())
    key = log.key("alice", "t")
    await log.append(key, group(0, 1))
    assert (await log.tail(key, 1, block_ms=10)).events == ()
    async with anyio.create_task_group() as tasks:

        async def append() -> None:
            await anyio.sleep(0.05)  # lets the tail begin to wait; if it has not, it finds the group all the same
            await log.append(key, group(1, 2))

        tasks.start_soon(append)
        page = await log.tail(key, 1, block_ms=5_000)
    assert [event.seq for event in page.events] == [2]


async def test_logs_of_two_principals_are_two_logs(driver: AsyncDriver) -> None:
    log = AsyncEventLog(driver, Gateway())
    await log.append(log.key("alice", "t"), group(0, 1))
    assert await log.head(log.key("bob", "t")) is None
    assert await log.head(log.key("Alice", "t")) is None
    with pytest.raises(IdTooLongError):
        log.key("alice", "x" * 513)
