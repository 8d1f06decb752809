from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmem.errors import QueryError
from rtmem.operations.pointer_continuations import pack, unpack

QUESTION = ("slice", "mp_x", "lines", 0, None)


@given(st.integers(0, 2**53 - 1), st.lists(st.integers(-1, 2**53 - 1), max_size=2))
def test_positions_come_back(first: int, others: list[int]) -> None:
    positions = [first, *others]  # where to go on, and bounds: of these only, -1 stands for none
    assert unpack(QUESTION, pack(QUESTION, positions), len(positions)) == tuple(positions)


def test_a_continuation_is_short_enough_to_be_repeated_by_a_model() -> None:
    assert len(pack(QUESTION, (20_000_000, -1, 40_000_000))) <= 26


@given(st.text(max_size=60))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(QueryError):
        unpack(QUESTION, text, 1)


@pytest.mark.parametrize(
    "other", [("slice", "mp_y", "lines", 0, None), ("search", "mp_x"), ("slice", "mp_x", "lines", 0, 5)]
)
def test_it_fits_no_other_question(other: tuple[object, ...]) -> None:
    with pytest.raises(QueryError):
        unpack(other, pack(QUESTION, (5,)), 1)
    with pytest.raises(QueryError):
        unpack(QUESTION, pack(QUESTION, (5, 6)), 1)
    with pytest.raises(QueryError):
        unpack(QUESTION, pack(QUESTION, (2**60,)), 1)
