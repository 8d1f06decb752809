"""A list is restored exactly from shared pieces, whatever was done to it; what did not change is not sent again."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel, ConfigDict, PrivateAttr

from rtmem.operations.fingerprints import fingerprint
from rtmem.operations.serde import Serde
from rtmem.operations.sharing import (
    LARGE_FIRST,
    LARGE_PIECE_BYTES_MIN,
    Cut,
    Fresh,
    ListImage,
    image_of,
    is_shareable,
    numbers_of,
    ranges_text,
    runs,
    split,
)
from tests.checkpoint.talks import message

SERDE = Serde(JsonPlusSerializer(), 0)


class Store:
    """What a server would do with the pieces and the ranges of a list."""

    def __init__(self) -> None:
        self.pieces: dict[int, bytes] = {}
        self.next = 1
        self.image = ListImage()
        self.sent = 0

    def put(self, elements: list[Any], piece_bytes_min: int = 300) -> None:
        cut, fresh = Cut(self.image), Fresh()
        for _ in split(elements, cut, SERDE, fresh, piece_bytes_min):
            pass
        text = ranges_text(cut)
        first = self.next
        self.pieces |= {first + place: stored for place, stored in enumerate(fresh.small)} | fresh.large
        self.next += len(fresh.small)
        self.sent = len(fresh.small) + len(fresh.large)
        resolved = ",".join(
            f"{int(start.removeprefix('+')) + first if start.startswith('+') else start}:{count}"
            for start, count in (part.split(":") for part in text.split(",") if part)
        )
        self.ranges = resolved.encode()
        self.image = image_of(cut, fresh, first)
        assert self.image.numbers == numbers_of(self.ranges)
        assert sum(self.image.sizes) == len(self.image.prints) == len(elements)
        assert [self.pieces[number] for number in self.image.numbers] == self.image.stored

    def get(self) -> list[Any]:
        return [element for number in numbers_of(self.ranges) for element in SERDE.loads(self.pieces[number])]


def nested(messages: list[Any]) -> None:
    messages[5].additional_kwargs["n"]["at"].append({"deep": 1})


def called(messages: list[Any]) -> None:
    next(one for one in messages if isinstance(one, AIMessage) and one.tool_calls).tool_calls[0]["args"]["q"][1][
        "deep"
    ] = 1


def content(messages: list[Any]) -> None:
    messages[3].content = "edited"


def extra(messages: list[Any]) -> None:
    messages[3].name = "somebody"


CHANGES: dict[str, Callable[[list[Any]], Any]] = {
    "append": lambda m: m.append(message(99)),
    "append many": lambda m: m.extend(message(100 + k) for k in range(15)),
    "prepend": lambda m: m.insert(0, message(99)),
    "insert": lambda m: m.insert(11, message(99)),
    "remove first": lambda m: m.pop(0),
    "remove last": lambda m: m.pop(),
    "remove middle": lambda m: m.pop(9),
    "reverse": lambda m: m.reverse(),
    "rotate": lambda m: m.append(m.pop(0)),
    "duplicate": lambda m: m.append(m[4]),
    "double": lambda m: m.extend(m[:]),
    "clear to one": lambda m: m.__delitem__(slice(1, None)),
    "content in place": content,
    "nested in place": nested,
    "tool call in place": called,
    "name in place": extra,
    "replace by equal": lambda m: m.__setitem__(2, m[2].model_copy(deep=True)),
    "replace by another class": lambda m: m.__setitem__(0, AIMessage("x", id="m0")),
    "large": lambda m: m.insert(3, message(99, LARGE_PIECE_BYTES_MIN)),
    "nothing": lambda m: None,
}


@pytest.mark.parametrize("first", CHANGES)
def test_any_change_and_any_second_one_is_restored_exactly(first: str) -> None:
    for second in CHANGES:
        store, messages = Store(), [message(k) for k in range(20)]
        store.put(messages)
        for name in (first, second):
            if len(messages) < 12:
                messages.extend(message(200 + k) for k in range(12))
                store.put(messages)
            CHANGES[name](messages)
            store.put(messages)
            restored = store.get()
            assert restored == messages, (first, second)
        assert repr(restored) == repr(messages)  # equal is not all: 1 == True == 1.0


@pytest.mark.parametrize("name", ["append", "duplicate", "nothing", "replace by equal", "remove last"])
def test_what_did_not_change_is_not_sent_again(name: str) -> None:
    store, messages = Store(), [message(k) for k in range(200)]
    store.put(messages, 100)
    CHANGES[name](messages)
    store.put(messages, 100)
    assert store.sent <= 1
    store.put(deepcopy(messages), 100)
    assert store.sent == 0


def test_an_append_to_2500_messages_is_one_piece_and_a_short_text() -> None:
    store, messages = Store(), [message(k) for k in range(2_500)]
    store.put(messages)
    for number in range(3):
        messages.append(message(3_000 + number))
        store.put(messages)
        assert store.sent == 1
        assert store.ranges.count(b":") <= 6  # a few runs of numbers, however long the talk


@pytest.mark.parametrize("size", [255, 256, 257, 1_000])
def test_a_list_of_which_all_or_nothing_is_new_is_restored_whatever_its_length(size: int) -> None:
    store = Store()
    for generation in range(3):
        messages = [message(10_000 * generation + k) for k in range(size)]
        store.put(messages)
        assert store.get() == messages
        assert len(store.image.prints) == size
        store.put(messages)
        assert store.sent == 0


def test_large_pieces_have_random_numbers_that_no_counter_reaches() -> None:
    store = Store()
    store.put([message(1), message(2, LARGE_PIECE_BYTES_MIN), message(3)], 1)
    large = [number for number in store.image.numbers if number >= LARGE_FIRST]
    assert len(large) == 1
    assert large[0] < 2**52
    assert store.get()[1] == message(2, LARGE_PIECE_BYTES_MIN)


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, -0.0, 1.0, 2.0]), st.text(max_size=2)
)
ELEMENTS = st.one_of(ATOMS, st.lists(ATOMS, max_size=2), st.dictionaries(st.text(max_size=1), ATOMS, max_size=3))


@given(st.lists(st.lists(ELEMENTS, max_size=30), max_size=5), st.sampled_from([1, 20, 10_000]))
def test_any_sequence_of_lists_is_restored_exactly(lists: list[list[Any]], piece_bytes_min: int) -> None:
    store = Store()
    for elements in lists:
        store.put(elements, piece_bytes_min)
        assert repr(store.get()) == repr(elements)


@given(st.lists(st.integers(0, 40), max_size=40))
def test_ranges_are_read_as_they_were_written(numbers: list[int]) -> None:
    parts = list(runs(numbers))
    text = ",".join(f"{start}:{count}" for start, count in parts).encode()
    assert numbers_of(text) == numbers
    assert all(a[0] + a[1] != b[0] for a, b in pairwise(parts))


def test_a_list_that_is_changed_between_two_slices_is_stored_as_of_its_own_moment() -> None:
    """Bytes and fingerprint of an element are of one moment, so the next put sees what came after."""
    store, messages = Store(), [message(k) for k in range(600)]
    store.put(messages)
    messages[500].content = "new"
    cut, fresh = Cut(store.image), Fresh()
    slices = split(messages, cut, SERDE, fresh, 300)
    next(slices)
    messages[500].content = "newer"
    messages[10].content = "after its slice"
    for _ in slices:
        pass
    image = image_of(cut, fresh, store.next)
    store.pieces |= {store.next + place: stored for place, stored in enumerate(fresh.small)}
    store.next += len(fresh.small)
    store.image = image
    store.put(messages)
    assert store.get() == messages


class A(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: Any
    _hidden: int = PrivateAttr(default=0)


Open: Any = A  # mypy knows only the declared fields


class B(BaseModel):
    x: Any


def test_fingerprints_differ_where_what_is_stored_differs() -> None:
    hidden = A(x=1)
    hidden._hidden = 5
    values: list[Any] = [
        1, True, 1.0, 0, False, 0.0, -0.0, "1", "", None, [], {}, [1], [True], [1.0], [[1]], {"a": 1}, {"a": True},
        {"a": 1, "b": 2}, {"b": 2, "a": 1}, A(x=1), B(x=1), A(x=True), A(x=1.0), Open(x=1, y=2), Open(x=1, z=2), hidden,
        HumanMessage("a"), AIMessage("a"),
        AIMessageChunk(content="a"), AIMessage("a", id="1"), AIMessage("a", name="b"),
        AIMessage("a", additional_kwargs={"k": 1}), AIMessage("a", response_metadata={"k": 1}),
        AIMessage("a", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}), AIMessage(["a"]),
    ]  # fmt: skip
    prints = [fingerprint(value) for value in values]
    assert None not in prints
    assert len(set(prints)) == len(values)
    assert [fingerprint(deepcopy(value)) for value in values] == prints


def test_values_that_msgpack_alone_would_confuse_have_no_fingerprint() -> None:
    import datetime
    import enum
    import uuid

    class Word(str):
        pass

    class E(enum.Enum):
        ONE = 1

    values: list[Any] = [
        (1,), [(1,)], {1}, b"a", datetime.date(2026, 1, 1), uuid.UUID(int=1), E.ONE, Word("a"), [Word("a")],
        {1: 2}, {"a": {1: 2}}, 2**70, "\ud800", A(x=B(x=1)), A(x=(1,)), object(),
    ]  # fmt: skip
    assert [fingerprint(value) for value in values] == [None] * len(values)


def test_lists_of_numbers_tuples_and_empty_lists_are_no_lists_to_split() -> None:
    assert not is_shareable([])
    assert not is_shareable([1, 2.0, None, True])
    assert not is_shareable((message(1),))
    assert is_shareable([message(1)])
    assert is_shareable(["a", "b"])
    assert is_shareable([1, {}, 1])


def test_random_edits_of_a_long_list_send_little() -> None:
    rng = random.Random(5)
    store, messages = Store(), [message(k) for k in range(1_000)]
    store.put(messages)
    total = store.sent
    for _ in range(30):
        rng.choice([content, nested, called, extra])(messages)
        messages.append(message(rng.randrange(5_000)))
        if rng.random() < 0.3:
            messages.pop(rng.randrange(len(messages)))
        store.put(messages)
        assert store.get() == messages
        assert store.sent <= total / 10
