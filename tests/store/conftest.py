"""Stores of both colours; every body that asks for `stores` runs with each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.checkpoint.colours import Loop
from tests.embedders import Letters
from tests.store.colours import AnyStore, Stores


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[Loop]:
    """Where awaiting stores live."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=["blocking-resp3", "awaiting-resp2"])
def stores(request: pytest.FixtureRequest, redis_url: str, event_loop_thread: Loop) -> Iterator[Stores]:
    """Both colours and both protocols, at a server that is empty but for its functions."""
    with redis.Redis.from_url(redis_url, retry=Retry(NoBackoff(), 0)) as client:
        client.flushall()
        yield Stores(
            redis_url, client, event_loop_thread, "awaiting" in request.param, 2 if "2" in request.param else 3
        )


@pytest.fixture
def store(stores: Stores) -> Iterator[AnyStore]:
    """The memory of one principal, with vectors of the field `text`."""
    with stores.open(principal="ann", index={"embed": Letters(), "fields": ["text"]}) as store:
        yield store
