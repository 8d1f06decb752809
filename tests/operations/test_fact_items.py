"""Ids, canonical forms and index tags of facts: the same for what is the same, and for nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtmem.errors import InvalidRequestError
from rtmem.operations.fact_items import ID, canonical, id_of, index_tag, moment_ms, scalar_text, tag_of
from rtmem.records import Fact

ANN = ("user", "ann")

WRITTEN = ["mf_spafr26adoa7tj2ge3l5ajcyfk", "mf_s6sfczgevkzoih7binpqdjdyih", "mf_a5fqgy37haeebyg55xfw4hiw2v"]


def said(text: str = "x", **parts: Any) -> Fact:
    return Fact(id="", text=text, **parts)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ann lives  in\nRome", " ann LIVES in rome "),
        ("ﬁne ①", "FINE 1"),
        ("Stra\u00dfe", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("ＡＮＮ\u3000x", "ann x"),
        ("ЖИВЁТ", "живёт"),
        ("\u2126", "\u03c9"),
    ],
)
def test_texts_that_only_look_different_are_the_same(one: str, other: str) -> None:
    assert canonical(one) == canonical(other)
    assert id_of(ANN, said(one)) == id_of(ANN, said(other))
    assert tag_of(one) == tag_of(other)


@settings(deadline=None)
@given(st.text())
def test_a_canonical_form_is_its_own_canonical_form(text: str) -> None:
    assert canonical(canonical(text)) == canonical(text)


def test_ids_of_different_facts_differ_whatever_their_parts_are_made_of() -> None:
    parts = ["a", "b", "a/b", "a:b", "/", "", "%2F", "text", "spo", "sa", "1", "a b"]
    facts = [
        ((kind, name), said(text or "-")) for kind in ("user", "team") for name in parts for text in ("a", "b", "/")
    ]
    facts += [
        (ANN, said("t", subject=one, predicate=two, object=three))
        for one in parts
        for two in parts[:5]
        for three in (*parts[:5], 1, True, 0, False, 1.5)
    ]
    facts += [(ANN, said("a", key=part)) for part in parts if part]
    facts += [(ANN, said("a", kind=kind)) for kind in ("episodic", "procedural", "preference")]
    ids = [id_of(owner, fact) for owner, fact in facts]
    assert len(set(ids)) == len(ids)
    assert all(ID.fullmatch(fact_id) for fact_id in ids)


def test_an_id_is_written_down_and_never_changes() -> None:
    """What is stored under it would be lost."""
    assert id_of(ANN, said("Ann lives in Rome.")) == WRITTEN[0]
    assert id_of(ANN, said("x", subject="Ann", predicate="has", object=3)) == WRITTEN[1]
    assert id_of(("team", "crew"), said("x", key="boat")) == WRITTEN[2]


def test_scalars_are_told_apart_by_type_and_value() -> None:
    values = ["1", 1, 1.5, True, "True", "true ", 0, False, "", -1, 2**70, "b1"]
    forms = [scalar_text(value) for value in values]
    assert {one for one, other in combinations(values, 2) if scalar_text(one) == scalar_text(other)} == {"True"}
    assert len(set(forms)) == len(values) - 1
    assert scalar_text(1) == scalar_text(1.0)
    for wrong in (float("nan"), float("inf"), None, [1], b"x", 2**2000):
        with pytest.raises(InvalidRequestError):
            scalar_text(wrong)  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.text(), st.text())
def test_tags_of_the_index_are_plain_letters_and_meet_by_equality_only(one: str, other: str) -> None:
    tag = index_tag("subject", one)
    assert len(tag) == 16
    assert tag.isascii()
    assert tag.isalnum()
    assert (index_tag("subject", other) == tag) == (one == other)
    assert index_tag("predicate", one) != tag


def test_times_are_moments() -> None:
    moment = datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert (
        moment_ms(moment, "x") == moment_ms(moment.astimezone(timezone(timedelta(hours=9))), "x") == 1_714_564_800_000
    )
    assert moment_ms(datetime(1, 1, 1, tzinfo=UTC), "x") == -62_135_596_800_000
    assert moment_ms(0, "x") == 0
    assert moment_ms(None, "x") is None
    for wrong in (moment.replace(tzinfo=None), 1.0, "2024", True, 10**18, -(10**18)):
        with pytest.raises(InvalidRequestError, match="valid_from"):
            moment_ms(wrong, "valid_from")  # type: ignore[arg-type]
