"""Running some of LangGraph's own tests with something of rtmem's attached by a plugin of pytest.

The tests are downloaded once, as source distributions (tests/checkpoint/langgraph_suite/download.py). What cannot pass
stands in `expected.toml` beside the plugin, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from loadtest.servers import redis_server
from tests.checkpoint.langgraph_suite.download import CACHE, SuiteError, unpacked_tests

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Part:
    """Some of LangGraph's tests, and how pytest is to run them."""

    package: str
    files: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    title: str = ""  # of several runs of one package


def run_suite(folder: Path, plugin: str, parts: Sequence[Part]) -> int:
    """Run all parts on one embedded server, and print what happened.

    Returns:
        0: exactly the tests of `expected.toml` failed. 1: something else. 2: the tests could not be run.
    """
    expected = tomllib.loads((folder / "expected.toml").read_text("utf-8"))
    fine = True
    try:
        with redis_server() as server:
            for part in parts:
                outcomes = _run(folder, plugin, part, server.url)
                fine &= _report(part, outcomes, expected.get(part.package, {}))
    except SuiteError as exc:
        print(f"LangGraph's tests could not be run: {exc}", file=sys.stderr)
        return 2
    return 0 if fine else 1


def _run(folder: Path, plugin: str, part: Part, url: str) -> dict[str, str]:
    """What became of each test: id -> '' if it passed, or what went wrong."""
    suite = unpacked_tests(CACHE, part.package)
    path = os.pathsep.join(filter(None, [str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environ = {**os.environ, "PYTHONPATH": path, "SUITE_REDIS_URL": url, **part.environ}
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = Path(scratch) / "outcomes.xml"
        command = [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", plugin, "-p", "no:cacheprovider", "-q"]
        command += ["--timeout=120", f"--junit-xml={outcomes}", "-o", "junit_family=xunit1", *part.arguments]
        done = subprocess.run([*command, *part.files], cwd=suite, env=environ, check=False)
        if done.returncode not in (0, 1):
            raise SuiteError(f"pytest ended with code {done.returncode} in {suite}")
        return dict(_outcomes(outcomes))


def _outcomes(path: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(path).iter("testcase"):
        problem = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        name = f"{case.attrib['file']}::{case.attrib['name']}"
        yield name, "" if problem is None else f"{problem.tag}: {problem.attrib.get('message', '')[:300]}"


def _report(part: Part, outcomes: dict[str, str], expected: dict[str, str]) -> bool:
    """Print what happened; True if exactly the expected tests failed."""
    failed = {name: problem for name, problem in outcomes.items() if problem}
    what = ", ".join(filter(None, (f"{part.package} {version(part.package)}", part.title)))
    print(f"\n{what}: {len(outcomes) - len(failed)} of {len(outcomes)} passed")
    for name, problem in failed.items():
        print(f"  {'expected  ' if name in expected else 'UNEXPECTED'} {name}: {expected.get(name, problem)}")
    for name in expected.keys() - failed.keys():
        print(f"  NOW PASSES {name}: take it out of expected.toml")
    return failed.keys() == expected.keys() and bool(outcomes)
