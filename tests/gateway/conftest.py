"""A gateway on a real socket, in the test's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
import redis

from rtmem.checkpoint import AsyncRedisSaver
from rtmem.drivers import AsyncDriver
from rtmem.gateway.app import UndecodedPaths, create_app
from rtmem.gateway.server import listen, serve
from rtmem.settings import Checkpoint, Gateway, Redis, Settings
from tests.gateway.graphs import Graph, all_graphs

TOKENS = {"token-of-alice": "alice", "token-of-bob": "bob"}


class Served:
    """A gateway that is being served."""

    def __init__(self, url: str, app: UndecodedPaths, saver: Any, driver: AsyncDriver, stop: anyio.Event) -> None:
        self.url = url
        self.ws_url = url.replace("http", "ws", 1)
        self.app = app
        self.gateway = app.gateway
        self.stop = stop
        self.saver = saver
        self.driver = driver
        self.auth = {"authorization": "Bearer token-of-alice"}


ServeGateway = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture
def serve_gateway(redis_url: str, redis_client: redis.Redis) -> ServeGateway:
    """`async with serve_gateway(graphs=..., saver=..., log_flush_ms=...) as served:`; keywords are Gateway settings."""

    @asynccontextmanager
    async def served(
        *,
        graphs: dict[str, Graph] | None = None,
        saver: Any = None,
        url: str | None = None,
        redis_settings: Redis | None = None,
        sections: dict[str, Any] | None = None,
        memory_expected: bool = False,
        **gateway: Any,
    ) -> AsyncIterator[Served]:
        gateway = {"tokens": TOKENS, "port": 0, "drain_timeout_ms": 500, "log_flush_ms": 5, **gateway}
        # What is promised within a deadline must not depend on the machine.
        patient = Redis(deadline_ms=60_000)
        sections = {"redis": redis_settings or patient, **(sections or {})}
        settings = Settings(gateway=msgspec.convert(gateway, Gateway), **sections)
        made: list[Served] = []
        started, stop = anyio.Event(), anyio.Event()

        @asynccontextmanager
        async def app() -> AsyncIterator[UndecodedPaths]:
            async with await AsyncDriver.connect(url or redis_url, settings.redis) as driver:
                its_saver = saver or AsyncRedisSaver(driver=driver, settings=Checkpoint(ack_timeout_ms=60_000))
                application = create_app(
                    graphs or all_graphs(), driver, its_saver, settings, memory_expected=memory_expected
                )
                made.append(Served("", application, its_saver, driver, stop))
                yield application

        def on_started(url: str) -> None:
            made[0].url, made[0].ws_url = url, url.replace("http", "ws", 1)
            started.set()

        listener = listen(settings.gateway)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve, app, settings, listener, on_started, stop)
                await started.wait()
                yield made[0]
                stop.set()
        finally:
            listener.close()

    return served
