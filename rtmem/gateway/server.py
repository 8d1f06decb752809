"""Serve the gateway: uvicorn, set up for long-lived websockets and an orderly end.

On SIGTERM: no new connections, no new runs; runs at work may end within `drain_timeout_ms` while their clients still
listen; what is left is stopped and told; then every websocket is closed with 1012 (the SDKs reconnect after it). A
second signal ends the wait, and nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import FrameType
from typing import Any, Final

import anyio
import uvicorn

from rtmem.errors import ConfigError, PortTakenError
from rtmem.gateway.app import UndecodedPaths
from rtmem.gateway.wire import protocol_classes
from rtmem.settings import Gateway, Settings

_AWAKE_AWAITED_S: Final = 5

AppFactory = Callable[[], AbstractAsyncContextManager[Any]]
"""Opens what the application needs (driver, saver), gives `create_app(...)`, and closes it all at the end."""


def run(
    app_factory: AppFactory,
    settings: Settings,
    *,
    on_started: Callable[[str], None] | None = None,
    on_draining: Callable[[int], None] | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app_factory: entered on the serving event loop.
        on_started: called with the URL once connections are accepted (with port 0 it names the real port).
        on_draining: called with the number of runs that are waited for at the end, if there are some.
        on_ready: called after `on_started`: memory, where a graph expects it, is loaded or has been waited for.

    Raises:
        PortTakenError, ConfigError: the address cannot be listened on; nothing was started.
    """
    listener = listen(settings.gateway)
    try:
        anyio.run(
            serve,
            app_factory,
            settings,
            listener,
            on_started,
            None,
            on_draining,
            on_ready,
            backend="asyncio",
            backend_options={"use_uvloop": _uvloop()},
        )
    finally:
        listener.close()


async def serve(
    app_factory: AppFactory,
    settings: Settings,
    listener: socket.socket,
    on_started: Callable[[str], None] | None = None,
    stop: anyio.Event | None = None,
    on_draining: Callable[[int], None] | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve on `listener`, inside a running event loop, until a signal or `stop` comes."""
    async with app_factory() as app:
        server = DrainingServer(app, settings.gateway, on_started, on_draining, on_ready)
        async with anyio.create_task_group() as tasks:
            if stop is not None:
                tasks.start_soon(server.exit_when, stop)
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


def listen(settings: Gateway) -> socket.socket:
    """A bound socket. Raises PortTakenError or ConfigError.

    SO_SNDBUF is set here because accepted sockets inherit it: the kernel would otherwise take about 4 MB for a client
    that does not read before we notice.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
        listener.bind((settings.host, settings.port))
        listener.listen(2_048)
    except OverflowError as exc:
        listener.close()
        raise ConfigError(f"cannot listen on port {settings.port}: choose one of 0 to 65535") from exc
    except OSError as exc:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        if exc.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(
                f"cannot listen on {where}: no network interface of this machine has that address: give --host "
                "127.0.0.1, one of this machine's, or 0.0.0.0 for all"
            ) from exc
        if exc.errno != errno.EADDRINUSE:
            raise ConfigError(f"cannot listen on {where}: {exc}: check [gateway] host and port") from exc
        raise PortTakenError(
            f"cannot listen on {where}: another program does: stop it, or choose another with --port "
            "(RTMEM_GATEWAY__PORT)",
            host=settings.host,
            port=settings.port,
        ) from exc
    return listener


class DrainingServer(uvicorn.Server):
    """A uvicorn server that lets runs end before it closes their clients' connections."""

    def __init__(
        self,
        app: UndecodedPaths,
        settings: Gateway,
        on_started: Callable[[str], None] | None = None,
        on_draining: Callable[[int], None] | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        http, ws = protocol_classes(settings)
        ping_s = settings.ping_interval_ms / 1_000
        super().__init__(
            uvicorn.Config(
                app,
                http=http,
                ws=ws,
                ws_max_size=settings.frame_bytes_max,
                ws_per_message_deflate=False,  # +50 % CPU and 46 KB per idle connection
                ws_ping_interval=ping_s,
                ws_ping_timeout=ping_s,
                lifespan="on",
                log_config=None,
                access_log=False,  # a token may be in the query
                server_header=False,
                proxy_headers=False,  # the principal is in the token; nobody's word about addresses is needed
                timeout_graceful_shutdown=5,
            )
        )
        self._app = app
        self._on_started = on_started
        self._on_draining = on_draining
        self._on_ready = on_ready
        self._loop = asyncio.get_running_loop()

    async def exit_when(self, stop: anyio.Event) -> None:
        """What a signal does, for programs that have none to send."""
        await stop.wait()
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            # uvicorn would tear everything down, with a traceback for each connection.
            self._loop.call_soon_threadsafe(self._app.gateway.runs.hurry)
        else:
            super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_started is not None and sockets and self.started:
            host, port = sockets[0].getsockname()[:2]
            self._on_started(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

        if self._on_ready is not None and self.started:
            # Connections are served meanwhile. Who comes when he is called shall not find a memory that is too late.
            with anyio.move_on_after(_AWAKE_AWAITED_S):
                await self._app.gateway.memories.awake.wait()
                await self._app.gateway.caches.awake.wait()
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        runs = self._app.gateway.runs
        if runs.at_work and self._on_draining is not None:
            self._on_draining(runs.at_work)
        # uvicorn would close every websocket first, and end the application afterwards.
        await runs.drain()
        await self._app.gateway.tell_clients()  # how its run ended, before its connection does
        await super().shutdown(sockets)


def _uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:  # Windows has none
        return False
    return True
