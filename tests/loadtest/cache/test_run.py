"""`python -m loadtest cache` as a process: real servers and peers, round trips on the wire, a storm of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from loadtest.cache.storm import ASKING_EACH, CALM, KILLED
from loadtest.cache.wire import TARGETS
from rtmem.loadtest import Report

ROOT = Path(__file__).parents[3]


def test_a_run_measures_every_contender_and_judges_ours(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "cache", "--quick", "--seed", "5", "--out", str(tmp_path)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode in (0, 1), done.stdout + done.stderr  # a busy machine may miss a ratio
    assert "Traceback" not in done.stderr, done.stderr
    report = msgspec.json.decode((tmp_path / "cache.json").read_bytes(), type=Report)
    assert (tmp_path / "cache.png").stat().st_size > 10_000
    for experiment in report.experiments:
        assert all(not row.errors and (row.latency or row.facts) for row in experiment.rows), experiment.name
    experiments = {experiment.name: experiment for experiment in report.experiments}
    peers = {"rtmem", "redisvl", "LangChain RedisSemanticCache"}
    for where in ("a tenant's 100 among 200",):
        for verb in ("exact hit", "by meaning", "vectors known", "update"):
            assert {row.contender for row in experiments[f"{verb}, {where}"].rows} >= peers

    judged = {verdict.what: verdict for verdict in report.verdicts}
    for name in TARGETS:
        assert judged[f"round trips: {name}"].passed, name
    assert judged["exact hit, a tenant's 100 among 200: rtmem / raw GET"].target == 1.2
    assert judged["by meaning, a tenant's 100 among 200: a miss / a hit"].measured is not None
    # Whoever is killed takes the questions of its process along. A process that gets no time for as long as a lease may
    # lose it; no process computes twice at once.
    for name, answers in ((CALM, 2 * ASKING_EACH), (KILLED, ASKING_EACH)):
        row = experiments["storm"].row(f"rtmem: {name}")
        assert row is not None
        assert 1 <= row.facts["different answers"] <= row.facts["model calls"] <= 2
        assert row.facts["answers"] == answers
