from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from rtmem.checkpoint import RedisSaver
from tests.checkpoint.talks import at, grow, put
from tests.cli.commands import environment, rtmem


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


def test_a_thread_in_order_is_counted_and_a_damaged_one_fails(
    env: dict[str, str], redis_url: str, redis_client: redis.Redis
) -> None:
    values: dict[str, Any] = {"messages": [{"text": "hello " * 50}], "n": 1}
    with RedisSaver(redis_url, principal="alice") as saver:
        put(saver, at("a thread"), values)
    done = rtmem("doctor", "threads", "a thread", "--principal", "alice", "--redis-url", redis_url, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "in order" in done.stdout
    redis_client.hset("rtmem:t:{alice/a%20thread}:c", "999", b"nobody refers to this")
    done = rtmem("doctor", "threads", "a thread", "--principal", "alice", "--redis-url", redis_url, "--json", env=env)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["checkpoints"] == {"": 1}
    assert any("nothing refers to pieces 999" in problem for problem in report["problems"])


def test_values_at_pointers_are_counted_and_one_that_is_gone_fails(
    env: dict[str, str], redis_url: str, redis_client: redis.Redis
) -> None:
    with RedisSaver(redis_url, principal="alice", offload_bytes_min=1_000) as saver:
        put(saver, at("t"), {"a": "a" * 2_000, "b": "b" * 2_000})
    command = ("doctor", "threads", "t", "--principal", "alice", "--redis-url", redis_url)
    done = rtmem(*command, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "at pointers   2 values" in done.stdout
    redis_client.delete(*redis_client.keys("rtmem:p:*:c:*")[:1])
    done = rtmem(*command, env=env)
    assert done.returncode == 1
    assert "1 of 1 chunks are gone" in done.stdout


def test_a_thread_is_found_without_naming_the_principal_of_rtmem_up(env: dict[str, str], redis_url: str) -> None:
    with RedisSaver(redis_url, principal="local") as saver:
        put(saver, at("just chatted"), {"n": 1})
    done = rtmem("doctor", "threads", "just chatted", "--redis-url", redis_url, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'just chatted' of principal 'local'" in done.stdout
    with RedisSaver(redis_url) as saver:
        put(saver, at("just chatted"), {"n": 1})
    done = rtmem("doctor", "threads", "just chatted", "--redis-url", redis_url, env=env)
    assert "also there for principal ''" in done.stderr
    done = rtmem("doctor", "threads", "just chatted", "--redis-url", redis_url, "--principal", "", env=env)
    assert "of no principal" in done.stdout


def test_a_thread_that_is_not_there_fails_with_the_next_step(env: dict[str, str], redis_url: str) -> None:
    done = rtmem("doctor", "threads", "no such thread", "--redis-url", redis_url, env=env)
    assert done.returncode == 1
    looked = "not there for principal 'local' and savers without a principal: `rtmem doctor threads` lists those"
    assert looked in done.stdout


def test_without_an_id_the_newest_threads_are_listed(
    env: dict[str, str], redis_url: str, redis_client: redis.Redis
) -> None:
    with RedisSaver(redis_url) as saver:
        for number in range(102):
            put(saver, at(f"t{number}"), {"n": 1})
    with RedisSaver(redis_url, principal="local") as saver:
        grow(saver, "chatted", 3)
    done = rtmem("doctor", "threads", "--redis-url", redis_url, "--limit", "2", env=env)
    assert done.returncode == 0, done.stderr
    assert [line.split()[2:] for line in done.stdout.splitlines()] == [["3", "chatted"], ["1", "t101"]]
    now_ms = time.time() * 1_000
    assert done.stdout.startswith(datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y-"))
    assert "(2 of 103 threads of principal 'local' and savers without a principal" in done.stderr
    done = rtmem("doctor", "threads", "--redis-url", redis_url, "--principal", "local", "--json", env=env)
    (line,) = map(json.loads, done.stdout.splitlines())
    assert (line["thread_id"], line["principal"], line["checkpoints"]) == ("chatted", "local", 3)
    assert abs(line["written_ms"] - now_ms) < 600_000
