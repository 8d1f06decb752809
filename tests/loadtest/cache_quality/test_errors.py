"""Pairs that go wrong are shown of the part that was asked for, each with what went wrong."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from loadtest.cache_quality.errors import SHOWN, show_errors
from loadtest.cache_quality.looked import Looked
from loadtest.cache_quality.sets import PairSet, Part
from rtmem.operations.calibration import Compared
from rtmem.operations.labelled_pairs import DIFFERENT, PARAPHRASE, LabelledPair

COMPARED = {
    "hits": Compared(PARAPHRASE, 0.01),
    "refused": Compared(PARAPHRASE, 0.02, "content"),
    "far": Compared(PARAPHRASE, 0.3, "content"),
    "wrong [it]": Compared(DIFFERENT, 0.03),
    "caught": Compared(DIFFERENT, 0.04, "name"),
}


def seen(part: Part, name: str) -> Looked:
    pairs = [LabelledPair(each.kind, text, f"{text} {name}") for text, each in COMPARED.items()]
    return Looked("local", PairSet(name, part, pairs), list(COMPARED.values()), 0.1)


def test_false_hits_and_refused_paraphrases_are_shown_of_one_part_alone() -> None:
    said = StringIO()
    show_errors([seen("dev", "en"), seen("public", "qqp.tsv")], "public", Console(file=said, width=200))
    assert said.getvalue().splitlines() == [
        "public qqp.tsv, local, paraphrase, refused: content, 0.020: 'refused' / 'refused qqp.tsv'",
        "public qqp.tsv, local, different, false hit, 0.030: 'wrong [it]' / 'wrong [it] qqp.tsv'",
    ]


def test_what_is_held_out_cannot_be_asked_for() -> None:
    assert "held_out" not in SHOWN
