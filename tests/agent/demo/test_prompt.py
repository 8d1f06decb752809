from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rtmem.agent.demo import prompt

_texts = st.text(st.characters(codec="utf-8"), max_size=30)


@given(facts=st.dictionaries(st.sampled_from(["name", "likes"]), st.lists(_texts, min_size=1, max_size=3)), name=_texts)
def test_read_returns_what_render_was_given_whatever_the_values_contain(facts: prompt.Facts, name: str) -> None:
    step = prompt.MemoryStep(remembered=[["name", name]], forgotten=[], not_known=[], everything="")
    assert prompt.read(prompt.render(facts, step)) == (facts, step)


def test_read_of_any_other_text_is_empty() -> None:
    assert prompt.read("You are a pirate.\nAnswer in rhymes.") == ({}, {})
