"""`rtmem cache report`: whether a hit was right."""

from __future__ import annotations

from typing import Annotated

import typer

from rtmem.cli import options, screen
from rtmem.cli.cache.opening import Place, Principal, opened, owner


def report(
    hit_id: Annotated[str, typer.Argument(help="The hit_id of a hit, or of the event rtmem.cache.")],
    wrong: Annotated[bool, typer.Option("--wrong/--right", help="Whether its answer was another question's.")],
    principal: Principal = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
    redis_url: options.RedisUrl = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether a hit was right. Exit code 1 if its entry is not there any more.

    After a wrong hit by meaning questions must be nearer to that entry; after a
    wrong exact one the entry is dropped. Examples:
      [bold]rtmem cache report 9f8f721aaef58b5f9e0eb19b6761275d.1764491430000000.0.071 --wrong[/bold]
      [bold]rtmem cache report 9f8f721aaef58b5f9e0eb19b6761275d.1764491430000000.exact --right --principal ann[/bold]
    """
    with opened(Place(principal, config, data_dir, redis_url)) as cache:
        noted = cache.report(hit_id, not wrong)
        if as_json:
            typer.echo(f'{{"noted": {str(noted).lower()}}}')
        elif noted:
            screen.out.print("noted: wrong" if wrong else "noted: right")
        else:
            screen.note(f"(that entry is not there any more, or holds another answer; of {owner(cache)})")
    if not noted:
        raise typer.Exit(1)
