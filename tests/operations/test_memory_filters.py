"""What an index is told about a value."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rtmem.operations.memory_filters import as_number, equality_tag, told_of


@given(st.text(max_size=8) | st.floats().map(str) | st.integers().map(str))
@example("inf")
@example("Infinity")
@example("nan")
@example(" 7 ")
@example("٣")
@example("1_0")
def test_a_text_is_a_number_where_float_says_so(text: str) -> None:
    try:
        expected: float | None = float(text) if len(text) <= 32 else None
    except ValueError:
        expected = None
    assert as_number(text) == (None if expected is not None and math.isnan(expected) else expected)


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ("a", "a")])
def test_equal_scalars_have_one_tag(one: Any, other: Any) -> None:
    assert equality_tag(("n",), one) == equality_tag(("n",), other)
    assert equality_tag(("n",), one) != equality_tag(("m",), one)
    assert equality_tag(("n",), one) != equality_tag(("n",), str(one) + "x")


def test_the_scalars_of_mappings_are_told_and_nothing_of_lists() -> None:
    told = told_of({"kind": "note", "meta": {"stars": 4, "more": {"at": "5"}}, "tags": ["a"], "none": None, 7: "seven"})
    assert told.equalities == [
        equality_tag(path, scalar)
        for path, scalar in ((("kind",), "note"), (("meta", "stars"), 4), (("meta", "more", "at"), "5"))
    ]
    assert told.numbers == {"n_meta__stars": "4.0", "n_meta__more__at": "5.0"}


def test_tags_are_those_that_lie_in_servers() -> None:
    assert equality_tag(("meta", "lang"), "en") == "35bde25bccbe25eed578"
    assert equality_tag(("stars",), 4) == "056e9dcf2c9d776ad3b2"
