"""`rtmem cache calibrate`: a table, a picture, a line for the settings, and errors that say what to do."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rtmem.cli.cache.calibration_report import Calibration
from tests.cli.commands import environment
from tests.cli.test_memory import Done, Shell
from tests.embedding.embedding_server import serving


class Calibrate(Shell):
    def __call__(self, *arguments: str | Path, **variables: str) -> Done:
        return self.rtmem("cache", "calibrate", *arguments, **variables)


@pytest.fixture
def calibrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Calibrate]:
    """A user whose embedder is a small server; no Redis anywhere."""
    with serving() as server:
        variables = environment(
            tmp_path,
            RTMEM_REDIS__URL="redis://127.0.0.1:1/0",
            RTMEM_EMBEDDING__MODEL="remote:tiny",
            RTMEM_EMBEDDING__BASE_URL=server.url,
            RTMEM_EMBEDDING__DIMS="3",
        )
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        yield Calibrate(monkeypatch, capsys)


def near(place: int) -> str:
    """A question; what follows it moves its vector a little, and the guard knows that it changes nothing."""
    return f"{'a' * (10 + place % 7)}{' zzzz' * (1 + place // 7)}"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """The embedder counts characters and how many are a or b: numbers are the same to it, others are far away."""
    rows = ["kind,first,second"]
    rows += [f"paraphrase,{near(place)},{near(place)}!!!!" for place in range(120)]
    rows += [f"number,{near(place)} 5,{near(place)} 6" for place in range(40)]
    rows += [f"unrelated,{'a' * place},{'b' * place}" for place in range(1, 81)]
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


def test_the_guard_keeps_numbers_apart_that_no_distance_can(calibrate: Calibrate, pairs: Path) -> None:
    done = calibrate(pairs)
    assert done.returncode == 0, done.stderr
    line = done.stdout[done.stdout.index("[cache.thresholds]") :]
    ((name, threshold),) = tomllib.loads(line)["cache"]["thresholds"].items()
    assert name == "remote:tiny"
    assert 0 < threshold < 0.9
    assert "with the guard: 120 paraphrases, 120 others" in done.stderr
    for text in ("what a threshold does", "by kind", "unrelated", "near enough, but refused by the guard", "number"):
        assert text in done.stdout
    made = json.loads((pairs.parent / "calibration.json").read_text())
    assert (made["choice"]["point"]["hits"], made["choice"]["point"]["false_hits"]) == (120, 0)
    assert {row["kind"]: row["hits"] for row in made["kinds"]} == {"paraphrase": 120, "number": 0, "unrelated": 0}
    assert made["reasons"] == [{"reason": "number", "rightly": 40, "wrongly": 0}]
    assert (pairs.parent / "calibration.png").stat().st_size > 10_000
    assert done.stdout.count("% of") == 3  # every column says of what; a narrow window breaks the headings
    assert "do not prove it" in done.stderr  # 120 hits: at least .978


def test_without_the_guard_there_is_no_such_threshold_and_what_was_found_is_shown_all_the_same(
    calibrate: Calibrate, pairs: Path, tmp_path: Path
) -> None:
    done = calibrate(pairs, "--no-guard", "--out", tmp_path / "bare")
    assert done.returncode == 1
    assert "no threshold reaches a precision of 0.99" in done.stderr
    assert "what a threshold does" in done.stdout
    assert "[cache.thresholds]" not in done.stdout
    assert not (tmp_path / "bare").exists()
    made = json.loads(calibrate(pairs, "--no-guard", "--json").stdout)
    assert made["choice"] is None
    assert "no threshold" in made["failure"]
    assert not [*tmp_path.glob("calibration.*")]


def test_a_threshold_between_two_pairs_is_told_as_such(calibrate: Calibrate, pairs: Path) -> None:
    done = calibrate(pairs, "--no-guard", "--precision", "0.7", "--no-picture")
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    ((threshold, last, following),) = re.findall(
        r"([\d.]+) for a precision.* pair that hits, at ([\d.]+), and the next, at ([\d.]+)\)", told
    )
    assert float(last) < float(threshold) < float(following)


def test_a_public_set_and_a_lower_goal_work_too(calibrate: Calibrate, tmp_path: Path) -> None:
    rows = ["question1\tquestion2\tis_duplicate"]
    rows += [f"{near(place)}\t{near(place)}!!\t1" for place in range(50)]
    rows += [f"{'a' * place}\t{'b' * place}\t0" for place in range(1, 51)]
    (tmp_path / "questions.tsv").write_text("\n".join(rows), "utf-8")
    done = calibrate("questions.tsv", "--precision", "0.9", "--no-picture", "--pairs-max", "90", "--json")
    assert done.returncode == 0, done.stderr
    assert "90 of 100 pairs, drawn at random" in done.stderr
    made = json.loads(done.stdout)
    assert made == json.loads((tmp_path / "calibration.json").read_text())
    assert not (tmp_path / "calibration.png").exists()
    assert set(made) == set(Calibration.__struct_fields__)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("pairs.csv", "--precision", "0.9", "--false-hits", "0.1"), 2, "are two goals: give one"),
        (("pairs.csv", "--precision", "1"), 1, "no number of pairs can show that"),
        (("pairs.csv", "--false-hits", "0.001"), 1, "takes at least 1,000 pairs that are no paraphrases"),
        (("nothing.csv",), 2, "nothing.csv: No such file"),
        ((".",), 2, "Is a directory"),
        (("bad.csv",), 2, "bad.csv, line 3: the kind 'paraphrse': expected did you mean paraphrase?"),
        (("latin.csv",), 2, "not UTF-8: write it again as UTF-8"),
        (("empty.csv",), 2, "has a header and no pairs"),
        (("pairs.csv", "--model", "nosuch"), 2, "write local, multilingual or remote:NAME"),
    ],
)
def test_what_cannot_work_is_told_with_the_next_step(
    arguments: tuple[str, ...], code: int, told: str, calibrate: Calibrate, pairs: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.csv").write_text("kind,first,second\nname,a,b\nparaphrse,a,b\n")
    (tmp_path / "latin.csv").write_bytes("kind,first,second\nname,é,b\n".encode("latin-1"))
    (tmp_path / "empty.csv").write_text("kind,first,second\n")
    done = calibrate(*arguments)
    assert done.returncode == code
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_picture_that_cannot_be_drawn_is_told_before_the_work(calibrate: Calibrate, pairs: Path) -> None:
    with calibrate.patch.context() as patch:
        patch.setattr("rtmem.cli.cache.picture.find_spec", lambda _name: None)
        done = calibrate(pairs)
    assert done.returncode == 2
    assert "pip install 'rtmem[loadtest]', or leave it out with --no-picture" in done.stderr
    assert not (pairs.parent / "calibration.json").exists()
