"""`rtmem memory reindex | stats`: another embedder or index for all of memory, and what there is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from rtmem.cli import options, screen
from rtmem.cli.memory.opening import Application, Place, Principal, Teams, opened, owner
from rtmem.errors import ConfigError, ExtraMissingError

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from rtmem.operations.index_choice import Choice
    from rtmem.operations.memory_state import MemoryCounts, MemoryState
    from rtmem.operations.reindex import Progress
    from rtmem.settings import Embedding


_WORTH_A_MEAN = 1_000  # documents; a smaller index consists of what was set aside for more


def reindex(
    model: Annotated[
        str,
        typer.Option(
            "--embedder", metavar="MODEL", help="local, multilingual or remote:NAME; default: that of \\[embedding]."
        ),
    ] = "",
    algorithm: Annotated[
        Literal["flat", "hnsw"] | None,
        typer.Option("--algorithm", help="Exact, or approximate and faster for much. Default: as \\[store] says."),
    ] = None,
    per_second: Annotated[
        int,
        typer.Option("--per-second", min=0, help="At most about so many documents a second, to leave room; 0: all."),
    ] = 0,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: a line for each step.")] = False,
) -> None:
    """Embed all of memory anew, of everybody, and switch to the new vectors, while programs go on reading and writing.

    A new index is made beside the old one, so it takes the room of both until the
    switch. What is written meanwhile is covered. Broken off (Ctrl-C, a crash), it
    goes on when it is run again. With the embedder there is, it only changes the
    index, or embeds what had failed.

    From the switch on programs with the old embedder are refused
    (EmbedderMismatchError): restart them with the new one then. Examples:
      [bold]rtmem memory reindex --algorithm hnsw[/bold]
      [bold]rtmem memory reindex --embedder multilingual --per-second 200[/bold]
    """
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    from rtmem.operations.memory_state import look
    from rtmem.operations.reindex import Reindex

    place = Place(None, None, "", config, data_dir, redis_url)
    settings = place.settings().embedding
    _check_extra(msgspec.structs.replace(settings, model=model) if model else settings)
    columns = (TextColumn("{task.description:<12}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with opened(place, embedding=True, model=model) as memory, Bars(*columns, console=screen.err) as bars:
        scope = memory.scope
        work = Reindex(scope.index, scope.serde, algorithm=algorithm)
        bar = bars.add_task("looking")
        while True:
            began, before = time.monotonic(), work.looked
            progress = memory.run(work.advance())
            _show(bars, bar, progress, as_json=as_json)
            if progress.finished:
                break
            spare_s = (work.looked - before) / per_second - (time.monotonic() - began) if per_second else 0.0
            time.sleep(max(progress.wait_ms / 1000, spare_s, 0))
        kind = memory.run(look(scope.index)).algorithm
    if not as_json:
        assert memory.embedder is not None
        done = f"{screen.counted(progress.embedded, 'document')} embedded by {memory.embedder.name}"
        screen.out.print(f"{done}; the index is {kind or 'without vectors'}")
        used = model or settings.model
        if progress.embedded:  # a change of the index alone is noticed by nobody
            screen.note(
                f'(programs need [embedding] model = "{used}", or RTMEM_EMBEDDING__MODEL={used}: '
                "set it and restart those that had another)"
            )
    if progress.failed:
        screen.note(
            f"({progress.failed:,} could not be embedded: searches by meaning miss them; the next reindex tries again)"
        )


def _check_extra(embedding: Embedding) -> None:
    """Embedders load at their first text, which is too late for a job of hours. Raises ExtraMissingError."""
    from rtmem.embedding import missing

    if extra := missing(embedding):
        raise ExtraMissingError(
            f"the embedder {embedding.model!r} is not installed: get what it needs with "
            f"`pip install 'rtmem[{extra}]'`; nothing was changed",
            extra=extra,
        )


def _show(bars: Bar, bar: TaskID, progress: Progress, *, as_json: bool) -> None:
    done = progress.total if progress.finished else min(progress.done, progress.total)
    bars.update(bar, description=progress.phase, completed=done, total=progress.total or None)
    if as_json:
        typer.echo(msgspec.json.encode(progress).decode())


def stats(
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count what a principal has, and tell of the index: whose vectors, how large, whether it is ready."""
    from rtmem.operations.index_choice import choose
    from rtmem.operations.memory_state import count, look

    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=False) as memory:
        counts = memory.run(count(memory.scope))
        state = memory.run(look(memory.scope.index))
        choice = memory.run(choose(memory.scope.index, state))
    if as_json:
        typer.echo(msgspec.json.encode({"counts": counts, "index": state, "choice": choice}).decode())
        return
    screen.note(f"(of {owner(memory)})")
    screen.rows(_counted(counts) + _indexed(state, choice))
    for what, fix in hints(state, counts, choice) + _stranger(place, state):
        screen.note(f"{what}\n  -> {fix}")


