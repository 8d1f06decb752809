"""What is wrong with a log, what that costs, and what would make it start again. Looks only; repair.py acts.

The rule: a repair keeps the longest beginning of the log in which everything is whole, and nothing behind it, because
a command that is replayed without the ones before it makes a state that never was. It is done unasked only where the
removed part is provably the unfinished end of the last writes. Where whole commands would go, where bytes are missing
that were once on disk, or where the list of files can only be guessed, somebody has to agree first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from rtmem.server import aof, rdb
from rtmem.server import marker as marker_file
from rtmem.server.aof import Entry
from rtmem.server.directory import Layout
from rtmem.server.marker import Marker, Seen

# An image without keys, with the notes of two modules, has 131 bytes: written by a first start that was broken off.
_EMPTY_BASE_BYTES_MAX: Final = 4_096


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong.

    kind: torn (ends inside a command), open (a transaction without its end), zeros, garbage, short (once longer on
    disk), missing (a listed file), base (the image), unlisted (a file no manifest lists), manifest, marker.
    """

    kind: str
    file: str
    found: str
    offset: int | None = None  # where what can be kept ends
    bytes_lost: int = 0
    commands_lost: int = 0  # whole ones that can be read behind it; what is not whole cannot be counted
    since_s: int | None = None  # Unix time of the last second noted before the damage
    until_s: int | None = None  # about when the last lost byte was written
    consent: str = ""  # why nobody repairs this unasked; empty: it is repaired unasked


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair does. Every removed byte goes to quarantine."""

    keep: tuple[str, ...] = ()  # files of the log afterwards, in order; none: the log starts anew
    manifest: str | None = None  # its new text; None: as it is
    cut: tuple[str, int] | None = None  # file, and the bytes of it that stay
    drop: tuple[str, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything found in one data directory."""

    data_dir: str
    damages: tuple[Damage, ...] = ()
    plan: Plan = Plan()

    @property
    def needs_consent(self) -> bool:
        """Whether something would be lost that nobody may give up but its owner."""
        return any(damage.consent for damage in self.damages)


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
    listed = _listed(layout, marker)
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


# --- which files there are ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Listed:
    """The files of the log. `text`: the manifest as it is; None when it has to be written."""

    entries: tuple[Entry, ...] = ()
    text: bytes | None = b""
    damage: Damage | None = None
    drop: tuple[str, ...] = ()


def _listed(layout: Layout, marker: Marker | None) -> _Listed:
    try:
        text = (layout.append_only / aof.MANIFEST).read_bytes()
        entries = aof.read_manifest(text)
    except FileNotFoundError:
        on_disk = _on_disk(layout)
        if marker is None and not on_disk:
            return _Listed()  # nothing was ever written
        return _rebuilt(layout, marker, on_disk, "it is gone")
    except aof.ManifestDamageError as exc:
        return _rebuilt(layout, marker, _on_disk(layout), str(exc))
    if marker is not None and _is_older(entries, aof.read_manifest(marker.manifest.encode())):
        what = "it is older than one that was seen before: files of the log are no longer listed"
        restored = _as_marked(layout, marker, _on_disk(layout), what)
        return restored or _Listed(entries, text, _manifest_damage(what, consent="Redis would start with less"))
    return _Listed(entries, text)


def _on_disk(layout: Layout) -> tuple[Entry, ...]:
    if not layout.append_only.exists():
        return ()
    found = (aof.entry_of(path.name) for path in layout.append_only.iterdir())
    return tuple(sorted((e for e in found if e is not None), key=lambda entry: (entry.kind != "b", entry.seq)))


def _last_seq(entries: Sequence[Entry], kind: str) -> int:
    return max((entry.seq for entry in entries if entry.kind == kind), default=0)


def _is_older(entries: Sequence[Entry], seen: Sequence[Entry]) -> bool:
    """Whether a list lacks files of one seen before without having replaced them by a rewrite."""
    base, base_seen = _last_seq(entries, "b"), _last_seq(seen, "b")
    if base < base_seen or _last_seq(entries, "i") < _last_seq(seen, "i"):
        return True
    names = {entry.name for entry in entries}
    return base == base_seen and any(entry.name not in names for entry in seen)


