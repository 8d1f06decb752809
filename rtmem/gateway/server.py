"""Serve the gateway: uvicorn, set up for long-lived websockets and an orderly end.

On SIGTERM: no new connections, no new runs; runs at work may end within `drain_timeout_ms` while their clients still
listen; what is left is stopped and told; then every websocket is closed with 1012 (the SDKs reconnect after it).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import uvicorn

from rtmem.errors import ConfigError, PortTakenError
from rtmem.gateway.app import UndecodedPaths
from rtmem.gateway.wire import protocol_classes
from rtmem.settings import Gateway, Settings

_TAKEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)

AppFactory = Callable[[], AbstractAsyncContextManager[Any]]
"""Opens what the application needs (driver, saver), gives `create_app(...)`, and closes it all at the end."""


def run(app_factory: AppFactory, settings: Settings, *, on_started: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        app_factory: entered on the serving event loop.
        on_started: called with the URL once connections are accepted (with port 0 it names the real port).

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
) -> None:
    """Serve on `listener`, inside a running event loop, until a signal or `stop` comes."""
    async with app_factory() as app:
        server = DrainingServer(app, settings.gateway, on_started)
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
    except OSError as exc:
        listener.close()
        where = f"{settings.host}:{settings.port}"
        if isinstance(exc, PermissionError) or exc.errno is None or exc.errno not in _TAKEN:
            raise ConfigError(f"cannot listen on {where}: {exc}: check [gateway] host and port") from exc
        raise PortTakenError(
            f"cannot listen on {where}: another program does: stop it, or choose a port with RTMEM_GATEWAY__PORT",
            host=settings.host,
            port=settings.port,
        ) from exc
    return listener


class DrainingServer(uvicorn.Server):
    """A uvicorn server that lets runs end before it closes their clients' connections."""

    def __init__(self, app: UndecodedPaths, settings: Gateway, on_started: Callable[[str], None] | None = None) -> None:
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

    async def exit_when(self, stop: anyio.Event) -> None:
        """What a signal does, for programs that have none to send."""
        await stop.wait()
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_started is not None and sockets and self.started:
            host, port = sockets[0].getsockname()[:2]
            self._on_started(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        # uvicorn would close every websocket first, and end the application afterwards.
        await self._app.gateway.runs.drain()
        await super().shutdown(sockets)


def _uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:  # Windows has none
        return False
    return True
