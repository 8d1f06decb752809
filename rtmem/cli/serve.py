"""`rtmem serve`: the user's own graphs behind the gateway."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from rtmem.cli import options
from rtmem.errors import ConfigError


def serve(
    graphs: Annotated[
        list[str],
        typer.Argument(
            metavar="GRAPH...", help="module:attribute or path/to/file.py:attribute; name=... sets the assistant id."
        ),
    ],
    config: options.Config = None,
    data_dir: options.DataDir = None,
    profile: options.ProfileName = None,
    redis_url: options.RedisUrl = None,
    host: options.Host = None,
    port: options.Port = None,
) -> None:
    """Serve graphs of your own.

    A graph is a compiled one, a StateGraph, or a factory without arguments,
    sync or async. It runs with rtmem's saver, whatever it was compiled with.
    Its assistant id is the attribute's name, or what stands before "=".

    Examples:
      [bold]rtmem serve app:graph[/bold]
      [bold]rtmem serve support=bots/support.py:make_graph sales=bots.sales:graph[/bold]
    """
    settings = options.load(config, data_dir=data_dir, profile=profile, redis_url=redis_url, host=host, port=port)
    specs = _named(graphs)
    from rtmem.agent import loading
    from rtmem.cli import serving

    # Resolved first: a misspelled name should not cost the start of a Redis.
    builders = {name: partial(loading.build, loading.resolve(spec), spec) for name, spec in specs.items()}
    serving.serve(builders, settings)


def _named(graphs: list[str]) -> dict[str, str]:
    """Assistant id -> spec."""
    named: dict[str, str] = {}
    for given in graphs:
        name, equals, spec = given.partition("=")
        if not equals:
            name, spec = given.rpartition(":")[2], given
        if not name:
            raise ConfigError(f"{given!r} gives its graph an empty name: write name={spec}, or only {spec}")
        if name in named:
            raise ConfigError(f"two graphs are called {name!r}: write other={spec} for one of them", name=name)
        named[name] = spec
    return named
