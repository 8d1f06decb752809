"""What `rtmem up` and `rtmem serve` share: a Redis, a saver, a gateway around some graphs, and what is said of it."""

from __future__ import annotations

import shlex
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Final, Self, TypeAlias

import msgspec
from langgraph.pregel import Pregel
from rich.text import Text

from rtmem.checkpoint import AsyncRedisSaver
from rtmem.cli import local, screen
from rtmem.cli.supervision import Supervisor
from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.gateway import server
from rtmem.gateway.app import create_app
from rtmem.server import embedded, probe
from rtmem.server.judgement import ServerReport
from rtmem.settings import Settings

Graph: TypeAlias = Pregel[Any, Any, Any, Any]
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

Builder: TypeAlias = Callable[[], Awaitable[Graph]]


@contextmanager
def redis_of(settings: Settings) -> Iterator[Settings]:
    """Settings whose redis.url leads to a live, probed Redis; an embedded one is started and shared meanwhile.

    Raises:
        ConfigError, ServerError: it cannot be started or reached, or is too old.
    """
    if settings.redis.url:
        _announce(_probed(settings))
        yield settings
        return
    share = embedded.start(settings.server)
    with Supervisor(settings.server, share):
        for sentence in share.report:
            screen.note(f"({sentence})")
        settings = msgspec.structs.replace(settings, redis=msgspec.structs.replace(settings.redis, url=share.url))
        _announce(_probed(settings))
        yield settings


class Signals:
    """Ctrl-C and SIGTERM end the body, with all its clean-up, and nothing more."""

    def __init__(self) -> None:
        self._gateway_answers = False

    def leave_to_gateway(self) -> None:
        """From now on uvicorn handles them. It drains, raises the signal again, and then everything ends by itself."""
        self._gateway_answers = True

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupt)
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> bool:
        return kind is not None and issubclass(kind, KeyboardInterrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._gateway_answers:
            raise KeyboardInterrupt


def serve(builders: Mapping[str, Builder], settings: Settings, signals: Signals) -> None:
    """Serve graphs until Ctrl-C or SIGTERM, then drain.

    Args:
        builders: assistant id -> what makes its graph, on the gateway's event loop.
    """
    settings = with_token(settings)

    @asynccontextmanager
    async def app() -> AsyncIterator[Any]:
        async with await AsyncDriver.connect(settings.redis.url, settings.redis) as driver:
            saver = AsyncRedisSaver(driver=driver, settings=settings.checkpoint)
            await saver.asetup()
            graphs = {name: await make() for name, make in builders.items()}
            yield create_app(graphs, driver, saver, settings)

    def started(url: str) -> None:
        address = local.connectable(url)
        local.keep_address(settings, address)
        signals.leave_to_gateway()
        _welcome(address, settings, list(builders))

    server.run(app, settings, on_started=started)


def with_token(settings: Settings) -> Settings:
    """Settings that accept at least the kept token of the data directory."""
    if settings.gateway.tokens:
        return settings
    tokens = {local.ensure_token(settings): local.PRINCIPAL}
    return msgspec.structs.replace(settings, gateway=msgspec.structs.replace(settings.gateway, tokens=tokens))


def _probed(settings: Settings) -> ServerReport:
    with SyncDriver.connect(settings.redis.url, settings.redis) as driver:
        report = driver.run(probe.ask(settings.checkpoint.prefix))
    probe.require(report)
    return report


def _announce(report: ServerReport) -> None:
    screen.rows([("Redis     ", report.line)])
    for finding in report.findings:
        if finding.level != "info":
            screen.note(f"{finding.level}: {finding.what}: {finding.consequence}. {finding.fix}")


def _welcome(address: str, settings: Settings, assistants: list[str]) -> None:
    token = next(iter(settings.gateway.tokens))
    where = f" --data-dir {shlex.quote(settings.server.data_dir)}" if settings.server.data_dir else ""
    socket = address.replace("http", "ws", 1)
    screen.rows(
        [
            ("Gateway", address),
            ("Websocket", f"{socket}/threads/<thread>/stream/events"),
            ("Assistants", ", ".join(assistants)),
            ("Token", token),
        ]
    )
    if settings.gateway.host not in _LOOPBACK:
        screen.note("(other machines can reach this, without TLS: put a proxy with a certificate in front of it)")
    commands = [f"rtmem chat{where}", f"curl -H 'Authorization: Bearer {token}' {address}/threads/main/state"]
    lines = Text("\nTry it in another terminal:\n")
    for command in commands:
        lines.append(f"  {command}\n", style="bold")
    lines.append("Ctrl-C stops it after the answers in progress.")
    screen.out.print(lines, soft_wrap=True)  # lines to copy must not be broken