def _rebuilt(layout: Layout, marker: Marker | None, on_disk: tuple[Entry, ...], what: str) -> _Listed:
    """A list of files for a log whose manifest is of no use."""
    if marker is not None and (restored := _as_marked(layout, marker, on_disk, what)):
        return restored
    names = tuple(entry.name for entry in on_disk)
    sizes = [(layout.append_only / name).stat().st_size for name in names]
    if (
        marker is None
        and max(sizes, default=0) <= _EMPTY_BASE_BYTES_MAX
        and not any(size for entry, size in zip(on_disk, sizes, strict=True) if entry.kind == "i")
    ):
        return _Listed((), None, _manifest_damage(f"{what}; a first start was broken off before any write"), names)
    if not on_disk:
        return _Listed((), None, _manifest_damage(f"{what}, and so is every file", consent="everything would be lost"))
    guess = _guessed(on_disk)
    rest = tuple(entry.name for entry in on_disk if entry not in guess)
    consent = "no base is left, and what follows one means nothing without it"
    if guess:
        consent = f"from the files' names one can only guess that the log was {', '.join(e.name for e in guess)}"
    return _Listed(guess, None, _manifest_damage(what, consent=consent), rest)


def _as_marked(layout: Layout, marker: Marker, on_disk: Sequence[Entry], what: str) -> _Listed | None:
    """The list in the marker, if it is certainly the last one: all its files are here, and none of a later rewrite."""
    seen = aof.read_manifest(marker.manifest.encode())
    here = {entry.name for entry in on_disk}
    if any(entry.name not in here for entry in seen):
        return None
    if any(_last_seq(on_disk, kind) > _last_seq(seen, kind) for kind in "bi"):
        return None
    return _Listed(seen, None, _manifest_damage(f"{what}; all files that the marker lists are here, and no other"))


def _guessed(on_disk: Sequence[Entry]) -> tuple[Entry, ...]:
    # Two bases mean that a rewrite has just replaced the log: its new base goes with the last incremental file.
    bases = [entry for entry in on_disk if entry.kind == "b"]
    increments = [entry for entry in on_disk if entry.kind == "i"]
    if not bases:
        return ()
    return (bases[-1], *(increments[-1:] if len(bases) > 1 else increments))


def _manifest_damage(found: str, *, consent: str = "") -> Damage:
    return Damage(kind="manifest", file=aof.MANIFEST, found=found, consent=consent)


# --- what is in them ----------------------------------------------------------------------------------------------


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
    for entry in _on_disk(inspection.layout):
        if entry.kind != "i" or entry.seq <= _last_seq(entries, "i"):
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


# --- in words -----------------------------------------------------------------------------------------------------


def words(damage: Damage) -> str:
    """One sentence: file, place, what was found, what goes and about which seconds."""
    place = f"{damage.file}" + (f" at byte {damage.offset}" if damage.offset is not None else "")
    cost = []
    if damage.bytes_lost:
        cost.append(f"{damage.bytes_lost} bytes")
    if damage.commands_lost:
        cost.append(f"{damage.commands_lost} readable command{'s' if damage.commands_lost > 1 else ''}")
    if seconds := _seconds_words(damage):
        cost.append(seconds)
    return f"{place}: {damage.found}" + (f" ({', '.join(cost)})" if cost else "")


def _seconds_words(damage: Damage) -> str:
    if damage.until_s is None:
        return ""
    until = datetime.fromtimestamp(damage.until_s, UTC)
    if damage.since_s is None or damage.since_s >= damage.until_s:
        return f"about {until:%Y-%m-%d %H:%M:%S} UTC"
    return f"about {datetime.fromtimestamp(damage.since_s, UTC):%Y-%m-%d %H:%M:%S} to {until:%H:%M:%S} UTC"
