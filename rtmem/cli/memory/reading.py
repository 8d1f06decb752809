"""`rtmem memory list | search | show | history`: look at what is remembered. None of them changes anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from rtmem.cli import options, screen
from rtmem.cli.memory.opening import (
    Application,
    AsJson,
    FactId,
    Place,
    Principal,
    Teams,
    WordsOnly,
    moment,
    one_line,
    opened,
    owner,
    shown_time,
)
from rtmem.errors import FactNotFoundError

if TYPE_CHECKING:
    from rtmem.memory import Fact, FactHit, Memory

_PAGE = 100
_KINDS = "semantic, episodic, procedural or preference"

Kinds = Annotated[list[str] | None, typer.Option("--kind", metavar="KIND", help=f"Only {_KINDS}; may be repeated.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with this tag; several: with all.")]


def list_(
    kinds: Kinds = None,
    tags: Tags = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only about this subject.")] = None,
    predicate: Annotated[str | None, typer.Option("--predicate", help="Only with this predicate.")] = None,
    thread_id: Annotated[str | None, typer.Option("--thread", metavar="ID", help="Only from this thread.")] = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also what is believed no more.")] = False,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="TIME", help="What was true then.")] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--items", metavar="NAMESPACE", help="Items of the store instead: below users/ann, or '' for all."
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.")] = 50,
    after: Annotated[str, typer.Option("--after", metavar="PLACE", help="Go on where a list ended; it says so.")] = "",
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """List facts, the last created first: id, kind, importance, since when it is true, text.

    Examples:
      [bold]rtmem memory list --kind preference[/bold]
      [bold]rtmem memory list --tag home --ended --json[/bold]
      [bold]rtmem memory list --items users/ann[/bold]
    """
    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=False) as memory:
        if namespace is not None:
            _list_items(memory, place, namespace, limit, after, as_json=as_json)
            return
        filters: dict[str, Any] = {"kinds": kinds, "tags": tags, "subject": subject, "predicate": predicate}
        filters |= {"thread_id": thread_id, "ended": ended, "valid_at": moment(as_of, "--as-of")}
        left, more, ready = limit, after, True
        while left:
            page = memory.query(**filters, limit=min(left, _PAGE), continuation=more)
            for fact in page.facts:
                typer.echo(_json(fact) if as_json else _line(fact))
            left, more, ready = left - len(page.facts), page.continuation, page.index_ready
            if not more:
                break
        _say_end(memory, "fact", limit - left, more, ready)


def _list_items(memory: Memory, place: Place, namespace: str, limit: int, after: str, *, as_json: bool) -> None:
    from langgraph.store.base import InvalidNamespaceError

    from rtmem.store import RedisStore

    if after and not after.isdecimal():
        raise typer.BadParameter("of items it is a number: how many to leave out", param_hint="--after")
    store = RedisStore(driver=memory.driver, principal=memory.principal.user, settings=place.settings().store)
    labels = tuple(label for label in namespace.split("/") if label)
    skipped = int(after or 0)
    try:
        found = store.search(labels, limit=limit + 1, offset=skipped, refresh_ttl=False)
    except InvalidNamespaceError as exc:
        raise typer.BadParameter(str(exc), param_hint="--items") from exc
    for item in found[:limit]:
        if as_json:
            typer.echo(msgspec.json.encode(item.dict(), enc_hook=str).decode())
        else:
            updated = item.updated_at.strftime("%Y-%m-%d %H:%M:%S UTC")
            value = one_line(str(item.value), 80)
            typer.echo(f"{updated}  {one_line('/'.join(item.namespace))}  {one_line(item.key)}  {value}")
    more = str(skipped + limit) if len(found) > limit else ""
    _say_end(memory, "item", min(len(found), limit), more, found.index_ready)  # type: ignore[attr-defined]


def _say_end(memory: Memory, what: str, count: int, more: str, ready: bool) -> None:
    shown = f"{screen.counted(count, what)} of {owner(memory)}"
    then = f"; there are more: --after {more}" if more else ""
    still = "" if ready else "; the index is not ready yet, so there may be more"
    screen.note(f"({shown}{then}{still})")


def search(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="In your words.")],
    k: Annotated[
        int | None, typer.Option("-k", "--limit", min=1, help="At most so many; default: that of \\[retrieval].")
    ] = None,
    kinds: Kinds = None,
    tags: Tags = None,
    as_of: Annotated[str | None, typer.Option("--as-of", metavar="TIME", help="Only what was true then.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say what made each score.")] = False,
    words_only: WordsOnly = False,
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Find what is known about a question, by its words and its meaning: score, id, kind, text.

    Exit code 1: nothing that is likely enough is known. Examples:
      [bold]rtmem memory search 'where does Ann live?'[/bold]
      [bold]rtmem memory search 'favourite food' --kind preference --explain[/bold]
    """
    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=not words_only) as memory:
        found = memory.retrieve(
            question,
            k=k,
            kinds=kinds,  # type: ignore[arg-type]  # whatever was typed: it names the kinds there are
            tags=tags,
            as_of=moment(as_of, "--as-of"),
            explain=explain,
        )
        if as_json:
            body = {"question": question, "known": not found.abstained, "confidence": found.confidence}
            body |= {"by_meaning": found.by_meaning, "index_ready": found.index_ready, "left_out": found.left_out}
            body["hits"] = [_hit(hit) for hit in found.hits]
            typer.echo(msgspec.json.encode(body, enc_hook=str).decode())
        else:
            for hit in found.hits:
                fact = hit.fact
                typer.echo(f"{hit.score:.3f}  {fact.id}  {fact.kind:<10}  {one_line(fact.text)}")
                if hit.explanation is not None:
                    typer.echo(_explained(hit))
            known = "nothing is known about that" if found.abstained else f"{len(found.hits)} of {owner(memory)}"
            how = "" if found.by_meaning else ", by words only"
            still = "" if found.index_ready else "; the index is not ready yet, so there may be more"
            screen.note(f"({known}; confidence {found.confidence:.2f}{how}{still})")
    if found.abstained:
        raise typer.Exit(1)


