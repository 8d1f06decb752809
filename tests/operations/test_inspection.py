"""Each way in which a thread can be damaged is found and named; none is changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rtmem.checkpoint import RedisSaver
from tests.checkpoint.colours import Meter, inspect
from tests.checkpoint.talks import at, grow, message, put

KEY, INDEX = "rtmem:t:{/t}:c", "rtmem:t:{/t}:i"


@pytest.fixture
def saver(redis_url: str, redis_client: Any) -> Iterator[RedisSaver]:
    """A saver and its thread "t" of 20 checkpoints, in order."""
    with RedisSaver(redis_url) as saver:
        grow(saver, "t", 20)
        assert inspect(saver, "t").problems == []
        yield saver


def field(client: Any, kind: bytes) -> bytes:
    """Some field of the thread, always the same."""
    names = client.hkeys(KEY)
    found: bytes = min(name for name in names if (name.isdigit() if kind == b"#" else name.startswith(kind)))
    return found


Damage = Callable[[Any], Any]
DAMAGES: dict[str, tuple[Damage, str]] = {
    "piece gone": (lambda c: c.hdel(KEY, field(c, b"#")), "refers to pieces that are gone"),
    "piece left over": (lambda c: c.hset(KEY, b"7777", b"x"), "nothing refers to pieces 7777"),
    "large piece left over": (lambda c: c.hset(KEY, str(2**51 + 5), b"x"), "nothing refers to pieces 2251799813685253"),
    "record gone": (lambda c: c.hdel(KEY, field(c, b"c")), "which has no record"),
    "index entry gone": (lambda c: c.zrem(INDEX, field(c, b"c")[1:]), "is not in the index"),
    "index gone": (lambda c: c.delete(INDEX), "is not in the index"),
    "record damaged": (lambda c: c.hset(KEY, field(c, b"c"), b"\xc1"), "does not decode"),
    "head gone": (lambda c: c.hdel(KEY, b"h"), "names none as its latest checkpoint"),
    "head wrong": (lambda c: c.hset(KEY, b"h", field(c, b"c")[1:]), "as its latest checkpoint, which is"),
    "head of nothing": (lambda c: c.hset(KEY, b"hns", b"1\0ns"), "'ns'"),
    "writes gone": (lambda c: c.hdel(KEY, field(c, b"w")), "are gone"),
    "tasks gone": (lambda c: c.hdel(KEY, field(c, b"t")), "belong to no list of tasks"),
    "tasks damaged": (lambda c: c.hset(KEY, field(c, b"t"), b"\xc1"), "does not decode"),
    "writes of nothing": (lambda c: c.hset(KEY, b"t1\0", c.hget(KEY, field(c, b"t"))), "which is not there"),
    "version gone": (lambda c: c.hdel(KEY, b"v"), "no layout version"),
    "newer": (lambda c: c.hset(KEY, b"v", b"99"), "layout 99"),
    "counter reset": (lambda c: c.hset(KEY, b"n", b"1"), "the next one would get a number up to it"),
    "foreign field": (lambda c: c.hset(KEY, b"Z", b"1"), "none of this layout"),
    "shallow flag": (lambda c: c.hset(KEY, b"s", b"1"), "though only shallow savers wrote there"),
    "index expires alone": (lambda c: c.pexpire(INDEX, 100_000), "only one of its two keys expires"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_left_as_it_is(name: str, saver: RedisSaver, redis_client: Any) -> None:
    damage, words = DAMAGES[name]
    damage(redis_client)
    before = redis_client.hgetall(KEY), redis_client.zrange(INDEX, 0, -1)
    problems = inspect(saver, "t").problems
    assert any(words in problem for problem in problems), problems
    assert (redis_client.hgetall(KEY), redis_client.zrange(INDEX, 0, -1)) == before


def test_a_report_counts_what_is_there(saver: RedisSaver, redis_client: Any) -> None:
    put(saver, at("t", "sub"), {"n": "x" * 200})
    saver.put_writes(at("t", "", "2"), [("a", 1)], "early")
    report = inspect(saver, "t")
    assert report.exists
    assert report.layout == 1
    assert not report.solely_shallow
    assert report.checkpoints == {"": 20, "sub": 1}
    numbers = [name for name in redis_client.hkeys(KEY) if name.isdigit()]
    assert report.pieces == len(numbers)
    assert report.piece_bytes == sum(map(len, redis_client.hmget(KEY, numbers)))
    assert report.references > 100
    assert 0.5 < report.shared_ratio < 1
    assert report.early == 1
    assert report.ttl_ms == -1
    assert report.problems == []
    assert not inspect(saver, "unknown").exists


def test_what_waits_for_a_sweep_is_garbage_and_no_problem(saver: RedisSaver, redis_client: Any) -> None:
    members = redis_client.zrange(INDEX, 0, -2)
    keys = (KEY, INDEX, "rtmem:t:{/t}:d")
    put(saver, at("t"), {"messages": [message(99)]})
    redis_client.execute_command("FCALL", "rtmem_v2_checkpoint_forget", 3, *keys, "", *members)
    report = inspect(saver, "t")
    assert report.problems == []
    assert report.sweep == ""
    # Of the 20 messages only those that the checkpoint left to them refers to are no garbage; two checkpoints are left.
    assert report.checkpoints == {"": 2}
    redis_client.execute_command("FCALL", "rtmem_v2_checkpoint_sweep", 3, *keys)
    report = inspect(saver, "t")
    assert report.problems == []
    assert report.sweep in ("", "free")


def test_a_long_thread_is_read_in_pages(saver: RedisSaver) -> None:
    grow(saver, "t", 280)
    meter = Meter(saver)
    report = inspect(saver, "t")
    assert report.problems == []
    fields = 2 * 300 + 300 + report.pieces
    # HSCAN answers about as many as asked for; the index and the two TTLs are one round trip each.
    assert fields / 400 <= meter.take() <= fields / 100 + 4
