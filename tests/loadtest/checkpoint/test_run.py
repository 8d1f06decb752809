"""`python -m loadtest checkpoint` as a process: real servers, a report that reads back, a picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from rtmem.loadtest import Report

ROOT = Path(__file__).parents[3]


def run(*arguments: str, out: Path) -> tuple[str, Report]:
    command = [sys.executable, "-m", "loadtest", "checkpoint", "--quick", "--seed", "5", "--out", str(out), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, msgspec.json.decode((out / "checkpoint.json").read_bytes(), type=Report)


@pytest.mark.timeout(300)
def test_a_run_measures_every_contender_and_judges_ours(tmp_path: Path) -> None:
    printed, report = run("--only", "aput whole 50 KB", out=tmp_path)

    (experiment,) = report.experiments
    assert {row.contender for row in experiment.rows} == {
        "floor",
        "floor+serde",
        "rtmem full",
        "rtmem shallow",
        "memory",
    }
    assert all(row.latency and not row.errors for row in experiment.rows)
    assert [verdict.target for verdict in report.verdicts] == [1.3, 1.3]
    assert report.seed == 5
    assert report.versions["redis-server"]
    assert "repeat with --seed 5" in printed
    assert (tmp_path / "checkpoint.png").stat().st_size > 10_000


@pytest.mark.timeout(300)
def test_the_wire_and_growth_are_the_same_in_every_run(tmp_path: Path) -> None:
    _, report = run("--only", "wire,growth", out=tmp_path)

    facts = {
        (experiment.name.split(",")[0].split(" (")[0], row.contender): row.facts
        for experiment in report.experiments
        for row in experiment.rows
        if row.facts
    }
    full = facts["on the wire", "rtmem full"]
    assert (full["put RT"], full["put_writes RT"], full["get RT"], full["held get RT"]) == (1, 1, 1, 1)
    assert full["delta RT"] <= 2
    assert facts["growth", "rtmem full"]["bytes"] < 500_000
    assert facts["growth", "rtmem shallow"]["bytes"] < 100_000
