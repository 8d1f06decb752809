"""Three models of a disk without power: ext4 and XFS that are shut down, and a shim that knows what was synced.

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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, Protocol

from loadtest.crash.faults import Disk, build
from loadtest.crash.outcome import NotCovered

KINDS: Final = ("ext4", "xfs", "shim")

_SHUTDOWN: Final = 0x8004587D  # _IOR('X', 125, __u32): EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
_NO_LOG_FLUSH: Final = 2
_MIB: Final = 1024**2
_UNMOUNT_TIMEOUT_S: Final = 20.0


class Killable(Protocol):
    """A process that a power cut takes with it."""

    def kill(self) -> None:
        """End it at once, and return when it is gone."""
        ...


class Volume(Protocol):
    """Where a server keeps its data, until the power goes."""

    kind: ClassVar[str]
    folder: Path  # of the data
    environment: dict[str, str]  # what the server's process needs

    def cut(self, *victims: Killable) -> float:
        """Take the power away, from the disk and from `victims`. Returns when, on the monotonic clock: what was
        acknowledged until then counts. Afterwards the volume is there again, with what was on disk."""
        ...

    def close(self) -> None:
        """Leave nothing behind; whoever has files open on it must be gone."""
        ...


class _Mounted:
    """A file system in a file, shut down without writing its journal out. Needs root."""

    kind: ClassVar[str]
    size_bytes: ClassVar[int]
    make: ClassVar[tuple[str, ...]]  # the command; the image's path follows

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            raise NotCovered(f"power cuts on a real {self.kind} (needs root)")
        if shutil.which(self.make[0]) is None:
            raise NotCovered(f"power cuts on a real {self.kind} (no {self.make[0]} here)")
        self.environment: dict[str, str] = {}
        self._image = folder / "disk.img"
        self._mounted = folder / "mounted"
        self._mounted.mkdir()
        with self._image.open("wb") as image:
            image.truncate(self.size_bytes)  # sparse
        _run(*self.make, str(self._image))
        try:
            self._mount()
        except OSError as exc:
            raise NotCovered(f"power cuts on a real {self.kind} (no loop mounts here: {exc.strerror})") from exc
        self.folder = self._mounted / "data"
        self.folder.mkdir(mode=0o700)
        _run("sync", "-f", str(self._mounted))  # the directory itself is there whatever happens

    def cut(self, *victims: Killable) -> float:
        volume = os.open(self._mounted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            when = time.monotonic()
            fcntl.ioctl(volume, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(volume)
        for victim in victims:
            victim.kill()
        self._unmount()
        self._mount()  # replays the journal
        return when

    def close(self) -> None:
        if os.path.ismount(self._mounted):
            try:
                self._unmount()
            except OSError:
                # Somebody who was killed hard is still at it: gone from the tree now, and from the kernel after them.
                _run("umount", "--lazy", str(self._mounted))
        self._image.unlink(missing_ok=True)

    def _mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._mounted))

    def _unmount(self) -> None:
        # The kernel may need a moment to let go of a process that has just died.
        deadline = time.monotonic() + _UNMOUNT_TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                _run("umount", str(self._mounted))
                return
            time.sleep(0.01)
        _run("umount", str(self._mounted))


class Ext4(_Mounted):
    """Leaves files with tails of zero bytes where data never arrived."""

    kind = "ext4"
    size_bytes = 192 * _MIB
    make = ("mkfs.ext4", "-q", "-F")


class Xfs(_Mounted):
    """Cuts files off where data never arrived."""

    kind = "xfs"
    size_bytes = 320 * _MIB  # mkfs.xfs refuses anything below 300
    make = ("mkfs.xfs", "-q", "-f")


class Shim:
    """A folder whose AOF files are cut to what was synced. It cannot show the zero-filled tails of a real ext4."""

    kind: ClassVar[str] = "shim"

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.folder.mkdir(mode=0o700)
        self.disk = Disk(build(folder), folder, self.folder)
        self.environment = self.disk.environment

    def cut(self, *victims: Killable) -> float:
        when = time.monotonic()
        for victim in victims:
            victim.kill()
        # What was synced between the moment and the kill was not acknowledged in time: it may stay.
        self.disk.lose_what_was_not_synced(self.folder)
        return when

    def close(self) -> None:
        """The folder belongs to whoever gave it."""


_KINDS: Final[dict[str, type[Ext4] | type[Xfs] | type[Shim]]] = {one.kind: one for one in (Ext4, Xfs, Shim)}


@contextmanager
def volume(kind: str, folder: Path) -> Iterator[Volume]:
    """A new volume of `kind` (ext4, xfs, shim) in an empty folder; unmounted and gone afterwards.

    Raises:
        NotCovered: it cannot be had on this machine; says why.
    """
    made = _KINDS[kind](folder)
    try:
        yield made
    finally:
        made.close()


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(errno.EPERM, f"{' '.join(command)}: {done.stderr.strip()}")
