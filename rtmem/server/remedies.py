"""The commands that mend a server's settings, such that they work where they are typed, and last."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from rtmem.server.facts import ServerFacts

# Redis reads these only when it starts: CONFIG SET answers "immutable", for dir "protected".
_AT_START: Final = frozenset({"dir", "rdbchecksum"})
_MEBIBYTE: Final = 1024 * 1024


def set_directives(facts: ServerFacts, values: Mapping[str, str], restart: str = "") -> str:
    """Change directives of redis.conf, for now and for the server's next start.

    Args:
        restart: for a server that rtmem starts, whose redis.conf it writes anew each time: the command that starts it
            as wanted.
    """
    if restart:
        return restart
    if _AT_START & values.keys():
        file = facts.config_file or "its redis.conf"
        return f"put `{_lines(values)}` into {file} and restart the server"
    command = "CONFIG SET " + " ".join(f"{name} {_word(value)}" for name, value in values.items())
    if facts.config_file == "":
        # CONFIG REWRITE then answers that there is no file.
        return f"{command}, then start it with `{_options(values)}` from now on, for it has no redis.conf"
    return f"{command}, then CONFIG REWRITE"


def limit_memory(facts: ServerFacts, restart: str = "") -> str:
    """A limit of half the machine: the other half is for the fork of a rewrite and the rest."""
    total = facts.total_memory_bytes
    half = f"{total // 2 // _MEBIBYTE}mb" if total else "<half of the machine's memory>"
    return set_directives(facts, {"maxmemory": half}, restart)


def _lines(values: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {_word(value)}" for name, value in values.items())


def _options(values: Mapping[str, str]) -> str:
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in values.items())


def _word(value: str) -> str:
    return f'"{value}"' if not value or " " in value else value
