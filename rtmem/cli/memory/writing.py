"""`rtmem memory add | update | forget`: remember a fact, believe something else instead of it, or remove it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

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
    opened,
)
from rtmem.cli.memory.reading import told
from rtmem.errors import FactConflictError, FactNotFoundError, InvalidRequestError

Object = Annotated[
    str | None,
    typer.Option(
        "--object", help="... what of it: a text; 5, 1.5, true and false are a number and a bool, '\"5\"' is not."
    ),
]
Value = Annotated[str | None, typer.Option("--value", metavar="JSON", help="Data that comes back as it was given.")]
Importance = Annotated[float | None, typer.Option("--importance", min=0, max=1, help="0 to 1; default 0.5.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be repeated.")]
ValidFrom = Annotated[str | None, typer.Option("--valid-from", metavar="TIME", help="Since when it is true; now.")]
ValidTo = Annotated[str | None, typer.Option("--valid-to", metavar="TIME", help="Until when; open.")]
Thread = Annotated[str, typer.Option("--thread", metavar="ID", help="The thread it is from.")]
Message = Annotated[str, typer.Option("--message", metavar="ID", help="The message it is from.")]
Document = Annotated[str, typer.Option("--document", help="The document it is from.")]


def add(
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="A sentence.")] = None,
    kind: Annotated[
        str, typer.Option("--kind", help="semantic, episodic, procedural or preference: how long it is kept.")
    ] = "semantic",
    subject: Annotated[str | None, typer.Option("--subject", help="Who or what it is about ...")] = None,
    predicate: Annotated[str | None, typer.Option("--predicate", help="... what about it ...")] = None,
    object_: Object = None,
    key: Annotated[
        str, typer.Option("--key", help="What it is read by: under a key one thing is true at a time.")
    ] = "",
    value: Value = None,
    importance: Importance = None,
    tags: Tags = None,
    to: Annotated[str, typer.Option("--to", metavar="SCOPE", help="user, application or team:NAME.")] = "user",
    thread_id: Thread = "",
    message_id: Message = "",
    document: Document = "",
    valid_from: ValidFrom = None,
    valid_to: ValidTo = None,
    words_only: WordsOnly = False,
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Remember a fact; once, however often it is said.

    Without TEXT, subject, predicate and object make the sentence, or key and
    value. Examples:
      [bold]rtmem memory add 'Ann lives in Oslo.' --subject Ann --predicate 'lives in' --object Oslo --tag home[/bold]
      [bold]rtmem memory add --key units --value '{"length": "km"}' --kind preference[/bold]
    """
    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=not words_only) as memory:
        fact = memory.write(
            text,
            kind=kind,  # type: ignore[arg-type]  # whatever was typed: it names the kinds there are
            subject=subject,
            predicate=predicate,
            object=_scalar(object_),
            key=key,
            value=_value(value),
            importance=importance,
            tags=tags,
            to=to,
            thread_id=thread_id,
            message_id=message_id,
            document=document,
            writer="rtmem memory add",
            valid_from=moment(valid_from, "--valid-from"),
            valid_to=moment(valid_to, "--valid-to"),
        )
    told([fact], as_json=as_json)
    _say(fact.embedded, fact.times_seen, words_only=words_only)


def update(
    fact_id: FactId,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="What is true instead.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; `rtmem memory history` tells it.")] = "",
    object_: Object = None,
    value: Value = None,
    importance: Importance = None,
    tags: Tags = None,
    thread_id: Thread = "",
    message_id: Message = "",
    document: Document = "",
    valid_from: ValidFrom = None,
    valid_to: ValidTo = None,
    words_only: WordsOnly = False,
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Believe something else from now on: the old fact ends, and the new one follows it. Prints the new one.

    Without TEXT, the fact's subject, predicate and --object make it. Examples:
      [bold]rtmem memory update mf_... --object Bergen --reason 'she has moved'[/bold]
      [bold]rtmem memory update mf_... 'Ann has two cats.' --valid-from 2026-05-01[/bold]
    """
    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=not words_only) as memory:
        try:
            fact = memory.update(
                fact_id,
                text,
                object=_scalar(object_),
                value=_value(value),
                reason=reason,
                importance=importance,
                tags=tags,
                thread_id=thread_id,
                message_id=message_id,
                document=document,
                writer="rtmem memory update",
                valid_from=moment(valid_from, "--valid-from"),
                valid_to=moment(valid_to, "--valid-to"),
            )
        except FactConflictError as exc:
            current = exc.data.get("current")
            step = f"rtmem memory show {current}" if current else f"rtmem memory history {fact_id}"
            raise FactConflictError(f"{exc.message} (`{step}`)", **exc.data) from exc
    told([fact], as_json=as_json)
    _say(fact.embedded, fact.times_seen, words_only=words_only)


def forget(
    fact_id: FactId,
    whole_history: Annotated[
        bool, typer.Option("--history", help="Also what it superseded, and what superseded it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    principal: Principal = None,
    teams: Teams = None,
    application: Application = "",
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
) -> None:
    """Remove a fact for good: its text, vector and record. What was wrong is better ended with update, which says why.

    That something was there, and when it went, stays for a while. Example:
      [bold]rtmem memory forget mf_... --history --yes[/bold]
    """
    place = Place(principal, teams, application, config, data_dir, redis_url)
    with opened(place, embedding=False) as memory:
        fact = memory.read(fact_id) if fact_id.startswith("mf_") else None
        if fact is None or fact.forgotten_at_ms is not None:
            raise FactNotFoundError(f"no fact {fact_id!r}", fact=fact_id[:60])
        if not yes:
            told([fact], as_json=False)
            typer.confirm(f"Forget it{' and all its history' if whole_history else ''}?", abort=True, err=True)
        count = memory.forget(fact_id, history=whole_history)
    screen.out.print(f"{screen.counted(count, 'fact')} forgotten")


def _say(embedded: bool, times_seen: int, *, words_only: bool) -> None:
    if times_seen > 1:
        screen.note(f"(it was known already; said {times_seen} times now)")
    if not embedded:
        why = "as --words-only says" if words_only else "because the embedding failed"
        screen.note(f"(stored without a vector {why}: found by its words; `rtmem memory reindex` gives it one)")


def _scalar(text: str | None) -> Any:
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return found if isinstance(found, str | int | float) else text


def _value(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise InvalidRequestError(
            f"--value is {text[:100]!r}, which is no JSON ({exc}): a text needs quotes of its own"
        ) from exc
