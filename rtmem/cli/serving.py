"""What `rtmem up` and `rtmem serve` share: a Redis, a saver, a gateway around some graphs, and what is said of it."""

from __future__ import annotations

import shlex
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Final, Self, TypeAlias

import httpx
import msgspec
from langgraph.pregel import Pregel
from rich.text import Text

from rtmem.agent.served import memory_is_expected
from rtmem.checkpoint import AsyncRedisSaver
from rtmem.cli import local, screen
from rtmem.cli.supervision import Supervisor
from rtmem.drivers import AsyncDriver, SyncDriver
from rtmem.errors import PortTakenError
from rtmem.gateway import server
from rtmem.gateway.app import create_app
from rtmem.server import directory, embedded, probe
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
        _announce(_probed(settings, directory.locate(settings.server.data_dir).restart()))
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


def serve(builders: Mapping[str, Builder], settings: Settings) -> None:
    """Serve graphs until Ctrl-C or SIGTERM, then drain.

    Args:
        builders: assistant id -> what makes its graph, on the gateway's event loop.

    Raises:
        GatewayRunningError: this data directory has one.
        PortTakenError, ConfigError, ServerError: nothing is served.
    """
    with Signals() as signals, local.only_gateway(settings) as keep_address, redis_of(settings) as running:
        try:
            _serve(builders, with_token(running), signals, keep_address)
        except PortTakenError as exc:
            raise _explained(exc, settings) from exc


def _serve(
    builders: Mapping[str, Builder], settings: Settings, signals: Signals, keep_address: local.KeepAddress
) -> None:

    @asynccontextmanager
    async def app() -> AsyncIterator[Any]:
        async with await AsyncDriver.connect(settings.redis.url, settings.redis) as driver:
            saver = AsyncRedisSaver(driver=driver, settings=settings.checkpoint, pointers=settings.pointers)
            await saver.asetup()
            # A promise that this Redis can never keep is refused here, and not to the first one who talks to it.
            for ack in {settings.gateway.turn_durability, settings.checkpoint.ack} - {"memory"}:
                await saver.amark(ack)
            graphs = {name: await make() for name, make in builders.items()}
            yield create_app(graphs, driver, saver, settings, memory_expected=memory_is_expected())

    address = ""

    def started(url: str) -> None:
        nonlocal address
        address = local.connectable(url)
        keep_address(address)
        signals.leave_to_gateway()

    def ready() -> None:
        _welcome(address, settings, list(builders))

    def draining(runs: int) -> None:
        answers = "1 answer" if runs == 1 else f"{runs} answers"
        at_most_s = settings.gateway.drain_timeout_ms / 1000
        screen.note(f"(waiting for {answers}, at most {at_most_s:g} s; Ctrl-C again stops at once)")

    server.run(app, settings, on_started=started, on_draining=draining, on_ready=ready)


def _explained(exc: PortTakenError, settings: Settings) -> PortTakenError:
    """A gateway that was forgotten in another terminal is what usually listens there."""
    host, port = exc.data["host"], exc.data["port"]
    url = local.connectable(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
    try:
        found = httpx.get(f"{url}/info", timeout=2).json()
    except (httpx.HTTPError, ValueError):
        return exc
    if not isinstance(found, dict) or found.get("name") != "rtmem":
        return exc
    return PortTakenError(
        f"an rtmem gateway listens at {url} already: talk to it with `rtmem chat --url {url}`, or choose another port "
        "for this one with --port",
        **exc.data,
    )


def with_token(settings: Settings) -> Settings:
    """Settings that accept at least the kept token of the data directory."""
    if settings.gateway.tokens:
        return settings
    tokens = {local.ensure_token(settings): local.PRINCIPAL}
    return msgspec.structs.replace(settings, gateway=msgspec.structs.replace(settings.gateway, tokens=tokens))


def _probed(settings: Settings, restart: str = "") -> ServerReport:
    with SyncDriver.connect(settings.redis.url, settings.redis) as driver:
        report = driver.run(probe.ask(settings.checkpoint.prefix, restart))
    probe.require(report)
    return report


def _announce(report: ServerReport) -> None:
    screen.rows([("Redis     ", report.line)])
    for finding in report.findings:
        if finding.level != "info":
            screen.note(f"{finding.level}: {finding.what}: {finding.consequence}. To mend it: {finding.fix}")


def _welcome(address: str, settings: Settings, assistants: list[str]) -> None:
    token = next(iter(settings.gateway.tokens))
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
    commands = [
        _chat(address, settings, assistants),
        f"curl -H 'Authorization: Bearer {token}' {address}/threads/main/state",
    ]
    lines = Text("\nTry it in another terminal:\n")
    for command in commands:
        lines.append(f"  {command}\n", style="bold")
    lines.append("Ctrl-C stops it after the answers in progress.")
    screen.out.print(lines, soft_wrap=True)  # lines to copy must not be broken


def _chat(address: str, settings: Settings, assistants: list[str]) -> str:
    """The command that talks to this gateway as it is typed, in a terminal that has none of our options."""
    words = directory.locate(settings.server.data_dir).command("chat")
    if local.known_address(settings) != address:
        words += f" --url {address}"
    if (token := local.known_token(settings)) != local.kept_token(settings):
        words += f" --token {shlex.quote(token)}"
    return words if len(assistants) == 1 else f"{words} --assistant {shlex.quote(assistants[0])}"
