"""`rtmem cache stats | show`: look at what is cached, and why a question hits or does not. Neither changes anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from rtmem.cli import options, screen
from rtmem.cli.cache.opening import Model, Place, Principal, Tag, opened, owner, shown_span
from rtmem.cli.memory.opening import one_line, shown_time
from rtmem.errors import CacheEntryNotFoundError, InvalidRequestError

if TYPE_CHECKING:
    from rtmem.cache import CacheEntry, CacheStats, SemanticCache

_PAGE: Final = 1_000


@dataclass(slots=True)
class _OfModel:
    """What there is of one model's answers."""

    entries: int = 0
    bytes: int = 0
    hits: int = 0
    saved_ms: int = 0  # by these hits, counting what each answer took


def stats(
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count what a principal has in the cache, and what it was good for.

    A program tells Redis of its hits with its next answer that is stored, after
    some hundreds, and when it ends; a gateway every 10 seconds. Until then they
    are missing here. Example:
      [bold]rtmem cache stats --principal ann --json[/bold]
    """
    with opened(Place(principal, config, data_dir, redis_url)) as cache:
        found = cache.stats()
        models: dict[str, _OfModel] = {}
        for entry in _all(cache, tag=None, model=None):
            of_model = models.setdefault(entry.model, _OfModel())
            of_model.entries += 1
            of_model.bytes += entry.bytes
            of_model.hits += entry.hits
            of_model.saved_ms += entry.hits * entry.took_ms
        context = cache.context
        if as_json:
            threshold = {"embedder": context.index.embedder_name if context.index else "", "at": context.threshold}
            body = {**msgspec.to_builtins(found), "threshold": threshold, "models": models}
            typer.echo(msgspec.json.encode(body).decode())
            return
        screen.note(f"(of {owner(cache)})")
        screen.rows(_counted(found) + _indexed(cache, found) + _by_model(models))
        for name in found.stale_indexes:
            screen.note(
                f"{name} is another embedder's: its questions hit exactly only\n"
                f"  -> if nobody uses that one any more, `redis-cli FT.DROPINDEX {name}` frees its memory"
            )


def _counted(found: CacheStats) -> list[tuple[str, str]]:
    unembedded = (
        f"{found.unembedded:,} stored without a vector, as the embedder failed: they hit exactly only; "
        f"{found.mended:,} of them have got one since"
    )
    reports = f"{found.reported_right:,} right, {found.reported_wrong:,} wrong"
    refused = ", ".join(f"{number:,} by {screen.harmless(reason)}" for reason, number in found.refused.items())
    return [
        ("entries", f"{found.entries:,} of at most {found.entries_max:,}"),
        ("bytes", f"{found.bytes:,} of at most {found.bytes_max:,}"),
        ("hits", f"{found.exact:,} exact, {found.semantic:,} semantic; they saved {shown_span(found.saved_ms)}"),
        ("misses", f"{found.misses:,}"),
        ("refused", f"{refused or 'none'} (near questions that the guard or the judge did not let pass)"),
        ("reported", reports),
        ("evicted", f"{found.evicted:,}"),
        *([("unembedded", unembedded)] if found.unembedded else []),
    ]


def _indexed(cache: SemanticCache, found: CacheStats) -> list[tuple[str, str]]:
    index = cache.context.index
    if index is None:
        return [("compared", "no: the embedder is not installed; only the very same question hits")]
    name = screen.harmless(index.embedder_name)
    threshold = cache.context.threshold
    told = (
        f"up to distance {threshold:g}, by {name}"
        if threshold is not None
        else f"no: [cache] thresholds has none for {name}; `rtmem cache calibrate` finds one"
    )
    return [("compared", told), ("index", found.index if found.has_index else f"{found.index}: not made yet")]


def _by_model(models: dict[str, _OfModel]) -> list[tuple[str, str]]:
    most_first = sorted(models.items(), key=lambda item: -item[1].entries)
    return [
        (
            "model" if number == 0 else "",
            f"{one_line(name)}: {screen.counted(each.entries, 'entry', 'entries')}, {each.bytes:,} bytes, "
            f"{screen.counted(each.hits, 'hit')}",
        )
        for number, (name, each) in enumerate(most_first)
    ]


def show(
    entry_id: Annotated[str, typer.Argument(metavar="ID", help="One entry, in full, with its answer.")] = "",
    ask: Annotated[
        str | None, typer.Option("--ask", metavar="TEXT", help="What would this question hit, and why not the rest?")
    ] = None,
    tag: Tag = None,
    model: Model = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 20,
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> None:
    """List cached questions, the newest first; or show one of them with its answer; or explain a question.

    With --ask, exit code 1 says that nothing would be hit. A hit also needs the
    same scope (model, parameters, system prompt, tools, conversation): the
    question is asked in each scope that there are entries of. Examples:
      [bold]rtmem cache show --model openai:gpt-5-mini --tag geography[/bold]
      [bold]rtmem cache show 0a1b2c...[/bold]
      [bold]rtmem cache show --ask 'what is the capital of France'[/bold]
    """
    place = Place(principal, config, data_dir, redis_url)
    if ask is not None:
        from rtmem.cli.cache.explaining import explain

        if entry_id:
            raise InvalidRequestError("an ID and --ask are two questions: give one of them")
        if not explain(place, ask, tag, model, limit, as_json=as_json):
            raise typer.Exit(1)
        return
    with opened(place) as cache:
        if entry_id:
            _show_one(cache, entry_id, as_json=as_json)
            return
        found = newest(cache, tag, model)
        shown = found[:limit]
        for entry in shown:
            typer.echo(_json(entry) if as_json else _line(entry))
        left = len(found) - len(shown)
        more = f"; {left:,} more: --limit {len(found)}" if left else ""
        screen.note(f"({screen.counted(len(shown), 'entry', 'entries')} of {owner(cache)}{more})")


def newest(cache: SemanticCache, tag: str | None, model: str | None) -> list[CacheEntry]:
    """All entries with this tag and of this model, the newest first."""
    return sorted(_all(cache, tag=tag, model=model), key=lambda entry: -entry.created_ms)


def _all(cache: SemanticCache, *, tag: str | None, model: str | None) -> Iterator[CacheEntry]:
    more = ""
    # Both: by the tag, of which there are fewer; the rest is left out here.
    under: dict[str, Any] = {"tag": tag} if tag is not None else {"model": model}
    while True:
        page = cache.entries(**under, limit=_PAGE, continuation=more)
        yield from (entry for entry in page.entries if model is None or entry.model == model)
        more = page.continuation
        if not more:
            return


def _show_one(cache: SemanticCache, entry_id: str, *, as_json: bool) -> None:
    entry = cache.entry(entry_id)
    if entry is None:
        raise CacheEntryNotFoundError(
            f"no entry {entry_id!r} of principal {cache.principal!r}: it never was, it has expired, or it was evicted; "
            "`rtmem cache show` lists those there are",
            entry=entry_id,
        )
    if as_json:
        typer.echo(_json(entry))
    else:
        screen.rows([(name, screen.harmless(value)) for name, value in _rows(entry) if value])


def _rows(entry: CacheEntry) -> Iterable[tuple[str, str]]:
    yield "id", entry.entry_id
    yield "question", entry.prompt
    yield "answer", _said(entry.answer)
    yield "model", entry.model
    yield "tags", ", ".join(entry.tags)
    yield "created", f"{shown_time(entry.created_ms)} UTC"
    yield "expires", "never" if entry.expires_in_ms is None else f"in {shown_span(entry.expires_in_ms)}"
    yield "took", f"{entry.took_ms:,} ms"
    yield "hits", f"{entry.hits:,}"
    yield "bytes", f"{entry.bytes:,}"
    yield "threshold", "" if entry.threshold is None else f"{entry.threshold:g}, learned from reports"
    yield "scope", entry.scope


def _said(answer: Any) -> str:
    """An answer as people read it: the text of a message, anything else as it is."""
    text = getattr(answer, "text", answer)
    if isinstance(answer, list):
        return "\n".join(map(_said, answer))
    return text if isinstance(text, str) else repr(answer)


def _plain(value: Any) -> Any:
    """For JSON: messages and what else LangChain keeps as their fields, anything else as text."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else repr(value)


def _line(entry: CacheEntry) -> str:
    created = f"{shown_time(entry.created_ms)} UTC"
    model = one_line(entry.model, 24)
    return f"{entry.entry_id}  {created}  {model:<12}  {entry.hits:>5,} hits  {one_line(entry.prompt, 80)}"


def _json(entry: CacheEntry) -> str:
    body = msgspec.to_builtins(entry, enc_hook=_plain)
    return msgspec.json.encode(body, enc_hook=_plain).decode()
