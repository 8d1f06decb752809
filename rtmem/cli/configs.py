"""`rtmem configs`: every setting with its value, its unit and its reason, and the Redis profiles."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from rtmem.cli import options, screen
from rtmem.errors import InvalidRequestError
from rtmem.settings import Settings

app = typer.Typer(help="Settings and the Redis profiles that come with rtmem.", no_args_is_help=True)

_SECRET: Final = {("redis", "url"), ("gateway", "tokens")}
_SETTING: Final = re.compile(r"(?P<name>[a-z_]+) = ")


@app.command()
def show(
    profile: Annotated[
        str | None,
        typer.Argument(metavar="[PROFILE]", help="Print the redis.conf of this profile instead, or sentinel.conf."),
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
        typer.echo(_redis_text(profile), nl=False)
        return
    explained = (conf.folder() / "rtmem.toml").read_text("utf-8")
    typer.echo("\n".join(_in_force(explained.splitlines(), options.load(config))))


@app.command()
def write(
    profile: Annotated[
        str,
        typer.Argument(help="ephemeral, relaxed, balanced, durable or replicated; or sentinel."),
    ],
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the redis.conf of a profile, for a Redis of your own.

    Every line has its reason. Add what only your machine knows: dir, maxmemory,
    bind and a password; all profiles but replicated listen on no port (port 0).

    Examples:
      [bold]rtmem configs write durable redis.conf[/bold]
      [bold]rtmem configs write sentinel sentinel.conf[/bold]
    """
    text = _redis_text(profile)
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError as exc:
        raise InvalidRequestError(f"{file} exists: choose another name, or replace it with --force") from exc
    except OSError as exc:
        raise InvalidRequestError(f"{file} cannot be written: {exc.strerror}: choose another place") from exc
    if profile == "sentinel":
        missing = "put the address of the master, its password and dir in"
    else:
        missing = "add dir, maxmemory, bind and a password"
    screen.out.print(f"{profile} written to {file}; {missing}")


def _redis_text(name: str) -> str:
    from rtmem.server import conf

    return conf.sentinel_text() if name == "sentinel" else conf.profile_text(name)


def _in_force(lines: list[str], settings: Settings) -> list[str]:
    """The lines of the explained settings file with these values instead of its own."""
    section, shown = "", []
    for line in lines:
        if line.startswith("["):
            section = line.strip("[]")
        if found := _SETTING.match(line):
            name = found["name"]
            value = getattr(getattr(settings, section), name)
            line = f"{name} = {_as_toml(value)}"
            if value and (section, name) in _SECRET:
                line = f"# {name} is set, and not shown"
        shown.append(line)
    return shown


def _as_toml(value: object) -> str:
    # JSON and TOML agree on strings, numbers, booleans, lists of them and quoted keys: a table alone has another form.
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_as_toml(key)} = {_as_toml(each)}' for key, each in value.items())}}}"
    return msgspec.json.encode(value).decode()
