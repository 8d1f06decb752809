"""Servers and savers of both colours; every body that asks for `savers` runs with each."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rtmem.server import binaries, embedded
from rtmem.server.binaries import Binaries
from rtmem.settings import Server
from tests.checkpoint.colours import Loop, Savers

SUITE_SAVERS = ("full", "shallow")
_SUITE = "test_langgraph_suite.py"

SuiteRuns = dict[str, tuple[subprocess.Popen[bytes], Path]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _SUITE in item.nodeid)  # last: they only wait for what runs beside the others


@pytest.fixture(scope="session", autouse=True)
def langgraph_runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SuiteRuns]:
    """LangGraph's suite with a saver each, if its outcome is asked for: the processes, and the files they print to.

    They take a minute and a half of CPU and hardly more than one core while other tests wait for this and that, so they
    take what is left: nobody's timing should depend on them, and theirs is checked again when something has failed.
    """
    started: SuiteRuns = {}
    with ExitStack() as stack:
        if any(_SUITE in item.nodeid for item in request.session.items):
            for saver in SUITE_SAVERS:
                printed = tmp_path_factory.mktemp(saver) / "printed"
                out = stack.enter_context(printed.open("wb"))
                command = ["nice", "-n", "19", sys.executable, str(Path(__file__).parent / "langgraph_suite")]
                process = subprocess.Popen([*command, "--saver", saver], stdout=out, stderr=subprocess.STDOUT)
                stack.enter_context(process)
                stack.callback(process.send_signal, signal.SIGINT)  # if it is left at work, it stops its Redis
                started[saver] = (process, printed)
        yield started


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
