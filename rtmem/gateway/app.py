"""The gateway as an ASGI application: routes, and the objects behind them.

    app = create_app({"demo": graph}, driver, saver, settings)

Driver and saver must live on the event loop that serves the application; `server.run` takes a factory for that reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rtmem import settings as settings_
from rtmem.agent.turn import Graph
from rtmem.drivers import AsyncDriver
from rtmem.errors import ConfigError, InvalidRequestError, UnauthorizedError
from rtmem.eventlog import AsyncEventLog
from rtmem.gateway.auth import Tokens
from rtmem.gateway.caches import Caches
from rtmem.gateway.connection import Connection
from rtmem.gateway.http import Http, path_id
from rtmem.gateway.index_upkeep import IndexUpkeep
from rtmem.gateway.memory import Memories
from rtmem.gateway.pointers import check_offload_bytes_min, without_large_values
from rtmem.gateway.protocol import PrefetchParams, StateGetParams
from rtmem.gateway.runs import Runs, Saver
from rtmem.gateway.state import result_of
from rtmem.gateway.sweeper import Sweeper
from rtmem.gateway.threads import LiveThread, Threads
from rtmem.keys import check_id
from rtmem.pointers import AsyncPointers
from rtmem.served import SHARED, gateway_at_work


class Gateway:
    """What the endpoints share."""

    runs: Runs  # from startup on: they live in the application's task group

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        driver: AsyncDriver,
        saver: Saver,
        settings: settings_.Settings,
        memory_expected: bool,
    ) -> None:
        if not graphs:
            raise ConfigError("the gateway has no graph to serve: pass at least one, {assistant_id: compiled graph}")
        for principal in settings.gateway.tokens.values():
            if check_id(principal, "principal").startswith(SHARED):
                raise ConfigError(
                    f"[gateway] tokens lead to principal {principal!r}: {SHARED!r} is what the owner of answers for "
                    "everybody begins with; choose another name"
                )
        self.settings = settings.gateway
        self.log = AsyncEventLog(driver, settings.gateway, prefix=settings.checkpoint.prefix)
        self.threads = Threads(self.log, settings.gateway)
        self._graphs = graphs
        self._saver = saver
        self.connections: set[Connection] = set()
        self.tokens = Tokens(settings.gateway.tokens)
        self.driver = driver
        # Below the prefix of the threads that pin them.
        limits = msgspec.structs.replace(settings.pointers, prefix=settings.checkpoint.prefix)
        self.pointers = AsyncPointers(driver=driver, settings=limits)
        self._elsewhere: dict[str, AsyncDriver] = {}  # by URL: what has a Redis of its own

        def driver_of(url: str) -> AsyncDriver:
            if url and url not in self._elsewhere:
                self._elsewhere[url] = AsyncDriver.lazy(url, settings.redis)
            return self._elsewhere.get(url, driver)

        memory_driver = driver_of(settings.store.redis_url)
        self.memories = Memories(memory_driver, settings, expected=memory_expected)
        self.caches = Caches(driver_of(settings.cache.redis_url), settings, self.memories.embedder, graphs)
        self._sweeper = Sweeper(driver, limits, settings.gateway.sweep_interval_ms)
        self._index_upkeep = IndexUpkeep(memory_driver, self.memories, settings.gateway.sweep_interval_ms)

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        with gateway_at_work():
            async with anyio.create_task_group() as tasks:
                self.runs = Runs(
                    self._graphs, self._saver, self.settings, tasks, self.memories, self.pointers, self.caches
                )
                tasks.start_soon(self._sweeper.run, name="pointer sweeper")
                tasks.start_soon(self._index_upkeep.run, name="upkeep of memory's index")
                tasks.start_soon(self.memories.wake, name="memory")
                tasks.start_soon(self.caches.wake, name="cache")
                tasks.start_soon(self.caches.tell_usage, name="usage of the cache")
                yield
                await self.runs.drain()
                await self.caches.aclose()
                await self.memories.aclose()
                tasks.cancel_scope.cancel()
            for driver in self._elsewhere.values():
                await driver.aclose()

    async def tell_clients(self) -> None:
        """Wait until clients have been sent what there is for them; not for long for one that does not read."""
        with anyio.move_on_after(self.settings.close_timeout_ms / 1_000):
            for connection in tuple(self.connections):
                await connection.told()

    def principal(self, request: HTTPConnection) -> str:
        """Who asks. Raises UnauthorizedError."""
        return self.tokens.principal(request.headers, request.url.query)

    async def stream_events(self, websocket: WebSocket) -> None:
        """WS /threads/{thread_id}/stream/events.

        A refusal comes as a close code after accepting: a browser cannot read the status of a refused upgrade, and both
        SDKs read 4000 + status. A client's subprotocols are not answered: neither SDK offers one.
        """
        # Whoever has gone before he could be let in, refused or said goodbye to is no fault of the application's.
        with suppress(WebSocketDisconnect):
            await self._stream_events(websocket)

    async def refuse_unserved(self, websocket: WebSocket) -> None:
        """A websocket on any other path, refused as above."""
        with suppress(WebSocketDisconnect):
            await websocket.accept()
            await websocket.close(4404, "not served here: use WS /threads/<thread_id>/stream/events")

    async def _stream_events(self, websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            principal = self.tokens.websocket_principal(websocket.headers, websocket.url.query)
            thread = self.threads.get(principal, path_id(websocket, "thread_id"))
        except UnauthorizedError as exc:
            await websocket.close(4401, exc.message[:120])
            return
        except InvalidRequestError as exc:
            await websocket.close(4422, exc.message[:120])
            return
        await self.connect(thread, websocket.receive, websocket.send).serve()

    def connect(self, thread: LiveThread, receive: Receive, send: Send) -> Connection:
        """A connection to `thread`, over a websocket or what plays one."""
        self.memories.prefetch(thread.principal, thread.thread_id)
        return Connection(thread, self, receive, send)

    def prefetch(self, thread: LiveThread, params: PrefetchParams) -> dict[str, Any]:
        """The result of `rtmem.prefetch`."""
        return {"prefetching": self.memories.prefetch(thread.principal, thread.thread_id, params.text)}

    async def state(self, thread: LiveThread, params: StateGetParams) -> dict[str, Any]:
        """The result of `state.get`. Raises as runs.snapshot, QuotaExceededError."""
        least = check_offload_bytes_min(params.offload_bytes_min)
        result = result_of(await self.runs.snapshot(thread, params.namespace), params.keys)
        if least:
            result["values"] = await without_large_values(self, thread.principal, result["values"], least)
        return result


def create_app(
    graphs: Mapping[str, Graph],
    driver: AsyncDriver,
    saver: Saver,
    settings: settings_.Settings,
    *,
    memory_expected: bool = False,
) -> ASGIApp:
    """An ASGI application that serves `graphs` (assistant id -> compiled graph).

    Each principal's threads are stored through `saver.bind(principal)`, whatever checkpointer a graph was built with.
    `app.gateway.runs.drain()` ends the runs at work; `server.run` calls it before it closes connections.

    Args:
        memory_expected: a graph takes its long-term memory from here: it is loaded at the start.

    Raises:
        ConfigError: no graph, a principal over 512 bytes, or an embedding model that does not exist.
    """
    gateway = Gateway(graphs, driver, saver, settings, memory_expected)
    http = Http(gateway)
    routes = [
        *http.routes(),
        WebSocketRoute("/threads/{thread_id}/stream/events", gateway.stream_events),
        WebSocketRoute("/{anything:path}", gateway.refuse_unserved),
    ]
    handlers = {404: http.refuse_unserved, 405: http.refuse_unserved, Exception: http.own_fault}
    return UndecodedPaths(Starlette(routes=routes, lifespan=gateway.lifespan, exception_handlers=handlers), gateway)


class UndecodedPaths:
    """Routes by the path as it was sent: a thread id may contain `%2F`, which is not a separator."""

    def __init__(self, app: ASGIApp, gateway: Gateway) -> None:
        self._app = app
        self.gateway = gateway

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if raw := scope.get("raw_path"):
            scope = {**scope, "path": raw.decode("latin-1")}
        await self._app(scope, receive, send)
