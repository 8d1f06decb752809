"""`rtmem memory export | import`: all of a principal's memory as lines of JSON, and back."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from rtmem.cli import options, screen
from rtmem.cli.memory.opening import Application, Place, Principal, Teams, WordsOnly, opened, owner
from rtmem.errors import ConfigError, EmbeddingError, InvalidRequestError

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from rtmem.memory import Memory
    from rtmem.operations.transfer import Restored

_BATCH = 64
_REFUSED_SHOWN = 20


def export(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where to; default: standard output.")] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="With vectors, so that an import need not embed.")] = False,
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
) -> None:
    """Write all that a principal remembers as lines of JSON: facts with their history, and items of the store.

    A file gets its name when it is whole. What cannot be read is told of and left
    out; then the exit code is 1. Facts of teams and the application are included
    with --team and --application. Examples:
      [bold]rtmem memory export ann.jsonl --principal ann[/bold]
      [bold]rtmem memory export --vectors | zstd > memory.jsonl.zst[/bold]
    """
    from rtmem.operations import transfer
    from rtmem.operations.memory_state import count, look

    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=False) as memory:
        total = None
        if (state := memory.run(look(memory.scope.index))).index is not None:
            counts = memory.run(count(memory.scope))
            total = sum(counts.facts.values()) + counts.ended + counts.items
        whose = (state.fingerprint, state.dims) if vectors else ("", 0)
        written, unreadable = 0, list[str]()
        with _bars() as bars, _target(file) as out:
            bar = bars.add_task("exporting", total=total)
            out.write(transfer.header(memory.scope, time.time_ns() // 1_000_000, *whose))
            cursor = "0"
            while True:
                part = memory.run(transfer.export(memory.scope, cursor, vectors=vectors))
                out.writelines(part.lines)
                written, cursor = written + len(part.lines), part.cursor
                unreadable += part.unreadable
                bars.update(bar, completed=written)
                if cursor == "0":
                    break
    screen.note(f"({written:,} facts and items of {owner(memory)})")
    for why in unreadable:
        screen.note(f"left out: {screen.harmless(why)}")
    if unreadable:
        raise typer.Exit(1)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An export; - is standard input.")],
    words_only: WordsOnly = False,
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Bring an export back: ids, times, history and values as they were, and vectors if it has the right ones.

    What is there already stays as it is, so an import that broke off is just run
    again. A line that cannot be taken is told of and hinders no other; then the
    exit code is 1. Examples:
      [bold]rtmem memory import ann.jsonl --principal ann[/bold]
      [bold]zstd -dc memory.jsonl.zst | rtmem memory import -[/bold]
    """
    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=not words_only) as memory, _bars() as bars:
        with _source(file) as (lines, size):
            outcomes, refused = _restored(memory, lines, size, bars)
        embedded = 0 if words_only else _embedded(memory, place, outcomes, bars)
    if as_json:
        body: dict[str, Any] = {"outcomes": dict(outcomes), "embedded": embedded}
        body["refused"] = [{"line": number, "why": why} for number, why in refused]
        typer.echo(msgspec.json.encode(body).decode())
    else:
        _report(outcomes, refused, embedded)
    if outcomes["refused"] or outcomes["other"]:
        raise typer.Exit(1)


def _restored(
    memory: Memory, lines: Iterator[bytes], size: int | None, bars: Bars
) -> tuple[Counter[str], list[tuple[int, str]]]:
    from rtmem.operations import transfer, vector_index

    memory.run(vector_index.setup(memory.scope.index))
    first = next(lines, b"")
    source = transfer.read_header(first, memory.scope)
    bar = bars.add_task("importing", total=size, completed=len(first))
    outcomes: Counter[str] = Counter()
    refused: list[tuple[int, str]] = []
    number = 1
    while batch := list(islice(lines, _BATCH)):
        results: list[Restored] = memory.run(transfer.restore(memory.scope, batch, source))
        for result in results:
            number += 1
            outcomes[result.outcome] += 1
            if result.outcome in ("refused", "other"):
                refused.append((number, result.why))
        bars.update(bar, advance=sum(map(len, batch)))
    return outcomes, refused


def _embedded(memory: Memory, place: Place, outcomes: Counter[str], bars: Bars) -> int:
    """Give what has no vector one. An embedder that fails does not undo the import."""
    from rtmem.store import RedisStore

    store = RedisStore(
        driver=memory.driver,
        index=memory.embedder,
        principal=memory.principal.user,
        settings=place.settings().store,
    )
    bar = bars.add_task("embedding", total=outcomes["restored"] or None)
    done = 0
    try:
        for reembed in (memory.reembed, store.reembed) if memory.scope.labels else (store.reembed,):
            while some := reembed(_BATCH):
                done += some
                bars.update(bar, completed=done)
    except EmbeddingError as exc:
        screen.note(f"(the embedder failed: {exc}; `rtmem memory reindex` embeds the rest)")
    bars.update(bar, completed=done, total=done)
    return done


def _report(outcomes: Counter[str], refused: list[tuple[int, str]], embedded: int) -> None:
    screen.out.print(f"{outcomes['restored']:,} restored, {outcomes['there']:,} were there already")
    if outcomes["over"]:
        screen.note(f"({outcomes['over']:,} left out: their time was over)")
    for number, why in refused[:_REFUSED_SHOWN]:
        screen.note(f"line {number}: {screen.harmless(why)}")
    if len(refused) > _REFUSED_SHOWN:
        screen.note(f"... and {len(refused) - _REFUSED_SHOWN:,} more lines; --json tells all")
    if embedded:
        screen.out.print(f"{embedded:,} embedded")


def _bars() -> Bars:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=screen.err, disable=not screen.err.is_terminal)


@contextmanager
def _target(file: Path | None) -> Iterator[IO[bytes]]:
    """Standard output; or a file that has its name only when it is whole, and is private: memory is."""
    if file is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    unfinished = file.with_name(file.name + ".part")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def _source(file: Path) -> Iterator[tuple[Iterator[bytes], int | None]]:
    """The lines of a file or of standard input, and how many bytes there are, if that is known."""
    if str(file) == "-":
        yield iter(sys.stdin.buffer), None
        return
    try:
        opened_file = file.open("rb")
    except OSError as exc:
        raise ConfigError(
            f"{file} cannot be read ({exc.strerror}): give the file that `rtmem memory export` wrote"
        ) from exc
    with opened_file:
        if not file.stat().st_size:
            raise InvalidRequestError(f"{file} is empty: it is no export of memory")
        yield iter(opened_file), file.stat().st_size
