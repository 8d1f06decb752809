"""Which files make up a log: by its manifest, or, where that is of no use, by the marker or by their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rtmem.server import aof, rdb
from rtmem.server.aof import Entry
from rtmem.server.damage import Damage
from rtmem.server.directory import Layout
from rtmem.server.marker import Marker


@dataclass(frozen=True, slots=True)
class Listed:
    """The files of the log. `text`: the manifest as it is; None when it has to be written."""

    entries: tuple[Entry, ...] = ()
    text: bytes | None = b""
    damage: Damage | None = None
    drop: tuple[str, ...] = ()


def listed(layout: Layout, marker: Marker | None) -> Listed:
    """The files that make up the log, and what is wrong with its list."""
    try:
        text = (layout.append_only / aof.MANIFEST).read_bytes()
        entries = aof.read_manifest(text)
    except FileNotFoundError:
        files = on_disk(layout)
        if marker is None and not files:
            return Listed()  # nothing was ever written
        if marker is None and _was_never_written(layout, files):
            what = "it is missing; a first start was broken off before any write"
            return Listed((), None, _manifest_damage(what), tuple(entry.name for entry in files))
        return _rebuilt(marker, files, "it is gone")
    except aof.ManifestDamageError as exc:
        return _rebuilt(marker, on_disk(layout), str(exc))
    if marker is not None and _is_older(entries, aof.read_manifest(marker.manifest.encode())):
        what = "it is older than one that was seen before: files of the log are no longer listed"
        restored = _as_marked(marker, on_disk(layout), what)
        return restored or Listed(entries, text, _manifest_damage(what, consent="Redis would start with less"))
    return Listed(entries, text)


def on_disk(layout: Layout) -> tuple[Entry, ...]:
    """Every file that by its name is part of a log, listed or not, in the order of loading."""
    if not layout.append_only.exists():
        return ()
    found = (aof.entry_of(path.name) for path in layout.append_only.iterdir())
    return tuple(sorted((e for e in found if e is not None), key=lambda entry: (entry.kind != "b", entry.seq)))


def last_seq(entries: Sequence[Entry], kind: str) -> int:
    """The highest number among the files of one kind; 0 when there is none."""
    return max((entry.seq for entry in entries if entry.kind == kind), default=0)


def _is_older(entries: Sequence[Entry], seen: Sequence[Entry]) -> bool:
    """Whether a list lacks files of one seen before without having replaced them by a rewrite."""
    base, base_seen = last_seq(entries, "b"), last_seq(seen, "b")
    if base < base_seen or last_seq(entries, "i") < last_seq(seen, "i"):
        return True
    names = {entry.name for entry in entries}
    return base == base_seen and any(entry.name not in names for entry in seen)


def _was_never_written(layout: Layout, files: Sequence[Entry]) -> bool:
    """Whether the files are those of a first start that was broken off: Redis writes the manifest last."""
    for entry in files:
        with aof.opened(layout.append_only / entry.name) as data:
            if data and (entry.kind == "i" or not rdb.is_without_data(data)):
                return False
    return True


def _rebuilt(marker: Marker | None, files: tuple[Entry, ...], what: str) -> Listed:
    """A list of files for a log whose manifest is of no use."""
    if marker is not None and (restored := _as_marked(marker, files, what)):
        return restored
    if not files:
        return Listed((), None, _manifest_damage(f"{what}, with every file", consent="everything would be lost"))
    guess = _guessed(files)
    rest = tuple(entry.name for entry in files if entry not in guess)
    consent = "no base is left, and what follows one means nothing without it"
    if guess:
        consent = f"from the files' names one can only guess that the log was {', '.join(e.name for e in guess)}"
    return Listed(guess, None, _manifest_damage(what, consent=consent), rest)


def _as_marked(marker: Marker, files: Sequence[Entry], what: str) -> Listed | None:
    """The list in the marker, if it is certainly the last one: all its files are here, and none of a later rewrite."""
    seen = aof.read_manifest(marker.manifest.encode())
    here = {entry.name for entry in files}
    if any(entry.name not in here for entry in seen):
        return None
    if any(last_seq(files, kind) > last_seq(seen, kind) for kind in "bi"):
        return None
    return Listed(seen, None, _manifest_damage(f"{what}; all files that the marker lists are here, and no other"))


def _guessed(files: Sequence[Entry]) -> tuple[Entry, ...]:
    # Two bases mean that a rewrite has just replaced the log: its new base goes with the last incremental file.
    bases = [entry for entry in files if entry.kind == "b"]
    increments = [entry for entry in files if entry.kind == "i"]
    if not bases:
        return ()
    return (bases[-1], *(increments[-1:] if len(bases) > 1 else increments))


def _manifest_damage(found: str, *, consent: str = "") -> Damage:
    return Damage(kind="manifest", file=aof.MANIFEST, found=found, consent=consent)
