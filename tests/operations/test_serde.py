from __future__ import annotations

import os
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from rtmem.errors import CorruptRecordError
from rtmem.operations.serde import Serde


class Foreign:
    """A serialiser with a type name of its own."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        return "my-type+aes", repr(value).encode()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        assert data[0] == "my-type+aes"
        return eval(data[1])


@pytest.mark.parametrize("value", [None, b"", b"\0", bytearray(b"a"), {}, [], "text", 1, {"a": [1, {"b": None}]}])
@pytest.mark.parametrize("compress_bytes_min", [0, 1, 10**6])
def test_values_are_read_as_they_were_written(value: Any, compress_bytes_min: int) -> None:
    serde = Serde(JsonPlusSerializer(), compress_bytes_min)
    found = serde.loads(serde.dumps(value))
    assert found == value
    assert type(found) is type(value)


def test_the_first_byte_names_the_type() -> None:
    serde = Serde(JsonPlusSerializer(), 0)
    values: list[Any] = [None, b"a", bytearray(b"a"), {}]
    assert [serde.dumps(value)[:1] for value in values] == [b"n", b"b", b"a", b"m"]


def test_a_foreign_serialisers_type_name_is_kept() -> None:
    serde = Serde(Foreign(), 0)
    stored = serde.dumps({"a": 1})
    assert stored.startswith(b"x\x0bmy-type+aes")
    assert serde.loads(stored) == {"a": 1}


def test_what_compresses_well_is_compressed_from_the_size_on_and_noise_is_not() -> None:
    serde, plain = Serde(JsonPlusSerializer(), 1_000), Serde(JsonPlusSerializer(), 0)
    text, noise = "word " * 1_000, os.urandom(5_000)
    assert serde.dumps(text)[:1] == b"z"
    assert len(serde.dumps(text)) < 200
    assert serde.dumps(noise) == plain.dumps(noise)
    assert serde.dumps("short") == plain.dumps("short")
    assert plain.loads(serde.dumps(text)) == text


@pytest.mark.parametrize("stored", [b"", b"?", b"m", b"m\xc1", b"z", b"z\0\0", b"m\x81\xa1a"])
def test_bytes_that_are_no_value_are_a_corrupt_record(stored: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        Serde(JsonPlusSerializer(), 0).loads(stored)
