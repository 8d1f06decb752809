"""`python -m loadtest memory` as a process: real servers, a report that reads back, a picture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from loadtest.memory.growth import INDEX, LARGE, SMALL, WAYS
from loadtest.memory.wire import TARGETS
from rtmem.loadtest import Report

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(300)
def test_a_run_measures_every_contender_and_judges_ours(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "memory", "--quick", "--seed", "5", "--out", str(tmp_path)]
    command += ["--items", "800", "--only", "put one,search filter,hybrid,wire,growth"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "repeat with --seed 5" in done.stdout
    report = msgspec.json.decode((tmp_path / "memory.json").read_bytes(), type=Report)
    assert (report.seed, report.notes) == (5, [])
    assert report.versions["redis-server"]
    assert (tmp_path / "memory.png").stat().st_size > 10_000

    experiments = {experiment.name: experiment for experiment in report.experiments}
    assert {row.contender for row in experiments["put, one item"].rows} == {
        "raw",
        "raw+serde",
        "rtmem",
        "InMemoryStore",
    }
    for experiment in report.experiments:
        assert all(not row.errors and (row.latency or row.facts) for row in experiment.rows), experiment.name

    index = experiments[INDEX]
    assert [row.contender for row in index.rows] == [
        "flat, 200 items",
        "flat, 800 items",
        "hnsw, 200 items",
        "hnsw, 800 items",
    ]
    for row in index.rows:
        # A flat index finds everything; so does a graph with fewer items than it looks at.
        assert row.facts[SMALL] == 1
        assert row.facts[LARGE] >= 0.95
        assert row.facts["B an item"] > 2 * 4 * 384  # a vector in its hash, and one in the index
        assert row.facts["build s"] > 0
    assert len(experiments[WAYS].rows) == 7

    judged = {verdict.what: verdict for verdict in report.verdicts}
    for name in TARGETS:
        assert judged[f"round trips: {name}"].passed, name
    assert judged["put, one item, c=1: rtmem / raw"].target == 1.3
