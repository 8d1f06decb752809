"""The configuration file of an embedded server: a profile from `configs/redis/`, then what only this machine knows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rtmem.errors import ConfigError
from rtmem.server.binaries import Module

PROFILES: Final = ("ephemeral", "relaxed", "balanced", "durable")

_PROFILE_MARK: Final = "# rtmem profile: "


@dataclass(frozen=True, slots=True)
class Site:
    """What only this machine knows of a server."""

    data_dir: Path
    socket: Path
    maxmemory_bytes: int
    modules: tuple[Module, ...] = ()


def folder() -> Path:
    """The folder `configs`: inside the package of an installed wheel, beside it in a checkout.

    Raises:
        ConfigError: neither exists; the installation is incomplete.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "_configs", package.parent / "configs"):
        if (candidate / "redis" / "common.conf").is_file():
            return candidate
    raise ConfigError(f"configs: neither {package}/_configs nor {package.parent}/configs exists: install rtmem again")


def profile_text(profile: str) -> str:
    """All lines of a profile, comments included, without anything of this machine."""
    if profile not in PROFILES:
        raise ConfigError(f"profile {profile!r} is not one that this version can start: choose one of {PROFILES}")
    redis = folder() / "redis"
    return (redis / "common.conf").read_text("utf-8") + "\n" + (redis / f"{profile}.conf").read_text("utf-8")


def render(profile: str, site: Site, extra: Sequence[str] = ()) -> str:
    """The whole file for one server. `extra` lines come last, and in redis.conf the last word wins."""
    lines = [
        f"{_PROFILE_MARK}{profile}",
        "# Written at every start: changes here are lost.",
        "",
        profile_text(profile),
        "# --- this machine ---",
        "",
        f"dir {quote(site.data_dir)}",
        f"unixsocket {quote(site.socket)}",
        f"logfile {quote(site.data_dir / 'redis.log')}",
        f"pidfile {quote(site.data_dir / 'redis.pid')}",
        f"maxmemory {site.maxmemory_bytes}",
        # Detached from whoever starts it: own session, no terminal, no parent that has to collect it.
        "daemonize yes",
        "supervised no",
        *(" ".join(("loadmodule", quote(module.path), *module.arguments)) for module in site.modules),
        *extra,
    ]
    return "\n".join(lines) + "\n"


def profile_of(text: str) -> str:
    """The profile a rendered file was made from, or an empty string."""
    first = text.partition("\n")[0]
    return first.removeprefix(_PROFILE_MARK) if first.startswith(_PROFILE_MARK) else ""


def quote(value: str | os.PathLike[str]) -> str:
    """`value` as one word of redis.conf, whatever bytes it has."""
    plain = b"!#$%&()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~ "
    return '"' + "".join(chr(b) if b in plain else f"\\x{b:02x}" for b in os.fsencode(value)) + '"'


def default_maxmemory_bytes() -> int:
    """Half of what this machine or this container may use: the other half is for the fork of a rewrite and the rest."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [total]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text("ascii").strip()
        except OSError:
            continue
        if text.isdigit():  # "max" means no limit
            limits.append(int(text))
    return min(limits) // 2
