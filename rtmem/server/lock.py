"""File locks that die with their holder, so that nothing has to be cleaned up after kill -9.

`flock` belongs to the open file, not to the process: it ends when the last process that has the file open is gone,
whatever killed it. That is why shares and the server's own life are locks and not pid files.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rtmem.errors import DataDirectoryError, DeadlineExceededError

POLL_S: Final = 0.005


def open_lock(path: Path) -> int:
    """A new file descriptor on the lock file at `path`, unlocked. Every descriptor locks on its own."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise DataDirectoryError(
            f"data directory {path.parent}: cannot open {path.name}: {exc.strerror}: "
            f"make it writable for this user, or choose another with RTMEM_SERVER__DATA_DIR",
            data_dir=str(path.parent),
        ) from exc


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take the lock if it is free. A descriptor that already holds it changes its kind."""
    import fcntl  # here, because Windows has none and must still be able to import rtmem.server

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
            return False
        raise DataDirectoryError(
            f"data directory: this file system cannot lock files ({exc.strerror}): put it on a local disk"
        ) from exc
    return True


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at `path` alone at this moment."""
    descriptor = open_lock(path)
    try:
        # Shared, so that two who ask at the same moment do not take each other for the holder.
        return try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


@contextmanager
def exclusive(path: Path, timeout_ms: int) -> Iterator[None]:
    """Hold the lock at `path` alone.

    Raises:
        DeadlineExceededError: somebody else held it for all of `timeout_ms`.
    """
    import fcntl

    descriptor = open_lock(path)
    try:
        wait_for_lock(descriptor, path, timeout_ms)
        yield
    finally:
        # Unlocked by word and not only by close: a child forked meanwhile has the same open file.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def wait_for_lock(descriptor: int, path: Path, timeout_ms: int, *, shared: bool = False) -> None:
    """Take the lock, waiting for it. Raises DeadlineExceededError."""
    deadline = time.monotonic() + timeout_ms / 1000
    while not try_lock(descriptor, shared=shared):
        if time.monotonic() > deadline:
            raise DeadlineExceededError(
                f"{path}: another process has been starting or stopping this server for over {timeout_ms} ms: "
                f"look at {path.parent / 'redis.log'}, then try again",
                path=str(path),
            )
        time.sleep(POLL_S)
