"""Run LangGraph's own tests of caches with NodeCache in the place of RedisCache and InMemoryCache.

    python tests/cache/langgraph_suite

The tests are those of the source distributions of langgraph-checkpoint (tests/test_redis_cache.py) and langgraph (all
whose fixture is a cache, and tests/test_delta_channel_node_cache.py), downloaded once.

Exit code 0: exactly the tests of expected.toml failed. 1: something else. 2: the tests could not be run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT))

from tests.checkpoint.langgraph_suite.download import CACHE, SuiteError, unpacked_tests  # noqa: E402


@dataclass(frozen=True)
class Part:
    """Some of LangGraph's tests."""

    package: str
    files: tuple[str, ...]
    arguments: tuple[str, ...]


PARTS = (
    Part("langgraph-checkpoint", ("tests/test_redis_cache.py",), ("-o", "asyncio_mode=auto")),
    Part(
        "langgraph",
        ("tests/test_pregel.py", "tests/test_pregel_async.py", "tests/test_delta_channel_node_cache.py"),
        # By the parameter of their fixture; savers are not what is tested here.
        ("-k", "(cache and memory and not sqlite and not postgres) or test_delta_channel_node_cache"),
    ),
)


@contextmanager
def redis_url() -> Iterator[str]:
    """An embedded server that is ours to flush."""
    from loadtest.servers import redis_server

    with redis_server() as server:
        yield server.url


def run(part: Part, url: str) -> dict[str, str]:
    """What became of each test: id -> '' if it passed, or what went wrong."""
    suite = unpacked_tests(CACHE, part.package)
    path = os.pathsep.join(filter(None, [str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environ = os.environ | {"PYTHONPATH": path, "SUITE_REDIS_URL": url, "NO_DOCKER": "true"}
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = Path(scratch) / "outcomes.xml"
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "cache_plugin", "-p", "no:cacheprovider"]
        # Without rewritten assertions: there are ten thousand lines of tests to choose from.
        command += [
            "-q",
            "--assert=plain",
            "--tb=native",
            "--timeout=120",
            f"--junit-xml={outcomes}",
            "-o",
            "junit_family=xunit1",
        ]
        done = subprocess.run([*command, *part.arguments, *part.files], cwd=suite, env=environ, check=False)
        if done.returncode not in (0, 1):
            raise SuiteError(f"pytest ended with code {done.returncode} in {suite}")
        return dict(_outcomes(outcomes))


def _outcomes(path: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(path).iter("testcase"):
        problem = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        name = f"{case.attrib['file']}::{case.attrib['name']}"
        yield name, "" if problem is None else f"{problem.tag}: {problem.attrib.get('message', '')[:300]}"


def main() -> int:
    expected = tomllib.loads((HERE / "expected.toml").read_text("utf-8"))
    fine = True
    try:
        with redis_url() as url:
            for part in PARTS:
                fine &= report(part, run(part, url), expected.get(part.package, {}))
    except SuiteError as exc:
        print(f"LangGraph's tests could not be run: {exc}", file=sys.stderr)
        return 2
    return 0 if fine else 1


def report(part: Part, outcomes: dict[str, str], expected: dict[str, str]) -> bool:
    """Print what happened; True if exactly the expected tests failed."""
    failed = {name: problem for name, problem in outcomes.items() if problem}
    print(f"\n{part.package} {version(part.package)}: {len(outcomes) - len(failed)} of {len(outcomes)} passed")
    for name, problem in failed.items():
        print(f"  {'expected  ' if name in expected else 'UNEXPECTED'} {name}: {expected.get(name, problem)}")
    for name in expected.keys() - failed.keys():
        print(f"  NOW PASSES {name}: take it out of expected.toml")
    return failed.keys() == expected.keys() and bool(outcomes)


if __name__ == "__main__":
    sys.exit(main())
