"""`rtmem doctor threads [ID]`: which threads there are; of one, what is stored and whether it is in order. Changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from rtmem.cli import options, screen

if TYPE_CHECKING:
    from rtmem.drivers import SyncDriver
    from rtmem.operations.inspection import ThreadLine, ThreadReport
    from rtmem.operations.places import Scope
    from rtmem.settings import Settings


def threads(
    thread_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The thread; without it, list them.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="List at most so many, newest first.")] = 20,
    principal: Annotated[
        str | None,
        typer.Option(
            "--principal",
            help="Whose thread it is; default: of `rtmem up`, of a configured token, or of a saver without principal.",
        ),
    ] = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON instead: one object, or without ID one for each thread on a line of its own."
        ),
    ] = False,
) -> None:
    """Count what is stored of a thread and check that nothing is lost or left over. Exit code 1 if something is.

    Without ID, list the threads with the newest checkpoints: when that was made
    (UTC), how many there are, the id.

    Reads the whole thread once. Examples:
      [bold]rtmem doctor threads[/bold]
      [bold]rtmem doctor threads support-7 --principal alice[/bold]
    """
    settings = options.load(config, data_dir=data_dir, redis_url=redis_url)
    from rtmem.cli import local

    likely = dict.fromkeys((*settings.gateway.tokens.values(), local.PRINCIPAL, ""))
    principals = list(likely) if principal is None else [principal]
    if thread_id is None:
        _list(settings, principals, limit, as_json=as_json)
        return
    reports = _inspected(settings, principals, thread_id)
    owner, report = next(((name, one) for name, one in reports.items() if one.exists), next(iter(reports.items())))
    others = [name for name, one in reports.items() if one.exists and name != owner]
    if others:
        screen.note(f"(also there for principal {', '.join(map(repr, others))}: choose one with --principal)")
    if as_json:
        body = asdict(report) | {"principal": owner, "exists": report.exists, "shared_ratio": report.shared_ratio}
        typer.echo(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    else:
        for line in _lines(report, owner) if report.exists else [_nowhere(thread_id, list(reports))]:
            screen.out.print(Text(line))
        for problem in report.problems:
            screen.out.print(Text.assemble(("FIX ", "bold red"), f"  {problem}"))
    if report.problems or not report.exists:
        raise typer.Exit(1)


def _list(settings: Settings, principals: list[str], limit: int, *, as_json: bool) -> None:
    from rtmem.operations.inspection import newest_threads

    with _opened(settings) as (driver, scope):
        pages = [driver.run(newest_threads(scope(name), limit)) for name in principals]
    lines = sorted((line for page, _ in pages for line in page), key=lambda line: line.newest_id, reverse=True)[:limit]
    for line in lines:
        typer.echo(msgspec.json.encode(line).decode() if as_json else _listed(line))
    if not as_json:
        total, shown = sum(count for _, count in pages), "; more with --limit" if len(lines) == limit else ""
        threads = screen.counted(total, "thread")
        screen.note(f"({len(lines):,} of {threads} of {_told(principals)}; --principal names another{shown})")


def _listed(line: ThreadLine) -> str:
    made = "no time in its id  "
    if line.written_ms is not None:
        made = datetime.fromtimestamp(line.written_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{made}  {line.checkpoints:>9,}  {screen.harmless(line.thread_id)}"


def _inspected(settings: Settings, principals: list[str], thread_id: str) -> dict[str, ThreadReport]:
    """Principal -> its thread of this name."""
    from rtmem.operations.inspection import inspect_thread

    with _opened(settings) as (driver, scope):
        return {name: driver.run(inspect_thread(scope(name), thread_id)) for name in principals}


@contextmanager
def _opened(settings: Settings) -> Iterator[tuple[SyncDriver, Callable[[str], Scope]]]:
    """Connections, and what makes the scope of a principal."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from rtmem.drivers import SyncDriver
    from rtmem.keys import Keys
    from rtmem.operations.places import Scope
    from rtmem.operations.serde import Serde

    url = options.running_redis(settings)
    serde, keys = Serde(JsonPlusSerializer(), 0), Keys(settings.checkpoint.prefix)
    with SyncDriver.connect(url, settings.redis) as driver:
        yield driver, lambda principal: Scope(serde, keys=keys, principal=principal)


def _nowhere(thread_id: str, principals: list[str]) -> str:
    return (
        f"thread {thread_id!r} is not there for {_told(principals)}: `rtmem doctor threads` lists those that are; name "
        "another principal with --principal, or another Redis with --redis-url"
    )


def _told(principals: list[str]) -> str:
    named = ", ".join(map(repr, filter(None, principals)))
    nobody = "savers without a principal"
    if not named:
        return nobody
    return f"principal {named}" + (f" and {nobody}" if "" in principals else "")


def _lines(report: ThreadReport, principal: str) -> list[str]:
    per_namespace = ", ".join(f"{count} in {ns!r}" if ns else f"{count}" for ns, count in report.checkpoints.items())
    owner = f"principal {principal!r}" if principal else "no principal"
    lines = [
        f"thread        {report.thread_id!r} of {owner}, layout {report.layout}"
        + (", only shallow savers wrote there" if report.solely_shallow else ""),
        f"checkpoints   {per_namespace or 'none'}: {report.record_bytes:,} bytes",
        f"pieces        {report.pieces:,}: {report.piece_bytes:,} bytes; "
        f"{screen.counted(report.references, 'reference')}, {report.shared_ratio:.0%} of them shared",
        f"writes        {report.writes_bytes:,} bytes; {screen.counted(report.early, 'checkpoint')} still to come",
        f"expires       {f'in {report.ttl_ms / 1000:,.0f} s' if report.ttl_ms >= 0 else 'never'}",
    ]
    if report.offloaded:
        lines.append(f"at pointers   {screen.counted(report.offloaded, 'value')}")
    if report.unneeded:
        lines.append(f"to be freed   {screen.counted(report.unneeded, 'pointer')}, by the next `rtmem pointers sweep`")
    if report.garbage or report.sweep:
        lines.append(
            f"to be freed   {screen.counted(report.garbage, 'piece')}, by the next prune"
            + (" (one is under way)" if report.sweep else "")
        )
    if not report.problems:
        lines.append("in order: nothing is missing, nothing is left over")
    return lines
