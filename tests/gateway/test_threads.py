"""Numbering, logging in groups, and delivering; the log is a real one."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import redis

from rtmem.agent import turn
from rtmem.drivers import AsyncDriver
from rtmem.errors import IdTooLongError, RunInProgressError, StaleWriterError
from rtmem.eventlog import AsyncEventLog
from rtmem.gateway.threads import LiveThread, Run, Threads
from rtmem.records import LogEvent, LogGroup, LogHead, TurnEvent
from rtmem.settings import Gateway
from tests.gateway.waiting import eventually

pytestmark = pytest.mark.anyio

RUNNING = TurnEvent("lifecycle", {"event": "running"})
COMPLETED = TurnEvent("lifecycle", {"event": "completed"})
SETTINGS = Gateway(log_flush_ms=20, log_group_events_max=8)


class Ear:
    """Hears everything, or only lets it pass."""

    def __init__(self, *, wants: bool = True) -> None:
        self.wants = wants
        self.events: list[LogEvent] = []

    def deliver(self, event: LogEvent) -> bool:
        self.events.append(event)
        return self.wants


class WatchedLog(AsyncEventLog):
    """Remembers what had been appended when."""

    def __init__(self, driver: AsyncDriver) -> None:
        super().__init__(driver, SETTINGS)
        self.groups: list[LogGroup] = []

    async def append(self, key: str, group: LogGroup) -> None:
        await super().append(key, group)
        self.groups.append(group)


@pytest.fixture
async def log(redis_url: str, redis_client: redis.Redis) -> AsyncIterator[WatchedLog]:
    async with await AsyncDriver.connect(redis_url) as driver:
        yield WatchedLog(driver)


def value(number: int) -> TurnEvent:
    return TurnEvent("values", {"number": number})


async def begun(log: AsyncEventLog, run_id: str = "run") -> LiveThread:
    thread = LiveThread("alice", "t", log, SETTINGS)
    await thread.contact()
    thread.begin(Run(run_id, "chat"))
    return thread


async def test_an_event_is_in_the_log_before_anybody_hears_it(log: WatchedLog) -> None:
    thread = await begun(log)

    class Strict(Ear):
        def deliver(self, event: LogEvent) -> bool:
            assert any(event in group.events for group in log.groups)
            return super().deliver(event)

    ear = Strict()
    thread.listeners.add(ear)
    for event in (RUNNING, value(1), COMPLETED):
        await thread.publish(event)
    assert ear.events == []
    await thread.flush()
    assert len(ear.events) == 3


async def test_a_burst_is_appended_in_groups_of_bounded_size(log: WatchedLog) -> None:
    thread = await begun(log)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(thread.flush_continuously)
        for number in range(100):
            await thread.publish(value(number))
        await eventually(lambda: thread.head.last_seq == thread._numbered_seq)
        tasks.cancel_scope.cancel()
    assert max(len(group.events) for group in log.groups) <= 8
    assert len(log.groups) < 40
    assert [event.seq for group in log.groups for event in group.events] == sorted(
        {event.seq for group in log.groups for event in group.events}
    )


async def test_the_first_event_of_a_burst_does_not_wait_for_a_group(log: WatchedLog) -> None:
    settings = Gateway(log_flush_ms=60_000)
    thread = LiveThread("alice", "t", log, settings)
    await thread.contact()
    thread.begin(Run("run", "chat"))
    ear = Ear()
    thread.listeners.add(ear)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(thread.flush_continuously)
        await thread.publish(value(1))
        await eventually(lambda: ear.events)
        tasks.cancel_scope.cancel()


async def test_a_graph_faster_than_redis_waits(log: WatchedLog) -> None:
    thread = await begun(log)
    with anyio.move_on_after(0.1) as waiting:
        for number in range(1_000):
            await thread.publish(value(number))
    assert waiting.cancelled_caught
    assert len(thread._pending) == 4 * SETTINGS.log_group_events_max


async def test_one_run_at_a_time_and_the_next_may_start_as_soon_as_its_end_is_heard(log: WatchedLog) -> None:
    thread = await begun(log)
    with pytest.raises(RunInProgressError, match="busy with run run"):
        thread.begin(Run("second", "chat"))

    class Eager(Ear):
        def deliver(self, event: LogEvent) -> bool:
            if b'"completed"' in event.frame:
                thread.begin(Run("second", "chat"))
            return super().deliver(event)

    thread.listeners.add(Eager())
    await thread.publish(COMPLETED)
    await thread.flush()
    assert thread.run is not None
    assert thread.run.id == "second"


async def test_whether_anybody_heard_the_end_is_remembered(log: WatchedLog) -> None:
    for ear, unheard in ((Ear(), False), (Ear(wants=False), True), (None, True)):
        thread = LiveThread("alice", "t", log, SETTINGS)
        await thread.contact()
        thread.begin(Run("run", "chat"))
        if ear is not None:
            thread.listeners.add(ear)
        await thread.publish(RUNNING)
        await thread.publish(COMPLETED)
        await thread.flush()
        assert thread.head.unheard == unheard
        assert thread.head.ended_ms > 0


async def test_a_run_whose_process_died_has_failed_when_the_thread_is_met_again(log: WatchedLog) -> None:
    dead = await begun(log, "lost")
    await dead.publish(RUNNING)
    await dead.flush()
    thread = LiveThread("alice", "t", log, SETTINGS)
    await thread.contact()
    assert thread.head.status == "idle"
    (event,) = log.groups[-1].events
    data = json.loads(event.frame)["params"]["data"]
    assert data["event"] == "failed"
    assert "run lost was cut off" in data["error"]
    assert log.groups[-1].run_id == "lost"
    await thread.contact()
    assert len(log.groups) == 2


async def test_a_thread_that_another_process_writes_stops_writing(log: WatchedLog) -> None:
    thread = await begun(log)
    await thread.publish(RUNNING)
    other = LiveThread("alice", "t", log, SETTINGS)
    await other.contact()
    other.begin(Run("other", "chat"))
    other._numbered_seq += 1_000
    await other.publish(RUNNING)
    await other.flush()
    with pytest.raises(StaleWriterError):
        await thread.flush()
    ear = Ear()
    thread.listeners.add(ear)
    thread.deliver_unlogged(turn.failed("chat", "the other one", resumable=False))
    assert b"the other one" in ear.events[0].frame
    assert thread.run is None
    await thread.contact()  # reads what the other one wrote


async def test_seqs_follow_the_clock_at_the_start_of_a_run_and_never_go_back(log: WatchedLog) -> None:
    before_ms = time.time_ns() // 1_000_000
    thread = await begun(log)
    await thread.publish(RUNNING)
    await thread.flush()
    first = log.groups[0].events[0].seq
    assert before_ms < first <= time.time_ns() // 1_000_000 + 1
    # A clock that goes back does not take the numbers with it.
    thread._numbered_seq = first + 10**9
    await thread.publish(COMPLETED)
    await thread.flush()
    thread.begin(Run("next", "chat"))
    await thread.publish(RUNNING)
    await thread.flush()
    assert log.groups[-1].events[0].seq == first + 10**9 + 2


def test_idle_threads_are_forgotten_and_busy_ones_are_not() -> None:
    log: Any = AsyncEventLog(None, SETTINGS)  # type: ignore[arg-type]
    threads = Threads(log, Gateway(threads_cached_max=2))
    used = threads.get("alice", "used")
    threads.get("alice", "owing")._pending.append(LogEvent(1, "values", (), b""))
    threads.get("alice", "idle").head = LogHead(7, "", 0, "idle")
    assert threads.get("alice", "idle").head.last_seq == 7
    for name in "abc":
        threads.get("alice", name)
    # Two objects for one thread would number its events twice.
    assert threads.get("alice", "used") is used
    assert threads.get("alice", "owing")._pending
    assert threads.get("alice", "idle").head.last_seq == 0
    with pytest.raises(IdTooLongError):
        threads.get("alice", "x" * 513)
