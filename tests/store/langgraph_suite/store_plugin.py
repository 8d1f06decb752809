"""A pytest plugin that puts our stores in the place of LangGraph's own, in LangGraph's own tests.

Loaded by `-p store_plugin` before those tests are imported: they take `SqliteStore`, `AsyncSqliteStore` and
`InMemoryStore` from modules whose attributes are replaced here, so not a line of theirs is edited. SUITE_REDIS_URL is
a server of our own; every store that is opened gets a principal of its own, as every SQLite store gets its own file.
SUITE_COLOUR says which of ours stands in for InMemoryStore, which has both colours.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import langgraph.store.memory
import langgraph.store.sqlite
import langgraph.store.sqlite.aio
import pytest
import redis

from rtmem.store import AsyncRedisStore, RedisStore

URL = os.environ["SUITE_REDIS_URL"]
COLOUR = os.environ["SUITE_COLOUR"]
_numbers = itertools.count()


def _options(index: Any) -> dict[str, Any]:
    # SQLite's IndexConfig has `text_fields` instead of LangGraph's `fields`, and a kind of distance.
    kept = None
    if index is not None:
        fields = index.get("fields") or index.get("text_fields")
        kept = {"embed": index["embed"], "dims": index["dims"], "fields": fields}
    # One of their tests asks for thousands of things at once, the last of which waits for all others.
    patient = {"deadline_ms": 120_000}
    return {"index": kept, "principal": f"suite-{next(_numbers)}", "connection_args": patient}


class _NoSweeper:
    """Their stores have a thread that deletes what is over. Redis does that by itself."""

    def start_ttl_sweeper(self) -> None:
        pass

    def stop_ttl_sweeper(self) -> None:
        pass

    def sweep_ttl(self) -> int:
        return 0


class SqliteStore(_NoSweeper, RedisStore):
    MIGRATIONS: tuple[str, ...] = ()

    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string: str | None = None, *, index: Any = None, ttl: Any = None) -> Iterator[Any]:
        with cls(URL, ttl=ttl, **_options(index)) as store:
            yield store


class AsyncSqliteStore(AsyncRedisStore):
    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls, conn_string: str | None = None, *, index: Any = None, ttl: Any = None
    ) -> AsyncIterator[Any]:
        async with cls(URL, ttl=ttl, **_options(index)) as store:
            yield store

    async def start_ttl_sweeper(self) -> None:
        pass

    async def stop_ttl_sweeper(self) -> None:
        pass

    async def sweep_ttl(self) -> int:
        return 0


class BlockingInMemoryStore(RedisStore):
    def __init__(self, *, index: Any = None) -> None:
        super().__init__(URL, **_options(index))


class AwaitingInMemoryStore(AsyncRedisStore):
    """Their tests call sync verbs with and without a running loop: ours is in another thread, whatever the verb."""

    _loop = asyncio.new_event_loop()

    def __init__(self, *, index: Any = None) -> None:
        super().__init__(URL, **_options(index))
        self.loop = self._loop

    def batch(self, ops: Iterable[Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(super().abatch(list(ops)), self._loop).result(60)

    async def abatch(self, ops: Iterable[Any]) -> Any:
        work = asyncio.run_coroutine_threadsafe(super().abatch(list(ops)), self._loop)
        return await asyncio.wrap_future(work)


def pytest_configure() -> None:
    client = redis.Redis.from_url(URL)
    client.flushdb()  # two suites have embedders of different size
    client.close()
    threading.Thread(target=AwaitingInMemoryStore._loop.run_forever, daemon=True).start()
    langgraph.store.sqlite.SqliteStore = SqliteStore  # type: ignore[assignment, misc]
    langgraph.store.sqlite.AsyncSqliteStore = AsyncSqliteStore  # type: ignore[assignment, misc]
    langgraph.store.sqlite.aio.AsyncSqliteStore = AsyncSqliteStore  # type: ignore[assignment, misc]
    twin = BlockingInMemoryStore if COLOUR == "blocking" else AwaitingInMemoryStore
    langgraph.store.memory.InMemoryStore = twin  # type: ignore[assignment, misc]


@pytest.fixture(autouse=True)
def _flushed() -> None:
    """One index holds the vectors of one embedder, and their tests have several."""
    client = redis.Redis.from_url(URL)
    client.flushdb()
    client.close()
