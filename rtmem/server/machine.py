"""What the machine below a Redis does to its promises: memory for forks, huge pages, the file system of the log."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rtmem.server.facts import ServerFacts

_PROGRAMS: Final = {"redis-server", "valkey-server", "keydb-server"}
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """None: not known here."""

    overcommit: int | None = None  # vm.overcommit_memory
    huge_pages: str | None = None  # always, madvise, never
    log_dir: str | None = None
    file_system: str | None = None  # below the log: ext4, xfs, ...


def look(facts: ServerFacts, log_dir: str = "", root: Path = Path("/")) -> MachineFacts | None:
    """The machine of a server that runs on this one; None for one that runs elsewhere, as in a container.

    Args:
        log_dir: where to look instead of where the server's log lies.
        root: of the file system, for tests.
    """
    if not _runs_here(facts, root):
        return None
    log_dir = log_dir or os.path.join(facts.config.get("dir", ""), facts.config.get("appenddirname", ""))
    return MachineFacts(
        overcommit=_number(_read(root / "proc/sys/vm/overcommit_memory")),
        huge_pages=_chosen(_read(root / "sys/kernel/mm/transparent_hugepage/enabled")),
        log_dir=log_dir or None,
        file_system=file_system_of(log_dir, _read(root / "proc/self/mounts")) if os.path.isabs(log_dir) else None,
    )


def file_system_of(path: str, mounts: str) -> str | None:
    """The type of the file system that `path` lies on, by the longest mount point above it; later mounts cover."""
    best, found = -1, None
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[1])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:
            best, found = len(point), fields[2]
    return found


def _runs_here(facts: ServerFacts, root: Path) -> bool:
    # A container counts its processes anew: its number 7 is somebody else's here, or nobody's.
    return facts.process_id is not None and _read(root / f"proc/{facts.process_id}/comm").strip() in _PROGRAMS


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""  # not Linux, or not for this user


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None


def _chosen(text: str) -> str | None:
    # "always [madvise] never"
    match = re.search(r"\[(\w+)\]", text)
    return match[1] if match else None
