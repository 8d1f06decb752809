"""The fuzz run: that nothing goes wrong, and that it would see what does."""

from __future__ import annotations

import pytest
import redis

from loadtest.memory.fuzz import CROSSED, INPUTS, TARGETS, fuzz
from loadtest.memory.targets import verdicts
from rtmem import keys
from rtmem.loadtest import Experiment
from rtmem.operations import memory_queries

pytestmark = pytest.mark.anyio

FEW = 60


async def run(url: str, inputs: int = FEW) -> Experiment:
    seen: list[int] = []
    found = await fuzz(url, inputs, 7, lambda: seen.append(1))
    assert len(seen) == inputs
    return found


async def test_hostile_inputs_break_nothing_and_nothing_crosses(redis_url: str, redis_client: redis.Redis) -> None:
    found = await run(redis_url, 4 * FEW)
    assert [row.facts[INPUTS] for row in found.rows[:-1]] == [40] * len(TARGETS)
    judged = verdicts([found])
    assert all(verdict.passed for verdict in judged), [row for row in found.rows if row.first_error]
    assert len(judged) == 4


async def test_names_that_are_taken_for_the_same_would_be_seen(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    escape = keys.escape
    monkeypatch.setattr(keys, "escape", lambda text: escape(text.casefold().strip(" :/*")))
    monkeypatch.setattr(keys, "_remembered_place", keys._place)
    found = await run(redis_url, 4 * FEW)
    crossed = {row.contender: row.facts[CROSSED] for row in found.rows[:-1]}
    assert all(crossed[name] for name in ("text", "filters", "namespaces", "tags")), crossed
    assert not all(verdict.passed for verdict in verdicts([found]))


async def test_what_the_server_does_not_understand_would_be_seen(
    redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_queries, "scope_tag", lambda principal, path: principal)  # a name as syntax
    found = await run(redis_url)
    assert sum(row.errors for row in found.rows) > 0
