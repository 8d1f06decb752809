"""Runs the `rtmem` command as its users do: as a process, with an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


def environment(home: Path, **variables: str) -> dict[str, str]:
    """A user without settings, whose home is `home`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RTMEM_", "XDG_"))}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100", **variables}


def rtmem(
    *arguments: str | Path, env: Mapping[str, str], given: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """One command to its end, with `given` on its standard input."""
    return subprocess.run(
        [sys.executable, "-m", "rtmem", *map(str, arguments)],
        env=dict(env),
        input=given,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
