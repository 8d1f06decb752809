"""LangGraph's own tests with our savers attached; `langgraph_suite/` is the runner and lists what shallow cannot do."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.checkpoint.langgraph_suite.__main__ import CACHE, unpacked_suite

RUNNER = Path(__file__).parent / "langgraph_suite"
SAVERS = ("full", "shallow")

Runs = dict[str, tuple[subprocess.Popen[bytes], Path]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Both suites at work, each with a Redis of its own, and what they print: together they take as long as one."""
    unpacked_suite(CACHE)  # not by both at the same time
    started: Runs = {}
    with ExitStack() as stack:
        for saver in SAVERS:
            printed = tmp_path_factory.mktemp(saver) / "printed"
            out = stack.enter_context(printed.open("wb"))
            process = subprocess.Popen(
                [sys.executable, str(RUNNER), "--saver", saver], stdout=out, stderr=subprocess.STDOUT
            )
            stack.enter_context(process)
            stack.callback(process.send_signal, signal.SIGINT)  # if we are: it stops its Redis
            started[saver] = (process, printed)
        yield started


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("saver", SAVERS)
def test_langgraphs_own_suite_fails_exactly_what_is_expected(saver: str, runs: Runs) -> None:
    process, printed = runs[saver]
    code = process.wait(880)
    text = printed.read_text("utf-8")
    assert code == 0, text[max(0, text.rfind("\nlanggraph ")) :][-5_000:]
