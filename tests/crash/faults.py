"""The faulty disk of the crash lab, for tests: without a compiler they are skipped and say what was not covered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.crash import faults
from loadtest.crash.faults import Disk
from loadtest.crash.outcome import NotCovered

__all__ = ["Disk", "build", "covering"]


@contextmanager
def covering() -> Iterator[None]:
    """Skips the test for what this machine does not have."""
    try:
        yield
    except NotCovered as exc:
        pytest.skip(f"NOT COVERED: {exc}")


def build(folder: Path) -> Path:
    """See loadtest.crash.faults.build."""
    with covering():
        return faults.build(folder)
