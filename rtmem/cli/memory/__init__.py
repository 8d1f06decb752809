"""`rtmem memory`: what is remembered across threads."""

from __future__ import annotations

import typer

from rtmem.cli.memory import moving, reading, reindexing, writing

app = typer.Typer(
    help="What is remembered across threads: facts, and items of the store.",
    epilog="A fact is never overwritten: [bold]update[/bold] ends it and says why, and [bold]history[/bold] tells all "
    "of it. Start with [bold]rtmem memory add 'Ann lives in Oslo.' --tag home[/bold], then "
    "[bold]rtmem memory search 'where does Ann live?'[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command("list")(reading.list_)
app.command()(reading.search)
app.command()(reading.show)
app.command()(reading.history)
app.command()(writing.add)
app.command()(writing.update)
app.command()(writing.forget)
app.command()(reindexing.reindex)
app.command("export")(moving.export)
app.command("import")(moving.import_)
app.command()(reindexing.stats)

__all__ = ["app"]
