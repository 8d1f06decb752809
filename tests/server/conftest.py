from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtmem.server import embedded
from tests.server.processes import settings


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A short private directory; a server that still runs in it afterwards is stopped."""
    path = Path(tempfile.mkdtemp(prefix="rtmem-test-"))
    yield path
    embedded.stop(settings(path))
    shutil.rmtree(path)
