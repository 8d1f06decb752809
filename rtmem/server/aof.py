"""Append-only files as Redis 7 and later writes them: what is whole in one, and where that ends. Reads only.

The reader takes what Redis writes and nothing else. Redis itself is more lenient when it loads: it skips the line end
after a value unread, and so takes a value whose last bytes the disk never got. What does not parse here is therefore
damaged, but what parses may still hold a flipped byte: commands carry no checksum.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

Bytes: TypeAlias = bytes | mmap.mmap

MANIFEST: Final = "appendonly.aof.manifest"

# b: base, i: incremental. History (h), which Redis has replaced and is about to delete, is not part of the log.
Kind = Literal["b", "i"]
_FILE_NAME: Final = re.compile(r"appendonly\.aof\.(?P<seq>[0-9]+)\.(?P<role>base|incr)\.(?P<form>rdb|aof)")

# What Redis adds around commands; as Redis writes them and as a client may have sent them. An annotation has no name.
_FRAME: Final = frozenset((b"", b"MULTI", b"EXEC", b"SELECT", b"multi", b"exec", b"select"))
_LENGTHS: Final = {mark: re.compile(rb"\%b([0-9]{1,10})\r\n" % mark) for mark in (b"*", b"$")}
_LENGTH_PREFIXES: Final = {mark: re.compile(rb"\%b([0-9]{1,10}\r?)?" % mark) for mark in (b"*", b"$")}
_ANNOTATION_PREFIX: Final = re.compile(rb"#(T(S(:([0-9]{1,11}\r?)?)?)?)?")
_LINE_BYTES_MAX: Final = 64  # of a length or an annotation; Redis writes at most 24
_COMMAND_START: Final = re.compile(rb"\*[1-9][0-9]{0,9}\r\n\$[0-9]{1,10}\r\n")
_TIMESTAMP: Final = re.compile(rb"#TS:([0-9]{9,11})\r\n")
_TIMESTAMP_SEARCH_BYTES: Final = 8 * 1024 * 1024


# --- the manifest -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the log, with the line that lists it."""

    name: str
    seq: int
    kind: Kind
    line: str


class ManifestDamageError(ValueError):
    """The bytes are not a manifest; raised and caught in this package only."""


def read_manifest(data: bytes) -> tuple[Entry, ...]:
    """The files that a manifest lists, in the order in which Redis loads them, history left out.

    Raises:
        ManifestDamageError: says which line.
    """
    if not data.endswith(b"\n"):
        raise ManifestDamageError("its last line is unfinished" if data else "it is empty")
    entries = []
    for line in data.decode("utf-8", "replace").splitlines():
        if line.startswith("#"):
            continue
        words = line.split(" ")
        fields = dict(zip(words[::2], words[1::2], strict=False))
        if len(words) % 2 or not {"file", "seq", "type"} <= fields.keys() or not fields["seq"].isdigit():
            raise ManifestDamageError(f"it has a line that Redis did not write: {line[:80]!r}")
        kind = fields["type"]
        if kind in ("b", "i"):
            entries.append(Entry(fields["file"], int(fields["seq"]), "b" if kind == "b" else "i", line))
        elif kind != "h":
            raise ManifestDamageError(f"it lists a file of unknown type {kind!r}")
    if not entries:
        raise ManifestDamageError("it lists no file")
    return tuple(sorted(entries, key=lambda entry: (entry.kind != "b", entry.seq)))


def write_manifest(entries: tuple[Entry, ...]) -> bytes:
    """A manifest that lists these files with their own lines."""
    return "".join(f"{entry.line}\n" for entry in entries).encode()


