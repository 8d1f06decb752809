"""Read a log that no server writes, and say what is wrong with it. Looks only; repair.py acts.

The rule: a repair keeps the longest beginning of the log in which everything is whole, and nothing behind it, because
a command that is replayed without the ones before it makes a state that never was. It is done unasked only where the
removed part is provably the unfinished end of the last writes. Where whole commands would go, where bytes are missing
that were once on disk, or where the list of files can only be guessed, somebody has to agree first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rtmem.server import aof, listing, rdb
from rtmem.server import marker as marker_file
from rtmem.server.aof import Entry
from rtmem.server.damage import Damage, Diagnosis, Plan
from rtmem.server.directory import Layout
from rtmem.server.marker import Marker, Seen


def examine(layout: Layout, *, thorough: bool = False) -> Diagnosis:
    """Read the log of a server that does not run.

    Args:
        thorough: read every file from its start and compute the checksum of the base; otherwise only what came after
            the point up to which the marker knows it to be whole.
    """
    found: list[Damage] = []
    try:
        marker = marker_file.read(layout)
    except ValueError as exc:
        marker = None
        what = f"it cannot be read ({exc}); losses without a trace until now cannot be seen"
        found.append(Damage(kind="marker", file=layout.marker.name, found=what))
    listed = listing.listed(layout, marker)
    if listed.damage is not None:
        found.append(listed.damage)
    inspection = _Inspection(layout, marker, thorough)
    walk = _walk(inspection, listed.entries)
    found.extend(walk.damages)
    keep, drop = walk.keep, walk.drop + listed.drop
    changed = listed.text is None or tuple(listed.entries) != keep
    return Diagnosis(
        data_dir=str(layout.root),
        damages=tuple(found),
        plan=Plan(
            keep=tuple(entry.name for entry in keep),
            manifest=aof.write_manifest(keep).decode() if changed else None,
            cut=walk.cut,
            drop=drop,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Inspection:
    """How files are looked at."""

    layout: Layout
    marker: Marker | None
    thorough: bool

    def path(self, name: str) -> Path:
        return self.layout.append_only / name

    def seen(self, name: str) -> Seen:
        return self.marker.seen(name) if self.marker else Seen()


@dataclass(frozen=True, slots=True)
class _Walk:
    damages: tuple[Damage, ...]
    keep: tuple[Entry, ...]
    cut: tuple[str, int] | None
    drop: tuple[str, ...]


def _walk(inspection: _Inspection, entries: tuple[Entry, ...]) -> _Walk:
    """Read the files in order, up to the first damage; what stands behind that is only counted."""
    for number, entry in enumerate(entries):
        damage = _look(inspection, entry)
        if damage is None:
            continue
        behind, unlisted = entries[number + 1 :], _unlisted(inspection, entries)
        dropped = tuple(_dropped(inspection, other, damage) for other in behind)
        kept = damage.offset is not None
        return _Walk(
            damages=(damage, *(found for found in dropped if found), *unlisted),
            keep=entries[: number + 1] if kept else entries[:number],
            cut=(entry.name, damage.offset) if damage.offset is not None else None,
            drop=(
                *(() if kept else (entry.name,)),
                *(other.name for other in behind),
                *(found.file for found in unlisted),
            ),
        )
    unlisted = _unlisted(inspection, entries)
    return _Walk(unlisted, entries, None, tuple(found.file for found in unlisted))


def _look(inspection: _Inspection, entry: Entry) -> Damage | None:
    """The damage of a listed file. Its `offset` says how much of the file can stay; None: nothing of it."""
    path = inspection.path(entry.name)
    try:
        with aof.opened(path) as data:
            if entry.kind == "b" and (rdb.is_rdb(data) or entry.name.endswith(".rdb")):
                return _look_at_base(data, entry.name, thorough=inspection.thorough)
            return _look_at_commands(data, entry.name, inspection)
    except FileNotFoundError:
        return Damage(
            kind="missing",
            file=entry.name,
            found="the manifest lists it, and it is gone",
            consent="its content is lost",
        )


def _look_at_base(data: aof.Bytes, name: str, *, thorough: bool) -> Damage | None:
    # A base named .aof starts with an image and goes on with commands; where the image ends only Redis can tell.
    what = rdb.flaw(data, thorough=thorough) if name.endswith(".rdb") else ""
    if not what:
        return None
    return Damage(
        kind="base",
        file=name,
        found=what,
        bytes_lost=len(data),
        consent="everything that was written before it is in it, and what follows means nothing without it",
    )


def _look_at_commands(data: aof.Bytes, name: str, inspection: _Inspection) -> Damage | None:
    seen = inspection.seen(name)
    # What was whole once is read again only on request: Redis itself complains if it has changed.
    start = 0 if inspection.thorough or seen.whole_bytes > len(data) else seen.whole_bytes
    scan = aof.scan(data, start)
    short = scan.size < seen.synced_bytes
    if scan.flaw is None and not short:
        return None
    until = aof.timestamps_after(data, scan.whole_bytes)
    written_s = int(inspection.path(name).stat().st_mtime)
    return Damage(
        kind="short" if short else scan.flaw or "",
        file=name,
        found=_found_words(scan, seen, short=short),
        offset=scan.whole_bytes,
        bytes_lost=max(scan.size, seen.synced_bytes) - scan.whole_bytes,
        commands_lost=scan.commands_behind + scan.commands_after,
        since_s=aof.timestamp_before(data, scan.whole_bytes),
        until_s=until[1] if until else written_s,
        consent=_consent_words(scan, seen, short=short),
    )


_FLAW_WORDS: Final = {
    "torn": "it ends inside a command",
    "open": "it ends inside a transaction",
    "zeros": "it ends in zero bytes, as ext4 leaves them after a power cut",
    "garbage": "bytes that are no command stand in it",
}


def _found_words(scan: aof.Scan, seen: Seen, *, short: bool) -> str:
    words = _FLAW_WORDS[scan.flaw] if scan.flaw else ""
    if not short:
        return words
    length = f"it has {scan.size} bytes" if scan.size else "it is empty"
    return f"{length}, and {seen.synced_bytes} had reached the disk" + (f"; {words}" if words else "")


def _consent_words(scan: aof.Scan, seen: Seen, *, short: bool) -> str:
    if short:
        return "what a disk has once, no power cut takes away: this was cut, or restored from an older copy"
    if scan.broken_at is not None and scan.broken_at < seen.synced_bytes:
        # Not `whole_bytes`: what was marked while a server wrote may end inside a command.
        return f"{seen.synced_bytes} bytes of it had reached the disk: this is not the end that a power cut tears off"
    if scan.first_after is not None:
        return f"whole commands follow the damage, from byte {scan.first_after} on"
    return ""


def _dropped(inspection: _Inspection, entry: Entry, damage: Damage) -> Damage | None:
    """What goes with a file that stands behind the damage; None for an empty one that was never more."""
    path = inspection.path(entry.name)
    if not path.exists():
        return Damage(kind="missing", file=entry.name, found="it is gone too", consent="its content is lost")
    with aof.opened(path) as data:
        scan = aof.scan(data)
        seconds = aof.timestamps_after(data, 0)
    commands = scan.commands + scan.commands_behind + scan.commands_after
    whole = scan.commands or scan.commands_after or scan.size < inspection.seen(entry.name).synced_bytes
    if not scan.size and not whole:
        return None
    return Damage(
        kind="behind",
        file=entry.name,
        found=f"it follows the damage in {damage.file}",
        bytes_lost=scan.size,
        commands_lost=commands,
        since_s=seconds[0] if seconds else None,
        until_s=seconds[1] if seconds else int(path.stat().st_mtime),
        consent="it holds whole commands, which mean nothing without those before them" if whole else "",
    )


def _unlisted(inspection: _Inspection, entries: Sequence[Entry]) -> tuple[Damage, ...]:
    """Incremental files after the last listed one that hold something: Redis would overwrite them."""
    if not entries:
        return ()
    found = []
    for entry in listing.on_disk(inspection.layout):
        if entry.kind != "i" or entry.seq <= listing.last_seq(entries, "i"):
            continue
        with aof.opened(inspection.path(entry.name)) as data:
            scan = aof.scan(data)
        if not scan.size:  # a rewrite makes the file before it lists it
            continue
        whole = scan.commands + scan.commands_after
        found.append(
            Damage(
                kind="unlisted",
                file=entry.name,
                found="the manifest does not list it: left by a repair that was broken off, or the manifest is old",
                bytes_lost=scan.size,
                commands_lost=whole,
                consent="it holds whole commands" if whole else "",
            )
        )
    return tuple(found)
