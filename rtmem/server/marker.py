"""What was once seen of the log, kept outside its directory: how silent losses are told from an empty start.

Redis starts without a word when the manifest is gone (with nothing) or when a file of the log is empty or ends early
between two commands (with less). Nothing inside the directory can tell that. So `aof.marker`, beside it, says which
files there were and how many of their bytes had certainly reached the disk.

Everything in the marker is a lower bound: files only grow, and Redis replaces them by files of a higher number. A
marker that is old, because nobody wrote one for a while or the disk was full, is therefore never wrong; it only
notices less. It is written by whoever starts, joins, leaves or stops the embedded server, not by a timer: each
writing costs an fsync of the log, which a running conversation should not have to wait for.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from rtmem.server import aof, durable_file
from rtmem.server.directory import Layout

_TRIES_MAX: Final = 5


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the log."""

    synced_bytes: int = 0  # so many bytes of it are on disk
    whole_bytes: int = 0  # up to here it was read, and ended between two commands


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The log as it was seen last."""

    version: int = 1
    manifest: str
    files: dict[str, Seen]

    def seen(self, name: str) -> Seen:
        """What is known of a file; nothing of one that was never seen."""
        return self.files.get(name, Seen())


def read(layout: Layout) -> Marker | None:
    """The marker of this data directory; None when there is none.

    Raises:
        ValueError: there is one that cannot be read.
    """
    try:
        marker = msgspec.json.decode(layout.marker.read_bytes(), type=Marker)
    except FileNotFoundError:
        return None
    aof.read_manifest(marker.manifest.encode())
    return marker


def write(layout: Layout, marker: Marker) -> None:
    """Replace the marker."""
    durable_file.replace(layout.marker, msgspec.json.format(msgspec.json.encode(marker)) + b"\n")


def forget(layout: Layout) -> None:
    """Remove the marker, for a log that starts anew."""
    layout.marker.unlink(missing_ok=True)
    durable_file.sync_directory(layout.root)


def keep(layout: Layout, *, at_rest: bool = False) -> tuple[str, ...]:
    """Sync the log and write down how far it reaches.

    Args:
        at_rest: no server is writing, and the log was found whole or its server ended in good order.

    Returns:
        What hindered it, one sentence; the old marker is then still there and still true.
    """
    try:
        before = _read_or_none(layout)
        for _ in range(_TRIES_MAX):
            try:
                marker = _look(layout, before, at_rest=at_rest)
            except FileNotFoundError:
                continue  # a rewrite has just replaced what the manifest listed a moment ago: read it again
            except aof.ManifestDamageError as exc:
                return (f"the marker of the log was not renewed: the manifest cannot be read: {exc}",)
            if marker is not None and marker != before:
                write(layout, marker)
            return ()
    except OSError as exc:
        return (f"the marker of the log was not renewed: {exc.strerror}: silent losses until now will not be seen",)
    return ("the marker of the log was not renewed: its files kept changing",)


def _read_or_none(layout: Layout) -> Marker | None:
    try:
        return read(layout)
    except ValueError:  # replaced by a readable one below
        return None


def _look(layout: Layout, before: Marker | None, *, at_rest: bool) -> Marker | None:
    manifest = layout.append_only / aof.MANIFEST
    if not layout.append_only.exists() or (before is None and not manifest.exists()):
        return None  # a profile without a log, or a server that has not made one yet
    text = manifest.read_bytes()
    files = {}
    for entry in aof.read_manifest(text):
        known = before.seen(entry.name) if before else Seen()
        with (layout.append_only / entry.name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > known.synced_bytes:
                os.fsync(file.fileno())
        files[entry.name] = Seen(
            synced_bytes=max(size, known.synced_bytes), whole_bytes=size if at_rest else known.whole_bytes
        )
    durable_file.sync_directory(layout.append_only)
    return Marker(manifest=text.decode("utf-8", "replace"), files=files)