def _counted(counts: MemoryCounts) -> list[tuple[str, str]]:
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in counts.facts.items() if number) or "none"
    return [
        ("facts", f"{sum(counts.facts.values()):,} believed: {kinds}" if counts.facts else "none"),
        ("", f"{counts.ended:,} believed no more"),
        ("items", f"{counts.items:,} of the store"),
        ("unembedded", f"{counts.unembedded:,}"),
        ("everybody", f"{counts.everybody:,} facts and items, about {counts.bytes_each:,} bytes each"),
    ]


def _indexed(state: MemoryState, choice: Choice) -> list[tuple[str, str]]:
    index = state.index
    if index is None:
        return [("index", "none yet")]
    known = f"{state.embedder} ({state.fingerprint})" if state.embedder else state.fingerprint
    whose = (
        f"{screen.harmless(known)}, {state.dims} dimensions" if state.fingerprint else "nobody's: nothing was embedded"
    )
    taken = index.vector_bytes + index.other_bytes
    size = f"{screen.counted(index.documents, 'document')}, {taken:,} bytes"
    if index.documents >= _WORTH_A_MEAN:
        size += f" ({taken // index.documents:,} each)"
    found = [
        ("vectors of", whose),
        ("index", f"{state.name}: {state.algorithm or 'no vectors'}, {size}"),
        *([] if choice.fix else [("", choice.why)]),  # else it is told below
        ("ready", "yes" if index.ready else f"no: {index.indexed_share:.0%} are read, searches may miss the rest"),
    ]
    if state.next_index is not None:
        whose = screen.harmless(state.next_embedder or state.next_fingerprint)
        found.append(("reindex", f"to {whose}: {screen.counted(state.next_index.documents, 'document')} in it yet"))
    return found


def _stranger(place: Place, state: MemoryState) -> list[tuple[str, str]]:
    """Whether the embedder of the settings is another one than that of the index."""
    from rtmem.embedding import from_settings
    from rtmem.operations.vector_fields import short

    embedding = place.settings().embedding
    try:
        mine = short(from_settings(embedding).fingerprint)
    except ConfigError:
        return []  # whoever uses it will be told
    if mine == state.fingerprint or not state.fingerprint:
        return []
    what = f"[embedding] model {embedding.model!r} has other vectors ({mine}): programs that use it here are refused"
    there = screen.harmless(state.embedder or "the model of before")
    return [(what, f'set [embedding] model = "{there}" (RTMEM_EMBEDDING__MODEL), or `rtmem memory reindex` changes it')]


def hints(state: MemoryState, counts: MemoryCounts | None, choice: Choice) -> list[tuple[str, str]]:
    """What an index lacks, and what helps."""
    found = [(choice.why, choice.fix)] if choice.fix else []
    if state.next_fingerprint or state.has_leftovers:
        found.append(("a reindex is under way, or was broken off", "`rtmem memory reindex` goes on with it"))
    if counts is not None and counts.everybody_unembedded:
        found.append(
            (f"{counts.everybody_unembedded:,} are without the vector they should have", "`rtmem memory reindex`")
        )
    return found
