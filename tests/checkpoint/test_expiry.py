"""Threads expire as a whole, by the write or read that renews them, and do not come back by a late write."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rtmem.settings import Checkpoint
from tests.checkpoint.colours import AnySaver, Meter, Savers, inspect
from tests.checkpoint.talks import at, grow, message, put, same

BIG = "x" * 70_000
TTL_MS = 3_600_000
KEEPING: dict[str, Any] = {"ttl": {"default_ttl": TTL_MS / 60_000}}


def age(savers: Savers, saver: AnySaver, thread_id: str, ttl_ms: int) -> None:
    keys = saver.scope.keys.thread("", thread_id)
    for key in (keys.checkpoints, keys.index):
        savers.client.pexpire(key, ttl_ms)


def ttls(savers: Savers, saver: AnySaver, thread_id: str) -> list[int]:
    keys = saver.scope.keys.thread("", thread_id)
    return [savers.client.pttl(key) for key in (keys.checkpoints, keys.index)]


@pytest.mark.parametrize("shallow", [False, True])
def test_every_write_renews_the_expiry_of_its_whole_thread_in_its_own_round_trip(savers: Savers, shallow: bool) -> None:
    with savers.open(shallow=shallow, **KEEPING) as saver:
        first = put(saver, at("t"), {"big": BIG}, metadata={"run_id": "r"})
        meter = Meter(saver)
        writes: list[Callable[[], Any]] = [
            lambda: put(saver, first.config, {"big": BIG, "n": 1}, first.checkpoint, {"run_id": "r"}),
            lambda: saver.put_writes(at("t", "", newest(saver)), [("a", 1)], "task"),
        ]
        for write in writes:
            age(savers, saver, "t", 60_000)
            meter.take()
            write()
            assert meter.take() <= 2  # newest() reads
            for left in ttls(savers, saver, "t"):
                assert TTL_MS - 60_000 < left <= TTL_MS
        assert savers.client.pttl("rtmem:run:/r") > TTL_MS


def newest(saver: AnySaver) -> str:
    found = saver.get_tuple(at("t"))
    assert found is not None
    return found.checkpoint["id"]


def test_writes_before_their_checkpoint_expire_too(savers: Savers) -> None:
    with savers.open(**KEEPING) as saver:
        saver.put_writes(at("t", "", "1"), [("a", 1)], "task")
        assert 0 < savers.client.pttl(saver.scope.keys.thread("", "t").checkpoints) <= TTL_MS


def test_a_copy_expires_too(savers: Savers) -> None:
    with savers.open(**KEEPING) as saver:
        grow(saver, "t", 3)
        saver.copy_thread("t", "u")
        for left in ttls(savers, saver, "u"):
            assert 0 < left <= TTL_MS


@pytest.mark.parametrize("refresh", [False, True])
def test_a_read_renews_the_expiry_only_if_asked_to(savers: Savers, refresh: bool) -> None:
    with savers.open(ttl={"default_ttl": TTL_MS / 60_000, "refresh_on_read": refresh}) as saver:
        grow(saver, "t", 2)
        meter = Meter(saver)
        for _ in range(2):  # whole, and conditional
            age(savers, saver, "t", 60_000)
            meter.take()
            saver.get_tuple(at("t"))
            assert meter.take() == 1
            for left in ttls(savers, saver, "t"):
                assert (left > 60_000) == refresh


def test_threads_without_ttl_stay(savers: Savers) -> None:
    with savers.open() as saver:
        grow(saver, "t", 2)
        assert ttls(savers, saver, "t") == [-1, -1]


@pytest.mark.parametrize("shallow", [False, True])
def test_an_expired_thread_is_gone_whole_and_a_late_write_does_not_bring_it_back(savers: Savers, shallow: bool) -> None:
    with savers.open(shallow=shallow, settings=Checkpoint(ttl_ms=40)) as saver:
        first = put(saver, at("t"), {"messages": [message(1)], "big": BIG})
        deadline = time.monotonic() + 10
        while savers.client.exists(*vars_of(saver)):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        assert saver.get_tuple(at("t")) is None
        assert [*saver.list(at("t"))] == []
        saver.put_writes(first.config, [("a", 1)], "task")
        assert not savers.client.exists(*vars_of(saver))
    # The next step of a run that goes on stores everything again, whatever this process remembers.
    with savers.open(shallow=shallow) as saver:
        first = put(saver, at("t"), {"messages": [message(1)], "big": BIG})
        savers.client.unlink(*vars_of(saver))
        values = {"messages": [message(1), message(2)], "big": BIG}
        second = put(saver, first.config, values, first.checkpoint, changed={"messages"})
        with savers.open() as cold:
            assert same(cold.get_tuple(at("t")), second)
        assert inspect(saver, "t").problems == []


def vars_of(saver: AnySaver) -> tuple[str, str]:
    keys = saver.scope.keys.thread("", "t")
    return keys.checkpoints, keys.index
