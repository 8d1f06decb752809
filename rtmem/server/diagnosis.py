"""What the last lines of a dead server's log mean, in words and with a next step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

LOG_LINES_MAX: Final = 12
_TAIL_BYTES_MAX: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """`kind` is for programs: port, directory, disk, aof, modules, config, memory, crash, unknown."""

    kind: str
    meaning: str
    fix: str


# The first that is found decides, so the causes stand before their consequences.
_KNOWN: Final = (
    (
        ("Address already in use",),
        Diagnosis("port", "another program listens on its port", "stop that program or choose another port"),
    ),
    (
        ("AUX module data", "the module needed to load", "Error loading data from RDB (missing module"),
        Diagnosis(
            "modules",
            "the data was written with modules (search, JSON) that are not loaded now",
            "start it with the same modules: `pip install 'rtmem[local]'`",
        ),
    ),
    (
        ("Unknown command",),
        Diagnosis(
            "modules",
            "the log holds a command that this server does not have",
            "start it with the modules and the version that wrote the data: `pip install 'rtmem[local]'`",
        ),
    ),
    (
        ("Bad file format reading the append only file", "Unexpected end of file reading the append only file"),
        Diagnosis(
            "aof",
            "the log in appendonlydir is damaged, as after a power cut on ext4",
            "run `rtmem repair` and read its report",
        ),
    ),
    (
        ("AOF fsync policy is 'always'",),
        Diagnosis(
            "disk",
            "its disk refused the log; under appendfsync always it ends before it acknowledges what is not on disk",
            "free the disk, or look at it (`dmesg`), then start it again",
        ),
    ),
    (
        ("appendonly.aof.manifest", "AOF manifest", "the AOF file"),
        Diagnosis(
            "aof",
            "a file of appendonlydir is missing or its manifest is damaged",
            "restore the directory from a copy, or run `rtmem repair` and read its report",
        ),
    ),
    (
        ("Bad file format", "Short read or OOM loading DB", "Wrong signature trying to load DB"),
        Diagnosis("aof", "an RDB file is damaged", "restore the directory from a copy, or run `rtmem repair`"),
    ),
    (
        ("Can't load module", "Failed loading module", "failed to load: "),
        Diagnosis(
            "modules",
            "a module cannot be loaded by this server or on this system",
            "reinstall with `pip install --force-reinstall 'rtmem[local]'`, or use Redis 8 by URL",
        ),
    ),
    (
        ("FATAL CONFIG FILE ERROR", "Module Configuration detected"),  # a directive nobody knows could be a module's
        Diagnosis("config", "a line of redis.conf is refused", "correct the line named in the log"),
    ),
    (
        ("No space left on device",),
        Diagnosis("directory", "the disk is full", "make room, or choose another data directory"),
    ),
    (
        ("Permission denied", "Read-only file system"),
        Diagnosis("directory", "a file of the data directory cannot be written", "give its files to this user"),
    ),
    (
        ("Out Of Memory", "Cannot allocate memory"),
        Diagnosis(
            "memory", "the machine has no memory left for it", "free some, or lower RTMEM_SERVER__MAXMEMORY_BYTES"
        ),
    ),
    (
        ("REDIS BUG REPORT", "crashed by signal"),
        Diagnosis("crash", "Redis crashed", "report the log; the data is read again at the next start"),
    ),
)
_UNKNOWN: Final = Diagnosis("unknown", "it ended without a word that is known here", "read the whole log")


def diagnose(log: str) -> Diagnosis:
    """The cause of death that `log` (the part since the start) tells."""
    for needles, diagnosis in _KNOWN:
        if any(needle in log for needle in needles):
            return diagnosis
    return _UNKNOWN


def cause_of_death(path: Path) -> Diagnosis:
    """Why a server that had been ready has ended, by the log at `path`; unknown after kill -9."""
    found = diagnose(log_since(path, 0).rpartition("Ready to accept connections")[2])
    # It had read its files. What it says of the AOF since then ("Error writing to the AOF file") did not end it.
    return _UNKNOWN if found.kind == "aof" else found


def log_since(path: Path, offset: int) -> str:
    """What was logged after byte `offset`, at most the last 16 KB of it; empty when there is no log."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            # A log that is shorter than the offset has been put aside meanwhile, and this is a new one.
            log.seek(max(offset if offset <= size else 0, size - _TAIL_BYTES_MAX))
            return log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def last_lines(log: str) -> str:
    """The end of a log, indented, to be shown below a message."""
    return "\n".join(f"  {line}" for line in log.rstrip().splitlines()[-LOG_LINES_MAX:])
