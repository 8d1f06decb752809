"""Values survive as with InMemorySaver, alone and inside shared lists; strict lists, encryption, compression."""

from __future__ import annotations

import enum
import math
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send
from pydantic import BaseModel

from rtmem.errors import CorruptRecordError
from rtmem.settings import Checkpoint
from tests.checkpoint.colours import Savers, inspect
from tests.checkpoint.talks import at, message, put, same

MODULE = __name__


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: Any = None


class Person(BaseModel):
    name: str
    age: Any = 0


class Other(BaseModel):
    name: str
    age: Any = 0


SERDE = JsonPlusSerializer(allowed_msgpack_modules=[(MODULE, name) for name in ("Colour", "Point", "Person", "Other")])

VALUES: dict[str, Any] = {
    "Decimal": Decimal("0.10"),
    "timedelta": timedelta(days=1, microseconds=3),
    "deque": deque([1, 2]),
    "frozenset": frozenset({1, 2}),
    "set": {1, 2},
    "datetime": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "zoned": datetime(2026, 7, 2, tzinfo=ZoneInfo("Europe/Berlin")),
    "naive": datetime(2026, 1, 2),
    "date": date(2026, 1, 2),
    "time": time(1, 2, 3),
    "UUID": UUID(int=5),
    "Enum": Colour.RED,
    "nan": math.nan,
    "inf": -math.inf,
    "minus zero": -0.0,
    "int keys": {1: "a", 2: {3: "b"}},
    "pydantic": Person(name="a", age=Decimal("1.5")),
    "dataclass": Point(1, {"k": [1]}),
    "bytes": b"\0\xff",
    "bytearray": bytearray(b"x"),
    "Interrupt": Interrupt(value={"q": 1}, id="i"),
    "Send": Send("node", {"a": 1}),
    "None": None,
    "True": True,
    "big int": 2**60,
    "empty": {},
    "list": [],
    "text": "ü☃\0",
    "path": Path("/a/b"),
    "ip": IPv4Address("127.0.0.1"),
    "message": AIMessage("a", tool_calls=[{"name": "t", "args": {"n": 1}, "id": "1"}]),
    "tool": ToolMessage("r", tool_call_id="1", artifact={"x": [1]}),
    "document": Document("d", metadata={"k": 1}),
    "lc": {"lc": 2, "type": "constructor", "id": ["decimal", "Decimal"], "args": ["1"], "kwargs": {}},
    "lc1": {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain_core", "messages", "AIMessage"],
        "kwargs": {"content": "x"},
    },
    "envelope": {"__type__": "Decimal", "value": "1"},
    "redisvl": {"__bytes__": "AAA="},
    "typed": ["msgpack", b"\x01"],
    "1 MB": "x" * 1_000_000,
    "64 KB": b"y" * 65_536,
    "nested": {"a": [{"b": (1, 2), "c": {4}}]},
}


CHANGED = ("nested", "zoned")
"""What LangGraph's serialiser does not keep: tuples become lists, zone names their offsets. Of the rest all is kept."""


def shown(value: Any) -> str:
    """Everything about a value that repr tells, classes of its insides included."""
    return f"{type(value).__name__}: {value!r}"


@pytest.mark.parametrize("shallow", [False, True])
def test_values_survive_as_with_in_memory_saver(savers: Savers, shallow: bool) -> None:
    reference = InMemorySaver(serde=SERDE)
    with savers.open(shallow=shallow, serde=SERDE) as saver, savers.open(shallow=shallow, serde=SERDE) as cold:
        for one in (reference, saver):
            done = put(one, at("t"), dict(VALUES))
            one.put_writes(done.config, list(VALUES.items()), "task")
        wanted = reference.get_tuple(at("t"))
        assert wanted is not None
        for reader in (saver, cold, saver, cold):
            found = reader.get_tuple(at("t"))
            assert found is not None
            for name, value in wanted.checkpoint["channel_values"].items():
                assert shown(found.checkpoint["channel_values"][name]) == shown(value), name
            assert found.pending_writes is not None
            assert wanted.pending_writes is not None
            for ours, theirs in zip(found.pending_writes, wanted.pending_writes, strict=True):
                assert ours[:2] == theirs[:2]
                assert shown(ours[2]) == shown(theirs[2]), ours[1]
    for name, value in VALUES.items():
        if name not in CHANGED:
            assert shown(wanted.checkpoint["channel_values"][name]) == shown(value), name


def test_values_survive_inside_a_shared_list_and_changes_of_class_are_seen(savers: Savers) -> None:
    values = [value for name, value in VALUES.items() if name not in CHANGED]
    with savers.open(serde=SERDE) as saver, savers.open(serde=SERDE) as cold:
        done = put(saver, at("t"), {"items": values})
        swaps: list[tuple[Any, Any]] = [
            (1, True),
            (1, 1.0),
            (0.0, -0.0),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
            (Person(name="a"), Other(name="a")),
            ("1", 1),
            (b"a", "a"),
            (b"a", bytearray(b"a")),
            ({1}, frozenset({1})),
            ({1: 2}, {"1": 2}),
            ([1], [[1]]),
            (Point(1), Point(1, 0)),
            (HumanMessage("a", id="1"), AIMessage("a", id="1")),
            (None, False),
            (Decimal("1.0"), Decimal("1.00")),
        ]
        for before, after in swaps:
            for value in (before, after):
                items = [*values, {"in": value}, [value], value, "end"]
                wanted = SERDE.loads_typed(SERDE.dumps_typed(items))  # as one piece, like InMemorySaver
                done = put(saver, done.config, {"items": items}, done.checkpoint)
                for reader in (saver, cold):
                    found = reader.get_tuple(at("t"))
                    assert found is not None
                    assert list(map(shown, found.checkpoint["channel_values"]["items"])) == list(map(shown, wanted))
        assert inspect(saver, "t").problems == []


