"""`python -m loadtest recall` as a process, on a small file of the same form as LoCoMo's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadtest.recall.locomo import evidence_of, read
from rtmem.loadtest import Report

ROOT = Path(__file__).parents[3]
PLACES = ("Oslo", "Rome", "Lima", "Cairo", "Kyoto")
THINGS = ("violin", "kayak", "telescope", "parrot", "bakery")


def conversation(number: int) -> dict[str, Any]:
    place, thing = PLACES[number], THINGS[number]
    said = ["Hi! How are you?", f"I moved to {place} last week.", "Oh, nice!", f"And I bought a {thing} there.", "Bye!"]
    turns = [
        {"speaker": ("Ann", "Bob")[at % 2], "dia_id": f"D1:{at + 1}", "text": text} for at, text in enumerate(said)
    ]
    turns[3]["blip_caption"] = f"a photo of a {thing}"
    asked = [
        {"question": f"Where did Bob move? To {place}?", "evidence": ["D1:2"], "category": 4},
        {"question": f"Which {thing} did Bob buy?", "evidence": ["D1:2; D1:4"], "category": 1},
        {"question": "Who is it?", "evidence": ["D"], "category": 3},
        {"question": f"When did Ann buy a {thing}?", "evidence": ["D1:4"], "category": 5},
    ]
    talk = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023", "speaker_a": "Ann", "speaker_b": "Bob"}
    return {"sample_id": f"talk-{number}", "conversation": talk, "qa": asked}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([conversation(number) for number in range(len(PLACES))]), "utf-8")
    return path


def test_evidence_that_is_badly_written_is_split_or_dropped(file: Path) -> None:
    known = dict.fromkeys(["D8:6", "D9:17", "D11:26", "D1:1"])
    assert evidence_of(["D8:6; D9:17", "D", "D:11:26", "D99:1", ""], known) == {"D8:6", "D9:17", "D11:26"}
    first = read(file)[0]
    assert [sorted(question.evidence) for question in first.answerable] == [["D1:2"], ["D1:2", "D1:4"]]
    assert (
        first.turns[3].text == "Bob (1:56 pm on 8 May, 2023): And I bought a violin there. [image: a photo of a violin]"
    )
    assert first.turns[3].time_ms == 1_683_554_160_000


def test_a_run_tells_what_was_chosen_on_from_what_was_held_out(file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "recall", "--locomo", str(file), "--seed", "5"]
    command += ["--choose", "--out", str(tmp_path), "--vectors", str(tmp_path / "vectors")]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    report = msgspec.json.decode((tmp_path / "recall.json").read_bytes(), type=Report)
    held_out, chosen_on = report.experiments[:2]
    assert held_out.name == "held out: talk-4"
    assert chosen_on.name == "chosen on: talk-0, talk-1, talk-2, talk-3"
    assert {row.contender for row in held_out.rows} >= {"BM25", "vectors", "RRF k=60", "rtmem", "rtmem store"}
    assert held_out.operations == 2
    ours = chosen_on.row("rtmem")
    assert ours is not None
    assert ours.facts["R@ 5"] == 1.0
    assert any("(defaults)" in row.contender for row in report.experiments[-1].rows)
    assert [verdict.passed for verdict in report.verdicts] == [True] * 6
    assert (tmp_path / "recall.png").stat().st_size > 10_000
    assert list((tmp_path / "vectors").glob("*.npz"))


def test_a_file_that_is_not_there_is_told_with_where_it_can_be_had(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest", "recall", "--locomo", str(tmp_path / "nothing.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "locomo10.json" in done.stdout.replace("\n", "")
