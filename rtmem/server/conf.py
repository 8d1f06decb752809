"""The profiles of `configs/redis/`, and the file of an embedded server: a profile and what only this machine knows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rtmem.errors import ConfigError
from rtmem.server.binaries import Module

# What the embedded server can be; one more is for several machines of one's own.
PROFILES: Final = ("ephemeral", "relaxed", "balanced", "durable")
ALL_PROFILES: Final = (*PROFILES, "replicated")
DEFAULT_PROFILE: Final = "balanced"

# Directives that a file may repeat, each line for something else.
MANY_LINES: Final = frozenset({"client-output-buffer-limit"})

_PROFILE_MARK: Final = "# rtmem profile: "


@dataclass(frozen=True, slots=True)
class Site:
    """What only this machine knows of a server."""

    data_dir: Path
    socket: Path
    maxmemory_bytes: int
    modules: tuple[Module, ...] = ()


@dataclass(frozen=True, slots=True)
class Directive:
    """One line of a profile, with the comment above it."""

    name: str
    value: str
    reason: str


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
    if profile not in ALL_PROFILES:
        raise ConfigError(f"profile {profile!r} is none of this version: choose one of {', '.join(ALL_PROFILES)}")
    redis = folder() / "redis"
    return (redis / "common.conf").read_text("utf-8") + "\n" + (redis / f"{profile}.conf").read_text("utf-8")


def sentinel_text() -> str:
    """The example of a Sentinel for profile replicated."""
    return (folder() / "redis" / "sentinel.conf").read_text("utf-8")


def directives(profile: str) -> tuple[Directive, ...]:
    """What a profile sets. A name that it sets twice, as limits per class of client, is there twice; else the last."""
    found: list[Directive] = []
    for paragraph in profile_text(profile).split("\n\n"):
        lines = paragraph.strip().splitlines()
        reason = " ".join(line.lstrip("# ") for line in lines if line.startswith("#"))
        for line in lines:
            if line and not line.startswith("#"):
                name, _, value = line.partition(" ")
                found = [one for one in found if one.name != name or name in MANY_LINES]
                found.append(Directive(name, "" if value == '""' else value, reason))
    return tuple(found)


def require_startable(profile: str) -> None:
    """Refuse a profile that does not exist, or that one server alone cannot keep. An empty one leaves the choice."""
    if profile and profile not in ALL_PROFILES:
        raise ConfigError(f"no profile {profile!r}: choose one of {', '.join(PROFILES)}", profile=profile)
    if profile and profile not in PROFILES:
        raise ConfigError(
            f"profile {profile!r} needs servers on several machines, and rtmem starts one: choose one of "
            f"{', '.join(PROFILES)}, or see `rtmem configs show {profile}` and give their address with --redis-url",
            profile=profile,
        )


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
