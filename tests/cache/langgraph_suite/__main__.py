"""Run LangGraph's own tests of caches with NodeCache in the place of RedisCache and InMemoryCache.

    python tests/cache/langgraph_suite

The tests are those of the source distributions of langgraph-checkpoint (tests/test_redis_cache.py) and langgraph (all
whose fixture is a cache, and tests/test_delta_channel_node_cache.py), downloaded once.

Exit code 0: exactly the tests of expected.toml failed. 1: something else. 2: the tests could not be run.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.langgraph_suites import Part, run_suite  # noqa: E402

# Without rewritten assertions: there are ten thousand lines of tests to choose from.
_QUICK = ("--assert=plain", "--tb=native")
_ALONE = {"NO_DOCKER": "true"}

PARTS = (
    Part("langgraph-checkpoint", ("tests/test_redis_cache.py",), (*_QUICK, "-o", "asyncio_mode=auto"), environ=_ALONE),
    Part(
        "langgraph",
        ("tests/test_pregel.py", "tests/test_pregel_async.py", "tests/test_delta_channel_node_cache.py"),
        # By the parameter of their fixture; savers are not what is tested here.
        (*_QUICK, "-k", "(cache and memory and not sqlite and not postgres) or test_delta_channel_node_cache"),
        environ=_ALONE,
    ),
)

if __name__ == "__main__":
    sys.exit(run_suite(HERE, "cache_plugin", PARTS))
