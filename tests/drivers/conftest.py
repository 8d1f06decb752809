"""Relays and bare servers for the drivers' tests."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import pytest
import redis

from tests.drivers.processes import Spawn, spawning
from tests.drivers.relay import Relay, relay_to


@pytest.fixture
def socket_path(redis_url: str) -> str:
    """The unix socket of the session's server."""
    return unquote(urlsplit(redis_url).path)


@pytest.fixture
def relay(socket_path: str, redis_client: redis.Redis) -> Iterator[Relay]:
    """A relay in front of the session's server, which is empty."""
    with relay_to(socket_path) as relay:
        yield relay


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts bare redis-servers; all are gone after the test."""
    with spawning() as spawn:
        yield spawn
