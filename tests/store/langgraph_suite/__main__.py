"""Run LangGraph's own tests of stores with rtmem's in the place of InMemoryStore and SqliteStore.

    python tests/store/langgraph_suite

The tests are those of the source distributions of langgraph-checkpoint (tests/test_store.py, once for each colour) and
langgraph-checkpoint-sqlite (tests/test_store.py and tests/test_async_store.py), downloaded once. Not tests/test_ttl.py:
it counts what a sweeper deletes, and Redis needs none.

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
    """Some files of LangGraph's tests, and which of our stores they get."""

    package: str
    files: tuple[str, ...]
    colour: str


PARTS = (
    Part("langgraph-checkpoint", ("tests/test_store.py",), "blocking"),
    Part("langgraph-checkpoint", ("tests/test_store.py",), "awaiting"),
    Part("langgraph-checkpoint-sqlite", ("tests/test_store.py", "tests/test_async_store.py"), "both"),
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
    environ = os.environ | {"PYTHONPATH": path, "SUITE_REDIS_URL": url, "SUITE_COLOUR": part.colour}
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = Path(scratch) / "outcomes.xml"
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "store_plugin", "-p", "no:cacheprovider"]
        command += ["-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "-q", "--tb=short"]
        command += ["--timeout=120", f"--junit-xml={outcomes}", "-o", "junit_family=xunit1", *part.files]
        done = subprocess.run(command, cwd=suite, env=environ, check=False)
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
    what = f"{part.package} {version(part.package)}, {part.colour}"
    print(f"\n{what}: {len(outcomes) - len(failed)} of {len(outcomes)} passed")
    for name, problem in failed.items():
        print(f"  {'expected  ' if name in expected else 'UNEXPECTED'} {name}: {expected.get(name, problem)}")
    for name in expected.keys() - failed.keys():
        print(f"  NOW PASSES {name}: take it out of expected.toml")
    return failed.keys() == expected.keys() and bool(outcomes)


if __name__ == "__main__":
    sys.exit(main())
