"""A pytest plugin that puts another saver in the place of LangGraph's own SQLite savers.

Loaded by `-p saver_plugin` into a pytest that runs LangGraph's `tests/`. Their `conftest.py` imports the context
managers `_checkpointer_sqlite` and `_checkpointer_sqlite_aio` by name and looks them up when a fixture runs, so
replacing the two names in its namespace attaches a saver to every test without editing a line of theirs.

What to attach is told by the environment, because this process is a child: SUITE_SAVER names an entry of `SAVERS`,
SUITE_REDIS_URL is a server of our own that may be flushed before every test, SUITE_OFFLOAD_BYTES_MIN is an option of
our savers, SUITE_OUTCOMES is where the outcome of each test is appended as a line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import pairwise
from typing import Any

import pytest
import redis

_OFFLOAD_BYTES_MIN = int(os.environ.get("SUITE_OFFLOAD_BYTES_MIN", "0"))


@contextmanager
def _rtmem_full() -> Iterator[Any]:
    from rtmem.checkpoint import RedisSaver

    with RedisSaver.from_conn_string(_flushed(), offload_bytes_min=_OFFLOAD_BYTES_MIN) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _rtmem_full_async() -> AsyncIterator[Any]:
    from rtmem.checkpoint import AsyncRedisSaver

    async with AsyncRedisSaver.from_conn_string(_flushed(), offload_bytes_min=_OFFLOAD_BYTES_MIN) as saver:
        await saver.asetup()
        yield saver


@contextmanager
def _rtmem_shallow() -> Iterator[Any]:
    from rtmem.checkpoint import ShallowRedisSaver

    with ShallowRedisSaver.from_conn_string(_flushed(), offload_bytes_min=_OFFLOAD_BYTES_MIN) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _rtmem_shallow_async() -> AsyncIterator[Any]:
    from rtmem.checkpoint import AsyncShallowRedisSaver

    async with AsyncShallowRedisSaver.from_conn_string(_flushed(), offload_bytes_min=_OFFLOAD_BYTES_MIN) as saver:
        await saver.asetup()
        yield saver


@contextmanager
def _peer_full() -> Iterator[Any]:
    from langgraph.checkpoint.redis import RedisSaver

    with RedisSaver.from_conn_string(_flushed()) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _peer_full_async() -> AsyncIterator[Any]:
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver

    async with AsyncRedisSaver.from_conn_string(_flushed()) as saver:
        await saver.asetup()
        yield saver


# Name -> (sync, async) context managers; None leaves LangGraph's SQLite savers where they are.
SAVERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]] | None] = {
    "sqlite": None,
    "full": (_rtmem_full, _rtmem_full_async),
    "shallow": (_rtmem_shallow, _rtmem_shallow_async),
    "langgraph-checkpoint-redis": (_peer_full, _peer_full_async),
}


def _flushed() -> str:
    """The server's URL, with nothing in it: LangGraph's tests reuse thread ids."""
    url = os.environ["SUITE_REDIS_URL"]
    client = redis.Redis.from_url(url)
    client.flushdb()
    client.close()
    return url


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    savers = SAVERS[os.environ["SUITE_SAVER"]]
    if savers is not None:
        # Not before collection: only now has their conftest been imported.
        conftest = sys.modules["tests.conftest"]
        assert hasattr(conftest, "_checkpointer_sqlite"), "LangGraph renamed its fixtures: this plugin replaces nothing"
        assert hasattr(conftest, "_checkpointer_sqlite_aio"), "LangGraph renamed its fixtures"
        conftest._checkpointer_sqlite, conftest._checkpointer_sqlite_aio = savers  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    # The call's outcome, and any other phase that went wrong: a teardown that fails is a failed test.
    if report.when == "call" or report.outcome != "passed":
        line = {"test": item.nodeid, "phase": report.when, "outcome": report.outcome}
        if report.outcome != "passed":
            line["reason"] = _reason(report.longrepr)
        with open(os.environ["SUITE_OUTCOMES"], "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
    return report


def _reason(longrepr: Any) -> str:
    """The message, and where in LangGraph's tests it happened, with the line that did it."""
    if not hasattr(longrepr, "reprcrash"):
        return str(longrepr)[:2000]
    frames = [
        line for entry in longrepr.reprtraceback.reprentries for text in entry.lines for line in text.splitlines()
    ]
    places = [
        f" at {frame.strip()}: {source.strip()}"
        for frame, source in pairwise(frames)
        if frame.lstrip().startswith("File ") and f"{os.sep}tests{os.sep}test_" in frame
    ]
    return str(longrepr.reprcrash.message).partition("\n")[0][:1500] + (places[-1] if places else "")
