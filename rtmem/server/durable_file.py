"""Write a file so that a power cut leaves the old one or the new one, and never a part of either."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """Put `data` at `path`: temporary file, fsync, rename, fsync of the directory."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)  # a full disk must not fill up with drafts
        raise
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: fsync of a file keeps its bytes, not its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
