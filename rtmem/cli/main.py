"""Entry point of the `rtmem` command: one file a command, one way to report what went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from rtmem import __version__
from rtmem.cli import cache, chat, configs, doctor, down, memory, pointers, repair, screen, serve, up
from rtmem.errors import ConfigError, InvalidRequestError, RtmemError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="rtmem",
    help="Redis-native, low-latency memory for streaming agents.",
    epilog="First time here? Run [bold]rtmem up[/bold], then [bold]rtmem chat[/bold] in another terminal. "
    "Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 130 interrupted. "
    "RTMEM_DEBUG=1 shows tracebacks.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rtmem {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(up.up)
app.command()(serve.serve)
app.command()(chat.chat)
app.add_typer(doctor.app, name="doctor")
app.command()(down.down)
app.command()(repair.repair)
app.add_typer(pointers.app, name="pointers")
app.add_typer(memory.app, name="memory")
app.add_typer(cache.app, name="cache")
app.add_typer(configs.app, name="configs")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    # Before anything imports LangGraph, which reads it once: without it, stored bytes may name any class to import.
    os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
    try:
        # Typer prints its own usage errors and exits with 2.
        app(args=arguments, prog_name="rtmem")
    except RtmemError as exc:
        if os.environ.get("RTMEM_DEBUG"):
            raise
        screen.error(exc)
        sys.exit(EXIT_USAGE if isinstance(exc, ConfigError | InvalidRequestError) else EXIT_FAILED)
    except ModuleNotFoundError as exc:
        if os.environ.get("RTMEM_DEBUG"):
            raise
        screen.error(ConfigError(f"{exc.name} is not installed, and this command needs it: pip install 'rtmem[all]'"))
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except OSError as exc:
        if os.environ.get("RTMEM_DEBUG"):
            raise
        # The reader of `rtmem ... | head` has gone, or output goes to a full disk: the interpreter must not complain
        # about that once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(exc, BrokenPipeError):
            what = "that file" if exc.filename else "where output goes"
            screen.error(RtmemError(f"{exc}: check {what}; RTMEM_DEBUG=1 shows where this happened"))
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