def entry_of(name: str) -> Entry | None:
    """What a file's name says of it; None for a file that is not part of a log."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    seq = int(match["seq"])
    kind: Kind = "b" if match["role"] == "base" else "i"
    return Entry(name, seq, kind, f"file {name} seq {seq} type {kind}")


# --- one file -----------------------------------------------------------------------------------------------------


# torn: ends inside a command. open: ends inside a transaction. zeros: ends in zero bytes, which a file system leaves
# where data never arrived. garbage: any other bytes that are no command.
Flaw = Literal["torn", "open", "zeros", "garbage"]


@dataclass(frozen=True, slots=True)
class Scan:
    """What a file holds."""

    size: int
    whole_bytes: int  # where the last whole command, or whole transaction, ends
    commands: int  # whole ones between where the scan began and `whole_bytes`; MULTI, EXEC and SELECT do not count
    flaw: Flaw | None = None
    broken_at: int | None = None  # the first byte that cannot be right; the size, when everything there could go on
    commands_behind: int = 0  # whole ones after `whole_bytes` that belong to a transaction without an end
    first_after: int | None = None  # where the first whole command after the damage starts
    commands_after: int = 0  # whole ones after the damage


@contextmanager
def opened(path: Path) -> Iterator[Bytes]:
    """The bytes of a file without reading them all."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            yield b""  # nothing cannot be mapped
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def scan(data: Bytes, start: int = 0) -> Scan:
    """Read commands from `start`, which must be between two, to the end or to the first damage.

    A transaction counts as one: if its EXEC is missing, it is not whole from its MULTI on.
    """
    size = len(data)
    position = whole = start
    commands = pending = 0
    inside = False
    while position < size:
        try:
            position, name = _read_entry(data, position)
        except _FlawError as exc:
            first, count = _commands_after(data, position + 1)
            flaw = exc.flaw
            if flaw == "garbage" and first is None and data[-1:] == b"\0":
                flaw = "zeros"
            return Scan(size, whole, commands, flaw, exc.broken_at, pending, first, count)
        if name not in _FRAME:
            pending += 1
        elif name.upper() == b"MULTI":
            inside = True
        elif name.upper() == b"EXEC":
            inside = False
        if not inside:
            whole, commands, pending = position, commands + pending, 0
    return Scan(size, whole, commands, "open", size, pending) if inside else Scan(size, whole, commands)


def timestamp_before(data: Bytes, end: int) -> int | None:
    """The last second that the log notes before byte `end`."""
    found = None
    for match in _TIMESTAMP.finditer(data[max(0, end - _TIMESTAMP_SEARCH_BYTES) : end]):
        found = int(match[1])
    return found


def timestamps_after(data: Bytes, start: int) -> tuple[int, int] | None:
    """The first and the last second that can be read after byte `start`, whatever stands between."""
    seconds = [int(match[1]) for match in _TIMESTAMP.finditer(data, start)]
    return (min(seconds), max(seconds)) if seconds else None


class _FlawError(Exception):
    def __init__(self, flaw: Flaw, broken_at: int) -> None:
        self.flaw: Flaw = flaw
        self.broken_at = broken_at


def _read_entry(data: Bytes, position: int) -> tuple[int, bytes]:
    """Where the command or annotation at `position` ends, and the command's name; no name for an annotation."""
    if data[position : position + 1] == b"#":
        return _read_annotation(data, position), b""
    start = position
    arguments, position = _read_length(data, position, b"*")
    if arguments < 1:
        raise _FlawError("garbage", start + 1)
    name = b""
    length_line = _LENGTHS[b"$"]
    for number in range(arguments):
        # Millions of times in a large log, so the usual case stands here.
        match = length_line.match(data, position)
        length, start = (int(match[1]), match.end()) if match else _read_length(data, position, b"$")
        position = start + length + 2
        if position > len(data):
            raise _FlawError("torn", len(data))
        if data[position - 2 : position] != b"\r\n":
            raise _FlawError("garbage", position - 2 + (data[position - 2 : position - 1] == b"\r"))
        if number == 0:
            name = data[start : start + length]
            # The name is the one argument whose shape is known; printable, so that it can be shown too.
            if not name.isascii() or not name.decode("ascii").isprintable():
                raise _FlawError("garbage", start + next(at for at, byte in enumerate(name) if not 32 <= byte < 127))
    return position, name


def _read_annotation(data: Bytes, position: int) -> int:
    line_end = data.find(b"\n", position, position + _LINE_BYTES_MAX)
    line = data[position : line_end + 1 if line_end >= 0 else position + _LINE_BYTES_MAX]
    if _TIMESTAMP.fullmatch(line):
        return line_end + 1
    raise _unfinished(data, position, line, _ANNOTATION_PREFIX)


def _read_length(data: Bytes, position: int, mark: bytes) -> tuple[int, int]:
    """The number in a line such as `$12`, and where the next line starts."""
    if match := _LENGTHS[mark].match(data, position):
        return int(match[1]), match.end()
    raise _unfinished(data, position, data[position : position + _LINE_BYTES_MAX], _LENGTH_PREFIXES[mark])


def _unfinished(data: Bytes, position: int, line: bytes, prefix: re.Pattern[bytes]) -> _FlawError:
    """The flaw of a line at `position` that is not whole, whose right beginning matches `prefix`."""
    match = prefix.match(line)
    broken_at = position + (match.end() if match else 0)
    return _FlawError("torn" if broken_at == len(data) else "garbage", broken_at)


def _commands_after(data: Bytes, start: int) -> tuple[int | None, int]:
    """The first whole command at or after `start`, wherever it begins, and how many there are."""
    first, count, position = None, 0, start
    while (match := _COMMAND_START.search(data, position)) is not None:
        try:
            position, name = _read_entry(data, match.start())
        except _FlawError:
            position = match.start() + 1
            continue
        first = match.start() if first is None else first
        count += name not in _FRAME
    return first, count
