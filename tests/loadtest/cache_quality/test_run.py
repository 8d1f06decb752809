"""`python -m loadtest cache-quality` as a process: real servers, real classes, and no held-out text on the screen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from loadtest.cache_quality.redisvl_cache import DEFAULT_DISTANCE
from loadtest.cache_quality.sets import LANGUAGES, own
from loadtest.cache_quality.tables import AT_OUR_HITS, GUARD_OFF, OURS, THEIRS
from rtmem.loadtest import Report
from rtmem.operations.labelled_pairs import HARD, PARAPHRASE, UNRELATED

ROOT = Path(__file__).parents[3]


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loadtest", "cache-quality", "--quick", "--seed", "5", *arguments]
    command += ["--out", str(tmp_path), "--vectors", str(tmp_path / "vectors")]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)


def test_a_run_compares_ours_with_redisvl_on_own_and_public_pairs(tmp_path: Path) -> None:
    rows = ["question1\tquestion2\tis_duplicate"]
    rows += [f"What is the capital of land {n}?\tWhat's the capital of land {n}?\t1" for n in range(8)]
    rows += [f"What is the capital of land {n}?\tHow do I bake {n} loaves?\t0" for n in range(8)]
    (tmp_path / "public.tsv").write_text("\n".join(rows), "utf-8")
    done = run(tmp_path, "--pairs", str(tmp_path / "public.tsv"), "--show-errors", "dev")
    assert done.returncode in (0, 1), done.stdout + done.stderr  # so few pairs may miss a target
    report = msgspec.json.decode((tmp_path / "cache-quality.json").read_bytes(), type=Report)
    tables = {experiment.name: experiment for experiment in report.experiments}
    for name in ("held out: en", "held out: ru", "dev: en", "dev: ru"):
        ours, bare, theirs = (tables[name].row(f"local: {who}") for who in (OURS, GUARD_OFF, THEIRS))
        assert ours is not None
        assert bare is not None
        assert theirs is not None
        # At one threshold the guard only takes away.
        assert ours.facts["hits"] <= bare.facts["hits"]
        assert ours.facts["false hits"] <= bare.facts["false hits"]
        assert theirs.facts["threshold"] == DEFAULT_DISTANCE
        if bare.facts["threshold"] == DEFAULT_DISTANCE:
            assert bare.facts == theirs.facts  # redisvl's class answers as its distance says
        assert tables[name].row(f"local: {AT_OUR_HITS}") is not None
    public = tables["public: public.tsv"].row(f"local: {OURS}")
    assert public is not None
    assert (public.facts["hits"], public.facts["false hits"]) == (1, 0)
    assert "hard" not in public.facts
    agreed = {verdict.what: verdict for verdict in report.verdicts}["pairs of which rtmem.cache and the curve disagree"]
    assert agreed.passed
    assert (tmp_path / "cache-quality.png").stat().st_size > 10_000
    printed = " ".join(done.stdout.split())
    for language in LANGUAGES:
        for pair in own(language, "held_out", 0, 0).pairs:
            assert repr(pair.first) not in printed
            assert repr(pair.second) not in printed


def test_our_pairs_are_as_many_of_each_kind_as_was_promised_and_no_pair_is_in_both_halves() -> None:
    for language in LANGUAGES:
        dev, held_out = own(language, "dev", 0, 0).pairs, own(language, "held_out", 0, 0).pairs
        for kind, least in ((PARAPHRASE, 400), (UNRELATED, 400), *((kind, 45) for kind in HARD)):
            found = [sum(pair.kind == kind for pair in half) for half in (dev, held_out)]
            assert sum(found) >= least, (language, kind)
            assert abs(found[0] - found[1]) <= 1, (language, kind)
        assert sum(pair.kind in HARD for pair in dev + held_out) >= 420
        assert not set(dev) & set(held_out)


def test_a_file_that_cannot_be_read_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("kind,first,second\nname,a\n")
    done = run(tmp_path, "--pairs", str(tmp_path / "bad.csv"))
    assert done.returncode == 2
    assert "line 2: 2 cells" in " ".join(done.stdout.split())
