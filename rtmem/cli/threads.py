"""`rtmem doctor threads ID`: what is stored of one thread, and whether it is in order. Changes nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from rtmem.cli import options, screen
from rtmem.errors import ConfigError

if TYPE_CHECKING:
    from rtmem.operations.inspection import ThreadReport
    from rtmem.settings import Settings


def threads(
    thread_id: Annotated[str, typer.Argument(metavar="ID", help="The thread.")],
    principal: Annotated[str, typer.Option("--principal", help="Whose thread it is; empty for savers without.")] = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Count what is stored of a thread and check that nothing is lost or left over. Exit code 1 if something is.

    Reads the whole thread once. Example: [bold]rtmem doctor threads support-7 --principal alice[/bold]
    """
    settings = options.load(config, data_dir=data_dir, redis_url=redis_url)
    report = _inspected(settings, principal, thread_id)
    if as_json:
        body = asdict(report) | {"exists": report.exists, "shared_ratio": report.shared_ratio}
        typer.echo(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    else:
        for line in _lines(report):
            screen.out.print(Text(line))
        for problem in report.problems:
            screen.out.print(Text.assemble(("FIX ", "bold red"), f"  {problem}"))
    if report.problems or not report.exists:
        raise typer.Exit(1)


def _inspected(settings: Settings, principal: str, thread_id: str) -> ThreadReport:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from rtmem.drivers import SyncDriver
    from rtmem.keys import Keys
    from rtmem.operations.inspection import inspect_thread
    from rtmem.operations.places import Scope
    from rtmem.operations.serde import Serde
    from rtmem.server import directory, embedded

    url = settings.redis.url or embedded.running_url(settings.server)
    if not url:
        layout = directory.locate(settings.server.data_dir)
        raise ConfigError(
            f"no embedded Redis runs in {layout.root}: start it with `{layout.command('up')}`, or give --redis-url"
        )
    scope = Scope(Serde(JsonPlusSerializer(), 0), keys=Keys(settings.checkpoint.prefix), principal=principal)
    with SyncDriver.connect(url, settings.redis) as driver:
        return driver.run(inspect_thread(scope, thread_id))


def _lines(report: ThreadReport) -> list[str]:
    if not report.exists:
        return [f"thread {report.thread_id!r} is not there; check --principal and --redis-url"]
    per_namespace = ", ".join(f"{count} in {ns!r}" if ns else f"{count}" for ns, count in report.checkpoints.items())
    lines = [
        f"thread        {report.thread_id!r}, layout {report.layout}"
        + (", only shallow savers wrote there" if report.solely_shallow else ""),
        f"checkpoints   {per_namespace or 'none'}: {report.record_bytes:,} bytes",
        f"pieces        {report.pieces:,}: {report.piece_bytes:,} bytes; {report.references:,} references, "
        f"{report.shared_ratio:.0%} of them shared",
        f"writes        {report.writes_bytes:,} bytes; {report.early} checkpoints still to come",
        f"expires       {f'in {report.ttl_ms / 1000:,.0f} s' if report.ttl_ms >= 0 else 'never'}",
    ]
    if report.garbage or report.sweep:
        lines.append(
            f"to be freed   {report.garbage:,} pieces, by the next prune"
            + (" (one is under way)" if report.sweep else "")
        )
    if not report.problems:
        lines.append("in order: nothing is missing, nothing is left over")
    return lines
