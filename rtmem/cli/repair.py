"""`rtmem repair`: what is wrong with the log of the embedded Redis, and a repair that throws nothing away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer
from rich.text import Text

from rtmem.cli import options, screen

if TYPE_CHECKING:
    from rtmem.server.damage import Damage, Diagnosis
    from rtmem.server.directory import Layout

State = Literal["whole", "repaired", "refused"]


def repair(
    config: options.Config = None,
    data_dir: options.DataDir = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Also give up what the report says is lost. Read it first.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Read the whole log of the embedded Redis, report what is damaged, and repair it.

    The unfinished end that a power cut tears off is cut unasked, as every
    start does. Where more would be lost nothing is changed and the exit code
    is 1, until you agree with --accept-loss: then the longest beginning in
    which everything is whole is kept. Every removed byte goes to quarantine/
    in the data directory, with the report.

    A flipped byte inside a value cannot be seen: the log has no checksums.

    Exit codes: 0 whole or repaired, 1 refused, 2 it runs or is not there.
    """
    from rtmem.server import repair as server_repair

    settings = options.load(config, data_dir=data_dir)
    with server_repair.at_rest(settings.server) as layout:
        found = server_repair.examine(layout, thorough=True)
        if not as_json:
            _show(found)
        state: State = "whole"
        done: tuple[str, ...] = ()
        if found.damages:
            state = "refused" if found.needs_consent and not accept_loss else "repaired"
        if state == "repaired":
            done = server_repair.mend(layout, found)
    if as_json:
        body = {**_as_json(found), "state": state, "done": done}
        typer.echo(msgspec.json.format(msgspec.json.encode(body), indent=2).decode())
    else:
        _conclude(state, done, layout)
    if state == "refused":
        raise typer.Exit(1)


def _show(found: Diagnosis) -> None:
    screen.rows([("Data directory", found.data_dir), ("Damages", str(len(found.damages) or "none"))])
    for damage in found.damages:
        _show_damage(damage)


def _show_damage(damage: Damage) -> None:
    from rtmem.server import damage as damages

    mark = ("LOSS", "bold red") if damage.consent else ("tail", "yellow")
    screen.out.print(Text.assemble(mark, "  ", damages.words(damage)))
    if damage.consent:
        screen.out.print(Text(f"      -> {damage.consent}"))


def _conclude(state: State, done: tuple[str, ...], layout: Layout) -> None:
    for sentence in done:
        screen.out.print(Text(sentence))
    if state == "whole":
        screen.out.print("The log is whole: nothing to repair.")
    elif state == "refused":
        screen.out.print(
            "Nothing was changed. Restore the directory from a copy if there is one;\n"
            f"or agree to the losses above: {layout.command('repair --accept-loss')}"
        )
    else:
        screen.out.print(f"It starts again: {layout.command('up')}")


def _as_json(found: Diagnosis) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(found)
    return body
