"""Servers and savers of both colours; every body that asks for `savers` runs with each."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.server import binaries, embedded
from rtmem.server.binaries import Binaries
from rtmem.settings import Server
from tests.checkpoint.colours import Loop, Savers

_SUITE = "checkpoint/test_langgraph_suite.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _SUITE not in item.nodeid)  # first: minutes of one core, while another does the rest


@pytest.fixture(scope="session")
def plain_redis_url() -> Iterator[str]:
    """The address of a server without any module."""
    data_dir = tempfile.mkdtemp(prefix="rtmem-test-")
    program = Binaries(binaries.find().server, ())
    try:
        with embedded.start(Server(data_dir=data_dir, profile="ephemeral"), program=program) as server:
            yield server.url
    finally:
        shutil.rmtree(data_dir)


@pytest.fixture(scope="session")
def event_loop_thread() -> Iterator[Loop]:
    """Where awaiting savers live."""
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(params=["blocking-resp3-modules", "awaiting-resp2-plain"])
def savers(
    request: pytest.FixtureRequest, redis_url: str, plain_redis_url: str, event_loop_thread: Loop
) -> Iterator[Savers]:
    """Both colours, both protocols, a server with and one without modules; empty, with its functions."""
    url = plain_redis_url if "plain" in request.param else redis_url
    with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as client:
        client.flushall()
        client.config_resetstat()
        yield Savers(url, client, event_loop_thread, "awaiting" in request.param, 2 if "resp2" in request.param else 3)
