"""LangGraph's own tests of stores with ours attached; `langgraph_suite/` is the runner, and lists what cannot pass.

They run beside the other tests of this folder, see `langgraph_run` in conftest.py; here their outcome is waited for.
"""

from __future__ import annotations

import pytest

from tests.store.conftest import SuiteRun


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_langgraphs_own_tests_of_stores_fail_exactly_what_is_expected(langgraph_run: SuiteRun) -> None:
    process, printed = langgraph_run
    code = process.wait(880)
    assert code == 0, printed.read_text("utf-8")[-5_000:]
