"""Two models of a disk without power: a real file system that is shut down, and a shim that knows what was synced.

kill -9 of redis-server is no power cut: what it has written lives on in the page cache.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.crash.faults import Disk, build
from tests.drivers.processes import Process

_SHUTDOWN: Final = 0x8004587D  # _IOR('X', 125, __u32): EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
_NO_LOG_FLUSH: Final = 2


class Volume(Protocol):
    """Where a server keeps its data, until the power goes."""

    folder: Path
    environment: dict[str, str]

    def cut(self, victim: Process) -> float:
        """Take the power away, from the disk and from `victim`. Returns when, on the monotonic clock: what was
        acknowledged until then counts. Afterwards the volume is there again, with what was on disk."""
        ...


class Ext4:
    """A file system in a file, shut down without writing its journal out. Needs root."""

    def __init__(self, folder: Path) -> None:
        self.environment: dict[str, str] = {}
        self._image = folder / "disk.img"
        self._mounted = folder / "mounted"
        self._mounted.mkdir()
        with self._image.open("wb") as image:
            image.truncate(192 * 1024**2)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        self.folder = self._mounted / "data"
        self.folder.mkdir(mode=0o700)
        _run("sync", "-f", str(self._mounted))  # the directory itself is there whatever happens

    def cut(self, victim: Process) -> float:
        volume = os.open(self._mounted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            when = time.monotonic()
            fcntl.ioctl(volume, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(volume)
        victim.kill()
        self._unmount()
        self._mount()  # replays the journal
        return when

    def close(self) -> None:
        self._unmount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._mounted))

    def _unmount(self) -> None:
        # The kernel may need a moment to let go of a process that has just died.
        for _ in range(100):
            if subprocess.run(["umount", str(self._mounted)], check=False, capture_output=True).returncode == 0:
                return
            time.sleep(0.02)
        _run("umount", str(self._mounted))


class Shim:
    """A folder whose AOF files are cut to what was synced. It cannot show the zero-filled tails of a real ext4."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.folder.mkdir(mode=0o700)
        self._disk = Disk(build(folder), folder, self.folder)
        self.environment = self._disk.environment

    def cut(self, victim: Process) -> float:
        when = time.monotonic()
        # The sizes at this moment: what is synced between here and the kill was not acknowledged in time either.
        victim.kill()
        self._disk.lose_what_was_not_synced(self.folder)
        return when

    def close(self) -> None:
        pass


@contextmanager
def volume(kind: str, folder: Path) -> Iterator[Volume]:
    """A volume of `kind` (ext4, shim). Skips the test where it cannot be had, and says what was not covered."""
    if kind == "shim":
        made: Ext4 | Shim = Shim(folder)
    else:
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            pytest.skip("NOT COVERED: power cuts on a real ext4 (needs root and mkfs.ext4)")
        try:
            made = Ext4(folder)
        except OSError as exc:
            pytest.skip(f"NOT COVERED: power cuts on a real ext4 (no loop mounts here: {exc.strerror})")
    try:
        yield made
    finally:
        made.close()


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(errno.EPERM, f"{command[0]}: {done.stderr.strip()}")
