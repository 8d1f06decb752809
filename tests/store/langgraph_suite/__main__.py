"""Run LangGraph's own tests of stores with rtmem's in the place of InMemoryStore and SqliteStore.

    python tests/store/langgraph_suite

The tests are those of the source distributions of langgraph-checkpoint (tests/test_store.py, once for each colour) and
langgraph-checkpoint-sqlite (tests/test_store.py and tests/test_async_store.py), downloaded once. Not tests/test_ttl.py:
it counts what a sweeper deletes, and Redis needs none.

Exit code 0: exactly the tests of expected.toml failed. 1: something else. 2: the tests could not be run.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.langgraph_suites import Part, run_suite  # noqa: E402

_AWAITED = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "--tb=short")


def part(package: str, files: tuple[str, ...], colour: str) -> Part:
    """Some files of LangGraph's tests, and which of our stores they get."""
    return Part(package, files, _AWAITED, {"SUITE_COLOUR": colour}, title=colour)


PARTS = (
    part("langgraph-checkpoint", ("tests/test_store.py",), "blocking"),
    part("langgraph-checkpoint", ("tests/test_store.py",), "awaiting"),
    part("langgraph-checkpoint-sqlite", ("tests/test_store.py", "tests/test_async_store.py"), "both"),
)

if __name__ == "__main__":
    sys.exit(run_suite(HERE, "store_plugin", PARTS))
