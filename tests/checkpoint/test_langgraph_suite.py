"""LangGraph's own tests with our savers attached; `langgraph_suite/` is the runner and lists what shallow cannot do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = Path(__file__).parent / "langgraph_suite"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("saver", ["full", "shallow"])
def test_langgraphs_own_suite_fails_exactly_what_is_expected(saver: str) -> None:
    done = subprocess.run(
        [sys.executable, str(RUNNER), "--saver", saver], capture_output=True, text=True, timeout=880, check=False
    )

    summary = done.stdout[done.stdout.rfind("\nlanggraph ") :]
    assert done.returncode == 0, f"{summary}\n{done.stderr[-2000:]}"
