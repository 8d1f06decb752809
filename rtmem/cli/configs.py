"""`rtmem configs show`: every setting with its value, where it can be changed, and the Redis profiles."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from rtmem.cli import options

app = typer.Typer(help="Settings and the Redis profiles that come with rtmem.", no_args_is_help=True)

_SECRETS = {("gateway", "tokens"), ("redis", "url")}


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
    port in \\[gateway]. Secrets are not shown.

    Examples:
      [bold]rtmem configs show > rtmem.toml[/bold]
      [bold]rtmem configs show durable[/bold]
    """
    if profile is not None:
        from rtmem.server import conf

        typer.echo(conf.profile_text(profile), nl=False)
        return
    settings = options.load(config)
    for section in msgspec.structs.fields(settings):
        typer.echo(f"[{section.name}]")
        values = getattr(settings, section.name)
        for field in msgspec.structs.fields(values):
            hidden = (section.name, field.name) in _SECRETS and getattr(values, field.name)
            shown = '"..."  # set, not shown' if hidden else _toml(getattr(values, field.name))
            typer.echo(f"{'# ' if hidden else ''}{field.name} = {shown}")
        typer.echo()


def _toml(value: Any) -> str:
    # JSON and TOML agree on strings, numbers, booleans and the empty table; nothing else is a setting.
    return msgspec.json.encode(value).decode()
