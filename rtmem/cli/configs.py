"""`rtmem configs show`: every setting with its value, its unit and its reason, and the Redis profiles."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
import typer

from rtmem.cli import options
from rtmem.settings import Settings

app = typer.Typer(help="Settings and the Redis profiles that come with rtmem.", no_args_is_help=True)

_SECRET: Final = {("redis", "url"), ("gateway", "tokens")}
_SETTING: Final = re.compile(r"(?P<name>[a-z_]+) = ")


@app.callback()
def _group() -> None:
    """Keeps `show` a subcommand while it is the only one."""


@app.command()
def show(
    profile: Annotated[
        str | None, typer.Argument(metavar="[PROFILE]", help="A Redis profile: print its redis.conf instead.")
    ] = None,
    config: options.Config = None,
) -> None:
    """Print the settings in force as TOML, or the redis.conf of a profile.

    Every line can also be set by a variable: RTMEM_GATEWAY__PORT=8100 is
    port in \\[gateway]. Addresses of Redis and tokens are not shown.

    Examples:
      [bold]rtmem configs show > rtmem.toml[/bold]
      [bold]rtmem configs show durable[/bold]
    """
    from rtmem.server import conf

    if profile is not None:
        typer.echo(conf.profile_text(profile), nl=False)
        return
    explained = (conf.folder() / "rtmem.toml").read_text("utf-8")
    typer.echo("\n".join(_in_force(explained.splitlines(), options.load(config))))


def _in_force(lines: list[str], settings: Settings) -> list[str]:
    """The lines of the explained settings file with these values instead of its own."""
    section, shown = "", []
    for line in lines:
        if line.startswith("["):
            section = line.strip("[]")
        if found := _SETTING.match(line):
            name = found["name"]
            value = getattr(getattr(settings, section), name)
            # JSON and TOML agree on strings, numbers, booleans and the empty table; nothing else is a setting.
            line = f"{name} = {msgspec.json.encode(value).decode()}"
            if value and (section, name) in _SECRET:
                line = f"# {name} is set, and not shown"
        shown.append(line)
    return shown
