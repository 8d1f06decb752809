"""What the policy says, without any memory."""

from __future__ import annotations

import pytest

from rtmem.agent.recall import policy
from rtmem.settings import Recall


@pytest.mark.parametrize(
    "text",
    [
        "Where does Ann live",
        "and now?",
        "Tell me about Ann",
        "I am in Rome. Do you know Ann",
        "Где живёт Анна",
        "Напомни, как зовут собаку",
        "你好吗\uff1f",
    ],
)
def test_a_question_is_known_by_its_mark_or_its_first_word(text: str) -> None:
    assert policy.is_question(text)


@pytest.mark.parametrize("text", ["", "   ", "Ann lives in Rome", "Thanks. Bye!", "Я живу в Осло", "12 %", "however"])
def test_a_statement_is_no_question(text: str) -> None:
    assert not policy.is_question(text)


def test_what_is_read_follows_from_the_message_alone() -> None:
    settings = Recall()
    asked, said, nothing = (policy.plan(settings, text) for text in ("Where is Rex?", "Rex is here.", " \n"))
    assert (asked.standing, asked.searched) == (("preference",), ("semantic", "episodic", "procedural"))
    assert (said.standing, said.searched) == (("preference",), ("semantic", "procedural"))
    assert (nothing.standing, nothing.searched) == (("preference",), ())
    never = Recall(semantic_read="never", episodic_read="never", procedural_read="never", preference_read="never")
    assert policy.plan(never, "Where is Rex?").is_empty


def test_of_a_long_message_the_end_is_asked_for() -> None:
    plan = policy.plan(Recall(), "x" * 1_000_000 + " where is Rex?")
    assert plan.query.endswith("where is Rex?")
    assert len(plan.query) <= policy.QUERY_CHARACTERS_MAX


def test_likeness_counts_the_words_that_say_something() -> None:
    words = [policy.words_of(text, 32) for text in ("where does Ann live", "Where does Ann live, please?", "Ann", "")]
    assert policy.likeness(words[0], words[0]) == 1
    assert policy.likeness(words[0], words[1]) == pytest.approx(2 / 3)
    assert policy.likeness(words[0], words[2]) == 0.5
    assert policy.likeness(words[0], words[3]) == policy.likeness(words[3], words[3]) == 0


def test_a_model_writes_only_the_kinds_it_may() -> None:
    assert policy.writable(Recall()) == ("semantic", "episodic", "preference")
    assert policy.writable(Recall(semantic_write="never", preference_write="never", episodic_write="never")) == ()
