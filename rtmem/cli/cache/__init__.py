"""`rtmem cache`: answers that are given again."""

from __future__ import annotations

import typer

from rtmem.cli.cache import calibrating, invalidating, reading, reporting

app = typer.Typer(
    help="Answers that are given again: what there is, why a question hits or not, and how near it must be.",
    epilog="[bold]rtmem cache show --ask 'your question'[/bold] says what it would hit. "
    "[bold]rtmem cache calibrate pairs.csv[/bold] finds the threshold for your questions and your embedder.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command()(reading.stats)
app.command()(reading.show)
app.command()(invalidating.invalidate)
app.command()(reporting.report)
app.command()(calibrating.calibrate)

__all__ = ["app"]
