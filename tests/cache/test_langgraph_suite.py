"""LangGraph's own tests of caches with ours attached; `langgraph_suite/` is the runner, and lists what cannot pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_langgraphs_own_tests_of_caches_fail_exactly_what_is_expected() -> None:
    suite = Path(__file__).parent / "langgraph_suite"
    done = subprocess.run([sys.executable, suite], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5_000:]
