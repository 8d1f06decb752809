"""LangGraph's own tests with our savers attached; `langgraph_suite/` is the runner and lists what shallow cannot do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "langgraph_suite"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("saver", ["full", "shallow"])
def test_langgraphs_own_suite_fails_exactly_what_is_expected(saver: str) -> None:
    done = subprocess.run([sys.executable, SUITE, "--saver", saver], capture_output=True, text=True, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed[max(0, printed.rfind("\nlanggraph ")) :][-5_000:]
