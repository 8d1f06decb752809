"""`rtmem cache invalidate`: answers that shall not be given any more."""

from __future__ import annotations

from typing import Annotated

import typer

from rtmem.cli import options, screen
from rtmem.cli.cache.opening import Place, Principal, age_ms, opened, owner
from rtmem.errors import InvalidRequestError


def invalidate(
    entry_id: Annotated[str | None, typer.Option("--entry", metavar="ID", help="This one.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="All with this tag.")] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="All of this model.")] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="What is older than 90s, 15m, 2h, 2d or 1w.")
    ] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All of this principal's answers.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask, with --everything.")] = False,
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Drop cached answers. Once this returns, none of them is given again.

    An answer that is being computed meanwhile is not stored either. --older-than
    alone, or beside one of the others, drops only what is old. Examples:
      [bold]rtmem cache invalidate --tag geography[/bold]
      [bold]rtmem cache invalidate --model openai:gpt-5-mini --older-than 2d[/bold]
      [bold]rtmem cache invalidate --tag thread:42 --principal ann[/bold]
      [bold]rtmem cache invalidate --everything --yes[/bold]
    """
    older_than_ms = age_ms(older_than)
    given = sum(each is not None for each in (entry_id, tag, model)) + everything
    if given > 1 or not (given or older_than):
        raise InvalidRequestError(
            "what is to be invalidated? give one of --entry, --tag, --model or --everything; --older-than alone, or "
            "beside one of them"
        )
    with opened(Place(principal, config, data_dir, redis_url)) as cache:
        if everything and not yes:
            answers = screen.counted(cache.stats().entries, "answer")
            typer.confirm(f"Drop {answers} of principal {cache.principal!r}?", abort=True, err=True)
        gone = cache.invalidate(
            entry_id=entry_id, tag=tag, model=model, older_than_ms=older_than_ms, everything=everything
        )
        if as_json:
            typer.echo(f'{{"invalidated": {gone}}}')
            return
        screen.out.print(f"{screen.counted(gone, 'answer')} invalidated")
        if not gone:
            screen.note(f"(of {owner(cache)}; `rtmem cache show` lists what there is)")
