"""Blocking and awaiting runs over blocking and awaiting memories; every body that asks for `world` runs with each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.agent.recall.worlds import World
from tests.checkpoint.colours import Loop


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[Loop]:
    """Where awaiting agents and memories live."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=["invoke", "ainvoke", "ainvoke, blocking memory"])
def world(request: pytest.FixtureRequest, redis_url: str, redis_client: redis.Redis, event_loop_thread: Loop) -> World:
    """At an empty server."""
    return World(redis_url, event_loop_thread, "ainvoke" in request.param, request.param == "ainvoke")
