"""`rtmem pointers`: the large values that conversations carry as pointers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from rtmem.cli import options, screen
from rtmem.errors import InvalidRequestError, PointerExpiredError, PointerNotFoundError

if TYPE_CHECKING:
    from rtmem.pointers import Pointers
    from rtmem.records import Pointer

app = typer.Typer(help="The large values that conversations carry as pointers.", no_args_is_help=True)

_ANSWER_CHARACTERS = 1_000_000

Id = Annotated[str, typer.Argument(metavar="ID", help="The pointer, mp_...")]
Principal = Annotated[
    str | None,
    typer.Option("--principal", help="Whose pointers; default: of a configured token, else of `rtmem up`. '' is none."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


@app.command("list")
def list_(
    thread_id: Annotated[str | None, typer.Option("--thread", metavar="ID", help="Only what this thread pins.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many, newest first.")] = 50,
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """List pointers, newest first. Example: [bold]rtmem pointers list --thread support-7[/bold]"""
    with _opened(principal, config, data_dir, redis_url) as pointers:
        left, more = limit, ""
        while left:
            page = pointers.list(thread_id, limit=min(left, 100), continuation=more)
            for pointer in page.pointers:
                typer.echo(_json(pointer) if as_json else _line(pointer))
            left, more = left - len(page.pointers), page.continuation
            if not more:
                break
        if not as_json:
            used = pointers.usage()
            quota = f" of {used.bytes_max:,}" if used.bytes_max else ""
            screen.note(
                f"({screen.counted(used.pointers, 'pointer')}, {screen.counted(used.values, 'value')}, "
                f"{used.bytes:,}{quota} bytes of {_owner(pointers.principal)})"
            )


@app.command()
def show(
    pointer_id: Id,
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what a pointer leads to, as a model sees it, without reading the value."""
    from rtmem.pointers import render

    with _opened(principal, config, data_dir, redis_url) as pointers:
        pointer = pointers.describe(pointer_id)
    if as_json:
        typer.echo(_json(pointer))
        return
    screen.out.print(Text(screen.harmless(render(pointer))))
    lives = f"until {_time(pointer.expires_at_ms)}" if pointer.expires_at_ms else "as long as what pins it"
    screen.out.print(Text(f"created {_time(pointer.created_at_ms)}, lives {lives}; BLAKE3 {pointer.hash}"))


@app.command()
def cat(
    pointer_id: Id,
    unit: Annotated[
        str | None, typer.Option("--unit", help="characters, lines, items, rows or bytes: with --start and --count.")
    ] = None,
    start: Annotated[int, typer.Option("--start", min=0, help="From this one on, counted from 0.")] = 0,
    count: Annotated[int | None, typer.Option("--count", min=0, help="So many; default: all.")] = None,
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
) -> None:
    """Write a value, or a part of it, to standard output: text and bytes as they are, items and rows one JSON a line.

    Example: [bold]rtmem pointers cat mp_... --unit lines --start 1000 --count 20[/bold]
    """
    with _opened(principal, config, data_dir, redis_url) as pointers:
        if unit is None:
            kind = pointers.describe(pointer_id).kind
            unit = {"text": "characters", "json": "characters", "table": "rows", "dataframe": "rows"}.get(kind, "bytes")
        more, cut = "", False
        while True:
            part = pointers.slice(
                pointer_id,
                unit,  # type: ignore[arg-type]  # whatever was typed: slice names the units there are
                start,
                count,
                characters_max=_ANSWER_CHARACTERS,
                continuation=more,
            )
            _write(part.content)
            cut, more = cut or bool(part.excerpt), part.continuation
            if not more:
                break
    if cut:
        screen.note("(some items are too large for a line and were left out: read them as characters)")


@app.command()
def grep(
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Text, or with -E a regular expression (RE2).")],
    pointer_id: Id,
    regex: Annotated[bool, typer.Option("--regex", "-E", help="PATTERN is a regular expression.")] = False,
    ignore_case: Annotated[bool, typer.Option("--ignore-case", "-i", help="Do not tell cases apart.")] = False,
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
) -> None:
    """Find PATTERN in a value: line and character of each place, and what stands around it. Exit code 1: nowhere."""
    if pattern.startswith("mp_") and not pointer_id.startswith("mp_"):
        raise InvalidRequestError(f"{pointer_id!r} is no ID of a pointer: the order is `grep PATTERN ID`")
    found, more = 0, ""
    with _opened(principal, config, data_dir, redis_url) as pointers:
        while True:
            answer = pointers.search(
                pointer_id, pattern, regex=regex, ignore_case=ignore_case, matches_max=1_000, continuation=more
            )
            for match in answer.matches:
                screen.out.print(Text(screen.harmless(f"{match.line + 1}:{match.start}: {match.text}")))
            found, more = found + len(answer.matches), answer.continuation
            if not more:
                break
    if not found:
        raise typer.Exit(1)


@app.command()
def rm(
    pointer_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The pointers, mp_...")],
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
) -> None:
    """Delete pointers, whatever pins them. Exit code 1 if one was not there."""
    missing = 0
    with _opened(principal, config, data_dir, redis_url) as pointers:
        for pointer_id in pointer_ids:
            try:
                there = pointers.delete(pointer_id)
            except PointerNotFoundError:
                there = False  # no id of a pointer is written like that
            if not there:
                missing += 1
                screen.note(f"({screen.harmless(pointer_id)} is not there for {_owner(pointers.principal)})")
    if missing:
        raise typer.Exit(1)


@app.command()
def sweep(
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
) -> None:
    """Free what is over: expired pointers, uploads that stopped half-way, pins of threads that are gone."""
    with _opened(principal, config, data_dir, redis_url) as pointers:
        report = pointers.sweep()
    screen.out.print(
        f"{screen.counted(report.expired, 'pointer')} expired, {screen.counted(report.threads, 'thread')} gone, "
        f"{screen.counted(report.uploads, 'upload')} late"
    )


@contextmanager
def _opened(
    principal: str | None, config: str | None, data_dir: str | None, redis_url: str | None
) -> Iterator[Pointers]:
    from rtmem.pointers import Pointers

    settings = options.load(config, data_dir=data_dir, redis_url=redis_url)
    url = options.running_redis(settings)
    principal = options.whose(principal, settings)
    with Pointers(url, principal=principal, settings=settings.pointers, redis=settings.redis) as pointers:
        try:
            yield pointers
        except PointerExpiredError:
            raise
        except PointerNotFoundError as exc:
            message = f"no pointer {exc.data['pointer']!r} of {_owner(principal)}: it never was, or it was deleted"
            raise PointerNotFoundError(message, **exc.data) from exc


def _owner(principal: str) -> str:
    """Whose pointers were looked at, and how to look at others."""
    return (f"principal {principal!r}" if principal else "no principal") + "; --principal names another"


def _line(pointer: Pointer) -> str:
    told = pointer.name or pointer.shape or pointer.head
    told = " ".join(screen.harmless(told).split())[:60]
    return f"{pointer.id}  {_time(pointer.created_at_ms)}  {pointer.bytes:>12,}  {pointer.media_type:<24}  {told}"


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _json(pointer: Pointer) -> str:
    return msgspec.json.encode(pointer).decode()


def _write(content: Any) -> None:
    if isinstance(content, bytes):
        sys.stdout.buffer.write(content)
    elif isinstance(content, str):
        text = screen.harmless(content) if sys.stdout.isatty() else content
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass"))
    else:
        for item in content:
            sys.stdout.buffer.write(msgspec.json.encode(item, enc_hook=str) + b"\n")
    sys.stdout.buffer.flush()
