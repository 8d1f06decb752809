"""`python -m loadtest`: what it needs before it measures anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

_WITHOUT = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "tiktoken", "langchain", "langgraph.checkpoint.redis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = ["loadtest", *sys.argv[1:]]
runpy.run_module("loadtest", run_name="__main__")
"""
"""As with the extra `all`, which has nothing of the extra `bench`."""


def loadtest(*arguments: str, without_bench: bool = False) -> subprocess.CompletedProcess[str]:
    program = ["-c", _WITHOUT] if without_bench else ["-m", "loadtest"]
    return subprocess.run([sys.executable, *program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [("--help",), ("crash", "--help"), ("checkpoint", "--help")])
def test_help_needs_nothing_of_the_extra_bench(arguments: tuple[str, ...]) -> None:
    done = loadtest(*arguments, without_bench=True)
    assert done.returncode == 0, done.stderr
    assert "usage: python -m loadtest" in done.stdout


@pytest.mark.parametrize("arguments", [("pointers",), ("checkpoint", "--peers", "--quick", "--only", "aput appended")])
def test_a_benchmark_without_its_packages_names_the_extra(arguments: tuple[str, ...], tmp_path: Path) -> None:
    # What is measured at once is there or not at once; a peer's package is asked for when its turn comes.
    done = loadtest(*arguments, "--out", str(tmp_path / "results"), without_bench=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert "the extra bench has it: pip install -e '.[bench]'" in done.stderr


@pytest.mark.parametrize(
    ("name", "known"), [("crash", "prices"), ("checkpoint", "many threads"), ("pointers", "latency")]
)
def test_only_what_there_is_can_be_asked_for(name: str, known: str, tmp_path: Path) -> None:
    done = loadtest(name, "--only", "nosuch", "--out", str(tmp_path / "results"))
    assert done.returncode == 2
    assert "--only: nothing has 'nosuch' in its name: there are " in done.stderr
    assert known in done.stderr
    assert not (tmp_path / "results").exists()
    assert known in " ".join(loadtest(name, "--help").stdout.split())
