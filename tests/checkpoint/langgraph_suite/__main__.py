"""Run LangGraph's own test suite with one of rtmem's savers in the place of SQLite.

    python tests/checkpoint/langgraph_suite --saver full
    python tests/checkpoint/langgraph_suite --saver shallow --filter "test_pregel.py and interrupt"
    python tests/checkpoint/langgraph_suite --saver full --offload-bytes-min 64  # nearly everything lies at pointers

Downloads the source distribution of the installed LangGraph once (its `tests/` are not in the wheel), unpacks the tests
beside the *installed* package, runs them against an embedded Redis and compares what failed with what is expected:
nothing for the full saver, `expected_shallow.toml` for the shallow one. What fails unexpectedly is run with SQLite in
place: a test that LangGraph's own saver fails too, with the libraries installed here, says nothing about ours. What is
left is run again alone, because some of LangGraph's tests depend on timing. Both kinds are named.

Exit code 0: exactly the expected tests failed. 1: something else. 2: the suite could not be run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from download import CACHE, SuiteError, unpacked_tests

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PACKAGE = "langgraph"
SELECTED = "((sqlite and not sqlite_aes) or sqlite_aio)"
SAVERS = ("full", "shallow", "sqlite", "langgraph-checkpoint-redis")
RERUNS_MAX = 3


@dataclass
class Outcome:
    """What happened to every selected test: id -> reason."""

    passed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return len(self.passed) + len(self.failed)


@contextmanager
def redis_server(saver: str) -> Iterator[str]:
    """URL of an embedded server that is ours to flush; empty for a saver that needs none."""
    if saver == "sqlite":
        yield ""
        return
    sys.path.insert(0, str(ROOT))
    from loadtest.servers import redis_server as start

    with start() as server:
        yield server.url


def run(
    suite: Path, saver: str, redis_url: str, arguments: list[str], *, offload_bytes_min: int = 0, quiet: bool = False
) -> Outcome:
    """Run pytest on `suite` with `saver` attached; `arguments` choose the tests."""
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = Path(scratch) / "outcomes.jsonl"
        outcomes.touch()
        path = os.pathsep.join(filter(None, [str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")]))
        environ = os.environ | {
            "PYTHONPATH": path,
            "NO_DOCKER": "true",  # their switch: without servers for Postgres and Redis
            "SUITE_SAVER": saver,
            "SUITE_REDIS_URL": redis_url,
            "SUITE_OUTCOMES": str(outcomes),
            "SUITE_OFFLOAD_BYTES_MIN": str(offload_bytes_min),
        }
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "saver_plugin", "-p", "no:cacheprovider"]
        # Native: every other style parses the whole test file, ten thousand lines, for every frame of every failure.
        command += ["-q", "--tb=native", "--timeout=120", *arguments]
        done = subprocess.run(command, cwd=suite, env=environ, capture_output=quiet, text=True, check=False)
        result = read(outcomes)
        # 0 and 1 are "ran, and this many failed"; anything else (collection error, nothing selected) is not a result.
        if done.returncode not in (0, 1) or not (result.total or result.skipped):
            raise SuiteError(f"pytest ended with code {done.returncode}: {(done.stdout or '')[-2000:]}")
        return result


def again(suite: Path, saver: str, redis_url: str, tests: set[str], offload_bytes_min: int = 0) -> Outcome:
    """Run some tests once more, and only these."""
    if not tests:
        return Outcome()
    return run(suite, saver, redis_url, sorted(tests), offload_bytes_min=offload_bytes_min, quiet=True)


def read(outcomes: Path) -> Outcome:
    """Outcomes as the plugin wrote them; a failed phase outweighs a passed one."""
    result = Outcome()
    for line in outcomes.read_text("utf-8").splitlines():
        entry = json.loads(line)
        if entry["outcome"] == "failed":
            result.failed[entry["test"]] = f"{entry['phase']}: {entry['reason']}"
        elif entry["outcome"] == "skipped":
            result.skipped[entry["test"]] = entry["reason"]
        else:
            result.passed.add(entry["test"])
    result.passed -= result.failed.keys()
    return result


def expected_failures(saver: str) -> dict[str, str]:
    """Test id -> why this saver cannot pass it."""
    path = HERE / f"expected_{saver}.toml"
    if not path.is_file():
        return {}
    groups = tomllib.loads(path.read_text("utf-8"))
    return {test: group["reason"] for group in groups.values() for test in group["tests"]}


def report(saver: str, result: Outcome, environment: set[str], timing: set[str], *, whole: bool) -> bool:
    """Print what happened; True if exactly the expected tests failed."""
    expected = expected_failures(saver)
    ours = {test: why for test, why in result.failed.items() if test not in environment}
    surprises = {test: why for test, why in ours.items() if test not in expected}
    cured = [test for test in expected if test in result.passed]
    missing = [test for test in expected if whole and test not in ours and test not in result.passed]
    print(f"\n{PACKAGE} {version(PACKAGE)}, saver {saver}: {len(result.passed)} of {result.total} passed")
    for test in sorted(timing):
        print(f"  timing       {test}: failed, and passed when run again alone")
    for test in sorted(environment):
        print(f"  environment  {test}: SQLite fails it too with the libraries installed here")
    for reason, count in Counter(expected[test] for test in ours if test in expected).most_common():
        print(f"  expected     {count} tests: {reason}")
    for test, why in sorted(surprises.items()):
        print(f"  UNEXPECTED   {test}: {why.splitlines()[0] if why else ''}")
    for test in cured:
        print(f"  NOW PASSES   {test}: take it out of expected_{saver}.toml")
    for test in missing:
        print(f"  NOT RUN      {test}: no such test in this LangGraph; take it out of expected_{saver}.toml")
    return not (surprises or cured or missing)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saver", choices=SAVERS, default="full")
    parser.add_argument("--filter", default="", help='pytest -k expression on top, for instance "test_pregel.py"')
    parser.add_argument("--offload-bytes-min", type=int, default=0, help="option of the saver; 0: nothing is moved out")
    parser.add_argument("--json", type=Path, help="write every outcome here")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the download is kept")
    given = parser.parse_args()

    selection = f"{SELECTED} and ({given.filter})" if given.filter else SELECTED
    try:
        suite = unpacked_tests(given.cache, PACKAGE)
        with redis_server(given.saver) as url:
            least = given.offload_bytes_min
            result = run(suite, given.saver, url, ["tests", "-k", selection], offload_bytes_min=least)
            suspects = result.failed.keys() - expected_failures(given.saver).keys()
            environment = set(again(suite, "sqlite", "", suspects).failed)
            timing: set[str] = set()
            for _ in range(RERUNS_MAX):
                timing |= again(suite, given.saver, url, suspects - environment - timing, least).passed
    except SuiteError as exc:
        print(f"suite could not be run: {exc}", file=sys.stderr)
        return 2
    for test in timing:
        result.passed.add(test)
        del result.failed[test]
    fine = report(given.saver, result, environment, timing, whole=not given.filter)
    if given.json:
        summary = {"passed": sorted(result.passed), "failed": result.failed, "skipped": result.skipped}
        given.json.write_text(json.dumps(summary | {"environment": sorted(environment)}, indent=1), "utf-8")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
