"""Whether it is so is another question than why, when or where; how to do it answers whether one can."""

from __future__ import annotations

import pytest

from rtmem.operations.lexical_guard import compare


@pytest.mark.parametrize(
    ("whether", "why"),
    [
        ("Is coffee safe?", "Why is coffee safe?"),
        ("do you need a visa", "why do you need a visa"),
        ("Hi, do cats purr?", "Hi, why do cats purr?"),
        ("Is the museum closed today?", "How come the museum is closed today?"),
        ("does the parrot talk", "when does the parrot talk"),
        ("Вреден ли кофе?", "Почему вреден кофе?"),
        ("можно есть снег", "почему можно есть снег"),
        ("Нужна виза в Сербию?", "Зачем нужна виза в Сербию?"),
    ],
)
def test_a_yes_or_no_is_no_answer_to_what_takes_the_yes_for_granted(whether: str, why: str) -> None:
    for refusal in (compare(whether, why), compare(why, whether)):
        assert refusal is not None
        assert refusal.reason == "question"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Can I freeze milk?", "How do I freeze milk?"),
        ("my phone is hot", "why is my phone hot"),
        ("I can't log in", "why can't I log in"),
        ("Could you tell me why cats purr?", "Why do cats purr?"),
        ("do you know when the museum opens", "when does the museum open"),
        ("is there a place to park", "where can I park"),
        ("телефон греется", "почему греется телефон"),
        ("Можно ли узнать, почему кошки мурлычут?", "Почему кошки мурлычут?"),
        ("Можно ли заморозить молоко?", "Как заморозить молоко?"),
    ],
)
def test_a_complaint_or_a_request_may_ask_why_and_whether_one_can_is_how(one: str, other: str) -> None:
    assert compare(one, other) is None
    assert compare(other, one) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("why can I hardly hear", "why can I hear"),
        ("does he rarely eat meat", "does he eat meat"),
        ("is it already open", "is it not yet open"),
        ("he no longer smokes", "he still smokes"),
        ("he nearly drowned", "he drowned"),
        ("он едва слышит", "он слышит"),
        ("он больше не курит", "он еще курит"),
    ],
)
def test_an_adverb_that_denies_or_limits_may_not_be_missing(one: str, other: str) -> None:
    assert compare(one, other) is not None
    assert compare(other, one) is not None