def _hit(hit: FactHit) -> dict[str, Any]:
    body: dict[str, Any] = {"score": hit.score, "fact": msgspec.to_builtins(hit.fact, enc_hook=str)}
    if hit.explanation is not None:
        body["explanation"] = msgspec.to_builtins(hit.explanation)
    return body


def _explained(hit: FactHit) -> str:
    """The signals of a score: what each search said, and what they came to."""
    signals = hit.explanation
    assert signals is not None
    bm25 = "not found" if signals.bm25 is None else f"BM25 {signals.bm25:.2f} -> {signals.text:.2f}"
    cosine = "not found" if signals.cosine is None else f"cosine {signals.cosine:.2f} -> {signals.vector:.2f}"
    return (
        f"       words {bm25}, meaning {cosine}, neighbours +{signals.neighbours:.2f}: "
        f"relevance {signals.relevance:.2f}; recency {signals.recency:.2f}, importance {signals.importance:.2f}"
    )


def show(
    key: Annotated[str, typer.Argument(metavar="ID|KEY", help="A fact, mf_..., or the key it is read by.")],
    of: Annotated[
        str, typer.Option("--of", metavar="SCOPE", help="Of a key: user, application or team:NAME.")
    ] = "user",
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show all of a fact: what it says, where it is from, when it is true, what became of it. Nothing is searched."""
    with opened(Place(principal, teams, application, config, data_dir, redis_url), embedding=False) as memory:
        fact = memory.read(key, of=of)
        if fact is None:
            raise FactNotFoundError(f"no fact {key!r}", fact=key[:60])
    if as_json:
        typer.echo(_json(fact))
    else:
        screen.rows(_rows(fact))


def history(
    fact_id: FactId,
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Tell why a belief changed: all that led to a fact and all that came of it, the oldest first."""
    with opened(Place(principal, teams, application, config, data_dir, redis_url), embedding=False) as memory:
        facts = memory.history(fact_id)
        if not facts:
            raise FactNotFoundError(f"no fact {fact_id!r}", fact=fact_id[:60])
    for fact in facts:
        if as_json:
            typer.echo(_json(fact))
            continue
        screen.out.print(Text(f"{fact.id}  {_period(fact)}"), soft_wrap=True)
        screen.out.print(Text.assemble("  ", (_said(fact), "bold")))
        if became := _became(fact):
            screen.out.print(Text(f"  -> {became}"))


def _rows(fact: Fact) -> list[tuple[str, str]]:
    said = {
        "id": fact.id,
        "text": _said(fact),
        "kind": fact.kind,
        "scope": fact.scope,
        "key": fact.key,
        "subject": fact.subject,
        "predicate": fact.predicate,
        "object": None if fact.object is None else str(fact.object),
        "value": None if fact.value is None else msgspec.json.encode(fact.value, enc_hook=str).decode(),
        "importance": f"{fact.importance:g}",
        "tags": ", ".join(fact.tags),
        "true": _period(fact),
        "created": f"{shown_time(fact.created_at_ms)} UTC",
        "last seen": f"{shown_time(fact.last_seen_ms)} UTC"
        + (f", {fact.times_seen} times" if fact.times_seen > 1 else ""),
        "thread": " ".join(filter(None, (fact.thread_id, fact.message_id, _position(fact.position)))),
        "document": fact.document,
        "writer": fact.writer,
        "became": _became(fact),
        "supersedes": ", ".join(fact.supersedes),
        "vector": "" if fact.embedded else "none yet: its embedding failed; `rtmem memory reindex` tries again",
    }
    return [(name, screen.harmless(value)) for name, value in said.items() if value]


def _position(position: int | None) -> str:
    return "" if position is None else f"at {position}"


def _said(fact: Fact) -> str:
    if fact.forgotten_at_ms is not None:
        return f"(forgotten {shown_time(fact.forgotten_at_ms)} UTC: nothing is left of what it said)"
    return one_line(fact.text)


def _period(fact: Fact) -> str:
    if fact.forgotten_at_ms is not None:
        return f"created {shown_time(fact.created_at_ms)} UTC"
    return f"from {shown_time(fact.valid_from_ms)} UTC" + (
        "" if fact.valid_to_ms is None else f" to {shown_time(fact.valid_to_ms)} UTC"
    )


def _became(fact: Fact) -> str:
    if fact.ended_at_ms is None:
        return ""
    reason = f": {one_line(fact.invalidated_reason)}" if fact.invalidated_reason else ""
    if fact.superseded_by is not None:
        return f"superseded {shown_time(fact.ended_at_ms)} UTC by {fact.superseded_by}{reason}"
    return f"invalidated {shown_time(fact.ended_at_ms)} UTC{reason}"


def _line(fact: Fact) -> str:
    ended = "" if fact.ended_at_ms is None else f"  ({_became(fact)})"
    since = f"{shown_time(fact.valid_from_ms)} UTC"
    return f"{fact.id:<29}  {fact.kind:<10}  {fact.importance:.2f}  {since}  {one_line(fact.text, 100)}{ended}"


def _json(fact: Fact) -> str:
    return msgspec.json.encode(fact, enc_hook=str).decode()


def told(facts: Sequence[Fact], *, as_json: bool) -> None:
    """Facts that a command wrote."""
    for fact in facts:
        typer.echo(_json(fact) if as_json else _line(fact))
