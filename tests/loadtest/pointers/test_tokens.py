"""What is counted is what tiktoken counts."""

from __future__ import annotations

import json
from random import Random

import pytest
import tiktoken
from langchain_core.messages import AIMessage

from loadtest.pointers.tokens import ENCODING, Tokens


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens()


def test_a_long_text_in_pieces_has_as_many_tokens_as_the_whole(tokens: Tokens) -> None:
    random = Random(7)
    encoding = tiktoken.get_encoding(ENCODING)
    numbers = [[round(random.gauss(0, 3), 4) for _ in range(100)] for _ in range(150)]
    for text in (json.dumps(numbers), json.dumps({"a": ["x, 1, 2,  3 ,4"] * 8_000}), "no place to cut " * 8_000):
        assert len(text) > 60_000
        assert tokens.of_text(text) == len(encoding.encode_ordinary(text))


def test_a_message_costs_its_content_and_the_calls_in_it(tokens: Tokens) -> None:
    plain = tokens.of_message(AIMessage("hello world"))
    assert plain == 4 + 2
    call = {"name": "find_peak", "args": {"grid": [1, 2]}, "id": "1", "type": "tool_call"}
    assert tokens.of_message(AIMessage("hello world", tool_calls=[call])) > plain + 4 + len("find_peak") // 4
