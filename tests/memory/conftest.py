"""Memories of both colours; every body that asks for `world` runs with each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.callers import Caller
from tests.checkpoint.colours import Loop
from tests.embedders import Words
from tests.memory.colours import World


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[Loop]:
    """Where awaiting memories live."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=["blocking-resp3", "awaiting-resp2"])
def world(request: pytest.FixtureRequest, redis_url: str, event_loop_thread: Loop) -> Iterator[World]:
    """Both colours and both protocols, at a server that is empty but for its functions."""
    with redis.Redis.from_url(redis_url, retry=Retry(NoBackoff(), 0)) as client:
        client.flushall()
        yield World(redis_url, client, event_loop_thread, "awaiting" in request.param, 2 if "2" in request.param else 3)


@pytest.fixture
def ann(world: World) -> Iterator[Caller]:
    """The memory of one user."""
    with world.open(principal="ann", embedder=Words()) as memory:
        yield memory
