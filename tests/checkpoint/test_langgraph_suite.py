"""LangGraph's own tests with our savers attached; `langgraph_suite/` is the runner and lists what shallow cannot do.

They run beside all other tests, see `langgraph_runs` in conftest.py; here their outcome is waited for.
"""

from __future__ import annotations

import pytest

from tests.checkpoint.conftest import SUITE_SAVERS, SuiteRuns


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("saver", SUITE_SAVERS)
def test_langgraphs_own_suite_fails_exactly_what_is_expected(saver: str, langgraph_runs: SuiteRuns) -> None:
    process, printed = langgraph_runs[saver]
    code = process.wait(880)
    text = printed.read_text("utf-8")
    assert code == 0, text[max(0, text.rfind("\nlanggraph ")) :][-5_000:]
