"""`rtmem cache`: answers that are given again."""

from __future__ import annotations

import typer

from rtmem.cli.cache import calibrating

app = typer.Typer(
    help="Answers that are given again: how near a question must be to one that was answered before.",
    epilog="Start with [bold]rtmem cache calibrate pairs.csv[/bold]: it finds the threshold for your questions and "
    "your embedder.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command()(calibrating.calibrate)


@app.callback()
def _group() -> None:
    # A group of one command would become that command.
    pass


__all__ = ["app"]