def test_exceptions_survive_as_langgraph_writes_them(savers: Savers) -> None:
    reference = InMemorySaver()
    with savers.open() as saver:
        for one in (reference, saver):
            done = put(one, at("t"), {"n": 1})
            one.put_writes(done.config, [("__error__", ValueError("no"))], "task")
        ours, theirs = saver.get_tuple(at("t")), reference.get_tuple(at("t"))
        assert ours is not None
        assert theirs is not None
        assert repr(ours.pending_writes) == repr(theirs.pending_writes)


def test_a_strict_allow_list_keeps_foreign_classes_out_and_a_clone_lets_its_own_in(savers: Savers) -> None:
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    with savers.open(serde=SERDE) as saver, savers.open(serde=strict) as careful:
        done = put(saver, at("t"), {"who": Person(name="a"), "list": [Person(name="b")], "message": message(1)})
        found = careful.get_tuple(at("t"))
        assert found is not None
        values = found.checkpoint["channel_values"]
        assert not isinstance(values["who"], Person)
        assert not isinstance(values["list"][0], Person)
        assert values["message"] == message(1)
        clone: Any = careful.with_allowlist([(MODULE, "Person")])
        # What was remembered under the strict list must not come back through the clone, nor the other way round.
        for _ in range(2):
            allowed, refused = clone.get_tuple(at("t")), careful.get_tuple(at("t"))
            assert allowed.checkpoint["channel_values"] == done.checkpoint["channel_values"]
            assert refused == found


def test_encrypted_threads_can_be_read_with_the_key_only_and_show_nothing_to_redis(savers: Savers) -> None:
    serde = EncryptedSerializer.from_pycryptodome_aes(SERDE, key=b"k" * 32)
    wrong = EncryptedSerializer.from_pycryptodome_aes(SERDE, key=b"w" * 32)
    values: dict[str, Any] = {
        "secret": "my secret",
        "messages": [{"text": "my secret"}] * 200,
        "big": "my secret " * 9_000,
    }
    with savers.open(serde=serde) as saver, savers.open(serde=serde) as cold, savers.open(serde=wrong) as thief:
        done = put(saver, at("t"), values, metadata={"secret": "my secret"})
        saver.put_writes(done.config, [("a", "my secret")], "task")
        done = done._replace(pending_writes=[("task", "a", "my secret")])
        for reader in (saver, cold, cold):
            assert same(reader.get_tuple(at("t")), done)
        assert [*cold.list(at("t"), filter={"secret": "my secret"})] == [done]
        assert [*cold.list(at("t"), filter={"secret": "no"})] == []
        for key in savers.client.keys("*"):
            assert b"my secret" not in savers.client.dump(key)
            if savers.client.type(key) == b"hash":
                assert b"my secret" not in b"".join(savers.client.hvals(key))
        with pytest.raises(ValueError, match="MAC"):
            thief.get_tuple(at("t"))


def test_large_values_are_compressed_from_a_size_on_and_read_by_savers_that_do_not(savers: Savers) -> None:
    packed = Checkpoint(compress_bytes_min=1_000, piece_bytes_min=4_000)
    values: dict[str, Any] = {
        "text": "long text " * 20_000,
        "list": [{"k": "word " * 300}] * 50,
        "noise": bytes(range(256)),
    }
    with savers.open(settings=packed) as saver, savers.open() as plain:
        done = put(saver, at("t"), values, metadata={"long": "m" * 5_000})
        saver.put_writes(done.config, [("a", "w" * 5_000)], "task")
        done = done._replace(pending_writes=[("task", "a", "w" * 5_000)])
        for reader in (saver, plain, plain):
            assert same(reader.get_tuple(at("t")), done)
        report = inspect(saver, "t")
        assert report.piece_bytes + report.record_bytes + report.writes_bytes < 4_000
        assert [*plain.list(at("t"), filter={"long": "m" * 5_000})] == [done]


def test_damaged_bytes_are_a_corrupt_record_and_name_the_next_step(savers: Savers) -> None:
    with savers.open() as saver, savers.open() as cold:
        put(saver, at("t"), {"big": "x" * 200})
        key = saver.scope.keys.thread("", "t").checkpoints
        number = next(name for name in savers.client.hkeys(key) if name.isdigit())
        for damage in (b"", b"m\xc1", b"?", b"z\0", b"m"):
            savers.client.hset(key, number, damage)
            with pytest.raises(CorruptRecordError):
                cold.get_tuple(at("t"))


def test_a_value_that_cannot_be_encoded_is_an_error_and_nothing_of_it_is_stored(savers: Savers) -> None:
    with savers.open() as saver:
        first = put(saver, at("t"), {"items": [{"n": 1}]})
        for values in ({"items": [{"n": 1}, 2**80]}, {"items": [{"n": 1}], "more": 2**80}):
            with pytest.raises(TypeError, match="64-bit"):
                put(saver, first.config, values, first.checkpoint)
        with pytest.raises(TypeError, match="64-bit"):
            saver.put_writes(first.config, [("a", 1), ("b", 2**80)], "task")
        assert [*saver.list(at("t"))] == [first]
