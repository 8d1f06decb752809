from __future__ import annotations

import pytest

from rtmem.agent.demo.phrases import (
    AskTime,
    Calculate,
    Forget,
    Greet,
    Phrase,
    Recall,
    Remember,
    Send,
    Thank,
    language_of,
    understand,
)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("My name is Ann", [Remember("name", "Ann")]),
        ("hi, my name is Ann-Marie O'Neil!", [Greet(), Remember("name", "Ann-Marie O'Neil")]),
        (
            "My name is Ann and I live in New York. I like tea and jazz.",
            [Remember("name", "Ann"), Remember("home", "New York"), Remember("likes", "tea and jazz")],
        ),
        ("I work as a nurse", [Remember("work", "nurse")]),
        ("Please remember that my car is red", [Remember("notes", "my car is red")]),
        (
            "Привет! Меня зовут Анна, я живу в Москве и я люблю чай.",
            [Greet(), Remember("name", "Анна"), Remember("home", "Москве"), Remember("likes", "чай")],
        ),
        ("мне нравится джаз", [Remember("likes", "джаз")]),
        ("запомни, что машина красная", [Remember("notes", "машина красная")]),
        ("What is my name?", [Recall("name")]),
        ("where do i live", [Recall("home")]),
        ("What do you know about me?", [Recall(None)]),
        ("Как меня зовут?", [Recall("name")]),
        ("Что ты обо мне знаешь?", [Recall(None)]),
        ("forget my name", [Forget("name")]),
        ("Forget everything!", [Forget(None)]),
        ("забудь, пожалуйста", []),
        ("Забудь моё имя.", [Forget("name")]),
        ("забудь всё", [Forget(None)]),
        ("What is 17 * 23?", [Calculate("17 * 23")]),
        ("(2 + 3) / 4", [Calculate("(2 + 3) / 4")]),
        ("сколько будет 2+2 и как меня зовут?", [Calculate("2+2"), Recall("name")]),
        ("What time is it in Europe/Berlin?", [AskTime("Europe/Berlin")]),
        ("который час?", [AskTime("UTC")]),
        ("send a message to Bob: my name is Eve", [Send("Bob", "my name is Eve")]),
        ("напиши Бобу: привет", [Send("Бобу", "привет")]),
        ("Спасибо!", [Thank()]),
    ],
)
def test_understand_reads_english_and_russian(text: str, phrases: list[Phrase]) -> None:
    assert list(understand(text)) == phrases


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n ",
        "Bob said: I like tea",
        "I'd like to ask something",
        "I don't like tea",
        "I like it",
        "my name is not important",
        "call me later",
        "Call me back tomorrow.",
        "зови меня потом",
        "Remember our holidays in Spain? I like tea?",
        "2024",
        "call +1 555 123",
        "forget it",
        "Caroline went to a support group yesterday",
        "Он сказал, мол, всё хорошо",
    ],
)
def test_understand_stores_nothing_it_is_not_sure_of(text: str) -> None:
    assert not [phrase for phrase in understand(text) if isinstance(phrase, Remember | Forget)]


def test_understand_keeps_each_value_on_one_line_and_short() -> None:
    assert understand("my name is  Ann \t Lee") == (Remember("name", "Ann Lee"),)
    assert understand("my name is " + "x" * 121) == ()


@pytest.mark.parametrize("piece", ["a", " ", "1 ", "(", "and ", "my name is ", "1+", "привет ", ",", "\n"])
def test_understand_reads_a_bounded_part_of_a_huge_message(piece: str) -> None:
    # A backtracking pattern shows here as a time-out of the test run.
    understand(piece * (1_000_000 // len(piece)))


def test_language_follows_the_script() -> None:
    assert language_of("Hello, Ann") == "en"
    assert language_of("Hello, Анна") == "ru"
