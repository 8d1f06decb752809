from __future__ import annotations

from typing import Any

import pytest

from rtmem.cli.states import Question, messages_of, questions_of, text_of


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hello", "hello"),
        ([{"type": "text", "text": "hel"}, {"type": "image", "url": "x"}, {"type": "text", "text": "lo"}], "hello"),
        (["hel", "lo"], "hello"),
        ([], ""),
        (None, ""),
    ],
)
def test_text_of_reads_every_shape_of_content(content: Any, text: str) -> None:
    assert text_of({"content": content}) == text


@pytest.mark.parametrize("state", [{}, {"values": None}, {"values": {"count": 1}}, {"values": {"messages": "none"}}])
def test_a_graph_without_messages_has_none(state: dict[str, Any]) -> None:
    assert messages_of(state) == []


def test_questions_of_a_state_are_those_of_all_its_tasks() -> None:
    state = {"tasks": [{"interrupts": [{"id": "a", "value": 1}]}, {"interrupts": []}, {"interrupts": [{"id": "b"}]}]}
    assert questions_of(state) == [Question("a", 1), Question("b", None)]
    assert questions_of({}) == []
