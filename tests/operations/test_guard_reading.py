"""What is one word, and what only looks like code: told by what the guard says of two questions that differ in it."""

from __future__ import annotations

import pytest

from rtmem.operations.lexical_guard import compare


def _is_same(one: str, other: str) -> bool:
    there, back = compare(one, other), compare(other, one)
    assert (there is None) == (back is None)
    return there is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("what is a master's degree in history", "what is a master's diploma in history"),
        ("is a physics degree useful", "is a degree in physics useful"),
        ("how many degrees is a right angle", "a right angle is how many degrees"),
    ],
)
def test_a_degree_is_a_unit_only_after_a_number(one: str, other: str) -> None:
    assert _is_same(one, other)
    for refused in (("is 20 degrees cold", "is 20 kelvin cold"), ("is 20 degrees cold", "is 30 degrees cold")):
        refusal = compare(*refused)
        assert refusal is not None
        assert refusal.reason == "number"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("who is a billionaire($)", "who is a billionaire ($)"),
        ("item(s) to pack", "items to pack"),
        ("use apples,pears", "use apples, pears"),
        ("the firm(Rome)", "the firm (Rome)"),
        ("стоит ли сок(томатный) пить", "стоит ли сок (томатный) пить"),
    ],
)
def test_words_that_only_a_mark_keeps_apart_are_two(one: str, other: str) -> None:
    assert _is_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("price($) of gold", "price(€) of gold"),
        ("what is f(a,b)", "what is f(b,a)"),
        ("call max(1,2)", "call max(2,1)"),
    ],
)
def test_what_marks_keep_apart_still_counts(one: str, other: str) -> None:
    assert not _is_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("what is 4Shared", "what is 4shared"),
        ("how to sync an IPhone 5S", "how to sync an iphone 5s"),
        ("is Node.js fast", "is node.js fast"),
        ("как конвертировать в MP3", "как конвертировать в mp3"),
        ("is the U.S. big", "is the US big"),
        ("who needs a Ph.D.", "who needs a PhD"),
    ],
)
def test_case_and_the_stops_of_an_abbreviation_do_not_count_in_a_name(one: str, other: str) -> None:
    assert _is_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("what does -X do", "what does -x do"),
        ("what is MAX_SIZE", "what is max_size"),
        ("what is MP3", "what is MP4"),
        ("is it on the US list", "is it on us"),
    ],
)
def test_case_counts_in_code(one: str, other: str) -> None:
    assert not _is_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I can't bear it any longer.What can I do", "I can't bear it any longer. What can I do"),
        ("my cat is lost.Please help me find it", "my cat is lost. Please help me find it"),
        ("it broke?Why", "it broke? Why"),
        ("Телефон сломался.Что делать", "Телефон сломался. Что делать"),
    ],
)
def test_a_sentence_may_begin_without_a_space_before_it(one: str, other: str) -> None:
    assert _is_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("open example.com", "open example.org"),
        ("what is os.path", "what is os"),
        ("what is os.path", "what is os. What is path"),
        ("install node.js", "install node.ts"),
        ("when to call errors.Is", "when to call errors.As"),
        ("explain System.Text", "explain System.Linq"),
    ],
)
def test_a_name_with_a_stop_in_it_is_one_word(one: str, other: str) -> None:
    assert not _is_same(one, other)
