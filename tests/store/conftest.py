"""Stores of both colours; every body that asks for `stores` runs with each."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.checkpoint.colours import Loop
from tests.store.colours import AnyStore, Letters, Stores

_SUITE = "store/test_langgraph_suite.py"

SuiteRun = tuple[subprocess.Popen[bytes], Path]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _SUITE in item.nodeid)  # last: it only waits for what runs beside the others


@pytest.fixture(scope="session", autouse=True)
def langgraph_run(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SuiteRun | None]:
    """LangGraph's tests of stores, if their outcome is asked for: the process, and the file it prints to."""
    with ExitStack() as stack:
        run = None
        if any(_SUITE in item.nodeid for item in request.session.items):
            printed = tmp_path_factory.mktemp("store-suite") / "printed"
            out = stack.enter_context(printed.open("wb"))
            # It takes what the other tests leave of the machine.
            command = ["nice", "-n", "19", sys.executable, str(Path(__file__).parent / "langgraph_suite")]
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
            stack.enter_context(process)
            stack.callback(process.send_signal, signal.SIGINT)  # if it is left at work, it stops its Redis
            run = (process, printed)
        yield run


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
