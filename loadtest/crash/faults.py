"""A disk that is slow, fails or is full, for one redis-server: `shim.c`, built with the system's compiler."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from loadtest.crash.outcome import NotCovered

_SOURCE: Final = Path(__file__).with_name("shim.c")


def build(folder: Path) -> Path:
    """The shim as a library. Raises NotCovered where no C compiler is."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NotCovered(f"slow, failing and full disks (no C compiler to build {_SOURCE.name})")
    library = folder / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


class Disk:
    """What the shim is told, and what it has seen."""

    def __init__(self, library: Path, folder: Path, watched: Path) -> None:
        self._control = folder / "control"
        self._log = folder / "synced"
        self.environment = {
            "LD_PRELOAD": str(library),
            "SHIM_CONTROL": str(self._control),
            "SHIM_LOG": str(self._log),
            "SHIM_DIR": str(watched),
        }
        self.heal()

    def order(
        self, *, delay_ms: int = 0, fsync: int = 0, write: int = 0, once: bool = False, full_at_bytes: int = 0
    ) -> None:
        """Make every fsync take `delay_ms`, and fsync and write fail with an errno; `once`: fsync only once.

        Args:
            full_at_bytes: no file of the log can grow beyond this: what still fits is written (a short write), then
                ENOSPC; 0: there is room.
        """
        # Renamed into place: the shim must not read half of it.
        order = self._control.with_name("order")
        order.write_text(f"{delay_ms} {fsync} {write} {int(once)} {full_at_bytes}\n")
        order.replace(self._control)

    def heal(self) -> None:
        """Everything is fast and succeeds again; an fsync that is being delayed goes on at once."""
        self.order()

    def fail_once(self, *, delay_ms: int = 0) -> None:
        """The next fsync reports EIO, those after it succeed: so does Linux with pages that it could not write."""
        self.order(fsync=errno.EIO, once=True, delay_ms=delay_ms)

    def struck(self) -> bool:
        """Whether the error of `fail_once` has been reported."""
        return self._control.read_text() == "0 0 0 0 0\n"

    def synced_bytes(self) -> dict[tuple[int, int], int]:
        """(device, inode) -> how many bytes of that file have survived a power cut for sure."""
        sizes: dict[tuple[int, int], int] = {}
        if self._log.exists():
            for line in self._log.read_text().splitlines():
                device, inode, size = map(int, line.split())
                # Two fsyncs may be logged out of order, so the larger one counts.
                sizes[device, inode] = 0 if size < 0 else max(size, sizes.get((device, inode), 0))
        return sizes

    def on_disk(self, data_dir: Path, needle: bytes) -> bool:
        """Whether `needle` is in the part of the AOF that was synced."""
        return any(needle in path.read_bytes()[:size] for path, size in self._synced(data_dir).items())

    def all_synced(self, data_dir: Path) -> bool:
        """Whether nothing of the AOF waits for an fsync: the next one will be about what is written from now on."""
        return all(path.stat().st_size == size for path, size in self._synced(data_dir).items())

    def lose_what_was_not_synced(self, data_dir: Path) -> None:
        """What a power cut does to the AOF of a server that is dead."""
        for path, size in self._synced(data_dir).items():
            if size < path.stat().st_size:
                os.truncate(path, size)

    def _synced(self, data_dir: Path) -> dict[Path, int]:
        """Incremental AOF file -> how much of it was synced."""
        sizes = self.synced_bytes()
        files = {path: path.stat() for path in data_dir.rglob("*.incr.aof")}
        return {path: sizes.get((stat.st_dev, stat.st_ino), 0) for path, stat in files.items()}
