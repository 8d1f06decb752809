"""Who takes part: rtmem's savers, the peers, and how each is opened with its own defaults."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from loadtest.servers import Server, ServerMissingError, postgres_server

Saver = BaseCheckpointSaver[Any]


@dataclass(frozen=True, slots=True)
class Subject:
    """A saver that takes part."""

    name: str
    saver: Saver
    server: Server | None  # None: in this process
    history: bool = True  # False: keeps only the latest checkpoint

    @property
    def ours(self) -> bool:
        return self.name.startswith("rtmem")


@dataclass(frozen=True, slots=True)
class Kind:
    """How to open one kind of saver on a Redis URL; also through a tap on the wire."""

    name: str
    open: Callable[[str], AbstractAsyncContextManager[Saver]]
    history: bool = True


def rtmem_kinds(*, cache: bool = True) -> list[Kind]:
    """rtmem's savers; without `cache` no head is held, so every read fetches and decodes the whole state."""
    from rtmem import settings
    from rtmem.checkpoint import AsyncRedisSaver, AsyncShallowRedisSaver

    cache_bytes_max = settings.Checkpoint().cache_bytes_max if cache else 0

    def opener(kind: type[AsyncRedisSaver], prefix: str) -> Callable[[str], AbstractAsyncContextManager[Saver]]:
        # A prefix each, because all experiments use the same thread ids: two savers on one thread make each other's
        # heads outdated, and send everything again.
        checkpoint = settings.Checkpoint(prefix=prefix, cache_bytes_max=cache_bytes_max)

        @asynccontextmanager
        async def opened(url: str) -> AsyncIterator[Saver]:
            async with kind.from_conn_string(url, settings=checkpoint) as saver:
                await saver.asetup()
                yield saver

        return opened

    return [
        Kind("rtmem full", opener(AsyncRedisSaver, "full")),
        Kind("rtmem shallow", opener(AsyncShallowRedisSaver, "shallow"), False),
    ]


@asynccontextmanager
async def _lg_redis(url: str) -> AsyncIterator[Saver]:
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver

    async with AsyncRedisSaver.from_conn_string(url) as saver:
        await saver.asetup()
        yield saver


@asynccontextmanager
async def _lg_redis_shallow(url: str) -> AsyncIterator[Saver]:
    from langgraph.checkpoint.redis.ashallow import AsyncShallowRedisSaver

    async with AsyncShallowRedisSaver.from_conn_string(
        url, checkpoint_prefix="lg_shallow", checkpoint_write_prefix="lg_shallow_write"
    ) as saver:
        await saver.asetup()
        yield saver


@asynccontextmanager
async def _plainredis(url: str) -> AsyncIterator[Saver]:
    from langgraph_checkpoint_plainredis import AsyncRedisSaver

    saver = AsyncRedisSaver(url=url, prefix="plain")
    try:
        yield saver
    finally:
        await saver.client.aclose()


def redis_peers() -> list[Kind]:
    """Peers that store in Redis."""
    return [
        Kind("lg-redis full", _lg_redis),
        Kind("lg-redis shallow", _lg_redis_shallow, False),
        Kind("plainredis", _plainredis),
    ]


@asynccontextmanager
async def redis_subject(kind: Kind, server: Server) -> AsyncIterator[Subject]:
    """`kind` on `server`."""
    async with kind.open(server.url) as saver:
        yield Subject(kind.name, saver, server, kind.history)


@asynccontextmanager
async def memory_subject() -> AsyncIterator[Subject]:
    """LangGraph's InMemorySaver."""
    yield Subject("memory", InMemorySaver(), None)


@asynccontextmanager
async def sqlite_subject() -> AsyncIterator[Subject]:
    """LangGraph's AsyncSqliteSaver on a file of its own, with its own settings."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    with tempfile.TemporaryDirectory(prefix="rtmem-loadtest-") as folder:
        async with AsyncSqliteSaver.from_conn_string(str(Path(folder) / "checkpoints.sqlite")) as saver:
            await saver.setup()
            yield Subject("sqlite", saver, None)


@asynccontextmanager
async def postgres_subject() -> AsyncIterator[Subject]:
    """LangGraph's AsyncPostgresSaver as its documentation opens it, on a Postgres of our own.

    Raises:
        ServerMissingError: no Postgres here.
    """
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    with postgres_server() as server:
        async with AsyncPostgresSaver.from_conn_string(server.url) as saver:
            await saver.setup()
            yield Subject("postgres", saver, server)


@asynccontextmanager
async def subjects(
    server: Server, *, peers: bool, cache: bool = True, on_absent: Callable[[str], None]
) -> AsyncIterator[list[Subject]]:
    """All who take part, open; `on_absent` is told who cannot and why."""
    async with contextlib.AsyncExitStack() as stack:
        found = [await stack.enter_async_context(redis_subject(kind, server)) for kind in rtmem_kinds(cache=cache)]
        if peers:
            for kind in redis_peers():
                found.append(await stack.enter_async_context(redis_subject(kind, server)))
            try:
                found.append(await stack.enter_async_context(postgres_subject()))
            except ServerMissingError as exc:
                on_absent(f"postgres does not take part: {exc}")
            found.append(await stack.enter_async_context(sqlite_subject()))
        found.append(await stack.enter_async_context(memory_subject()))
        yield found
