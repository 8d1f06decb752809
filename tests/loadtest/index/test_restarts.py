"""`python -m loadtest index`, small: every kind comes back whole and finds what is near."""

from __future__ import annotations

from rich.console import Console

from loadtest.index.restarts import KINDS, restarts
from rtmem.loadtest.console import progress_bar


def test_every_kind_is_there_after_a_restart_and_finds_what_is_near() -> None:
    with progress_bar(Console(quiet=True)) as bar:
        experiment, version = restarts(KINDS, 300, 7, bar)
    assert version
    assert [row.contender for row in experiment.rows] == list(KINDS)
    for row in experiment.rows:
        assert 0 < row.facts["ms up"] <= row.facts["ms whole"]
        assert row.facts["recall@10"] >= (1.0 if row.contender == "flat" else 0.9)
