"""A value comes back as what it was, is stored once, and what is damaged is told."""

from __future__ import annotations

import datetime
import math
import os
from typing import Any

import numpy
import pandas
import pyarrow
import pytest
import redis
from langchain_core.messages import AIMessage

from rtmem import settings as all_settings
from rtmem.errors import (
    CorruptRecordError,
    InvalidRequestError,
    PointerExpiredError,
    PointerNotFoundError,
    QuotaExceededError,
    ServerFullError,
    TooLargeError,
)
from rtmem.operations.pointer_uploads import offload
from rtmem.pointers import Pointers
from rtmem.steps import Steps
from tests.checkpoint.colours import Loop
from tests.conftest import ServerFactory
from tests.pointers.colours import Caller, World
from tests.wire import Wire

ROWS = [{"id": number, "name": f"row {number}", "ok": number % 2 == 0} for number in range(300)]

EXACT: list[Any] = [
    *("", "short", "x" * 5_000, "при́вет 👩‍👩‍👧 мир\n" * 400, "half a \ud800 pair", "nul \0 inside"),
    *(b"", b"raw \xff\x00", bytes(range(256)) * 40),
    *(None, True, 0, -(2**63), 2**64 - 1, 1.5, -0.0),
    *([], {}, [None], {"a": None, "": [1, [2, {"b": "ü"}]]}, ROWS, {f"key {n}": n for n in range(2_000)}),
    ["x" * 6_000, "y"],  # an element longer than several chunks
    [{"type": "text", "text": "hi"}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}],
    *({1: 2}, {1, 2}, frozenset((1, 2)), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), bytearray(b"abc")),
    AIMessage("a message", id="1"),
]


@pytest.mark.parametrize(
    "value", EXACT, ids=lambda value: f"{type(value).__name__} {str(value)[:12]!r}".encode("ascii", "replace").decode()
)
def test_a_value_comes_back_as_what_it_was(ann: Caller, value: Any) -> None:
    pointer = ann.offload(value)
    for found in (ann.resolve(pointer), ann.resolve(pointer.id)):
        assert type(found) is type(value)
        assert found == value
    assert ann.describe(pointer.id) == pointer
    ann.sound()


def test_numbers_that_json_does_not_have_come_back_too(ann: Caller) -> None:
    found = ann.resolve(ann.offload([1.0, math.nan, {"a": math.inf}, None]))
    assert math.isnan(found[1])
    assert found[2:] == [{"a": math.inf}, None]


def test_bytes_inside_of_json_stay_bytes(ann: Caller) -> None:
    assert ann.resolve(ann.offload({"image": b"\x89PNG"})) == {"image": b"\x89PNG"}


def test_an_array_comes_back_as_an_array(ann: Caller) -> None:
    grid = numpy.arange(3_000, dtype="float32").reshape(30, 100)
    pointer = ann.offload(grid)
    assert numpy.array_equal(ann.resolve(pointer), grid)
    assert "float32, 30 x 100" in pointer.shape


def tables() -> list[pyarrow.Table]:
    numbers = list(range(3_000))
    return [
        pyarrow.table({"n": numbers, "text": [f"row {n}" for n in numbers]}),
        pyarrow.table({"n": numbers, "of few": pyarrow.array(["a", "b", None] * 1_000).dictionary_encode()}),
        pyarrow.table({"n": pyarrow.chunked_array([[1], [2]])}),
        pyarrow.table({"n": pyarrow.array([], pyarrow.int64())}),
        pyarrow.table({}),
        pyarrow.table({f"column {n}": [n] * 3 for n in range(500)}),
        pyarrow.table({"nested": [{"a": [1, 2]}, None]}).replace_schema_metadata({"by": "test"}),
    ]


@pytest.mark.parametrize("table", tables(), ids=lambda table: f"{table.num_rows}x{table.num_columns}")
def test_a_table_comes_back_with_its_schema(ann: Caller, table: pyarrow.Table) -> None:
    pointer = ann.offload(table)
    found = ann.resolve(pointer)
    assert found.equals(table, check_metadata=True)
    assert pointer.items == table.num_rows
    ann.sound()


@pytest.mark.parametrize(
    "frame",
    [
        pandas.DataFrame({"n": range(2_000), "t": pandas.date_range("2026-01-01", periods=2_000, freq="h")}),
        pandas.DataFrame({"n": [1.5, None]}, index=["x", "y"]),
        pandas.DataFrame({"kind": pandas.Categorical(["a", "b", "a"])}),
        pandas.DataFrame(),
    ],
    ids=["dates", "index", "categories", "empty"],
)
def test_a_data_frame_comes_back_as_a_data_frame(ann: Caller, frame: pandas.DataFrame) -> None:
    pandas.testing.assert_frame_equal(ann.resolve(ann.offload(frame)), frame)


@pytest.mark.parametrize(
    "view",
    [memoryview(b"abcdef"), memoryview(b"abcdef")[::2], memoryview(numpy.arange(5_000, dtype="<i4")), memoryview(b"")],
    ids=["plain", "with gaps", "of numbers", "empty"],
)
def test_any_view_of_bytes_comes_back_as_its_bytes(ann: Caller, view: memoryview) -> None:
    assert ann.resolve(ann.offload(view)) == view.tobytes()


def with_attrs() -> pandas.DataFrame:
    frame = pandas.DataFrame({"n": [1]})
    frame.attrs = {"units": {"cm"}}
    return frame


NOT_KEPT: dict[str, Any] = {
    "generator": (character for character in "abc"),
    "an array of objects, which LangGraph gives back as None": numpy.array([1, "a", None], dtype=object),
    "an array of records, without their names": numpy.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]),
    "the same inside of a list": [1, {"grid": numpy.array([None], dtype=object)}],
    "half a surrogate pair in JSON, as a question mark": ["\ud800", 1],
    "an error, as its text": {"error": ValueError("no")},
    "an integer of 65 bits": [2**64],
    "a list that holds itself": (lambda found: found.append(found) or found)([]),
}


@pytest.mark.parametrize("value", NOT_KEPT.values(), ids=NOT_KEPT)
def test_what_would_not_come_back_as_it_was_is_refused(ann: Caller, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"type {type(value).__name__} cannot be stored"):
        ann.offload(value)
    assert ann.usage().pointers == 0


@pytest.mark.filterwarnings("ignore:Could not serialize pd.DataFrame.attrs")
def test_a_frame_whose_attributes_arrow_would_drop_is_refused(ann: Caller) -> None:
    with pytest.raises(InvalidRequestError, match="type DataFrame cannot be stored"):
        ann.offload(with_attrs())


@pytest.mark.parametrize(
    "wrong",
    [
        *({"ttl_ms": number} for number in (0, -1, 1.5, "5", True, 2**53, 2**63, 10**400)),
        *(
            {"media_type": given}
            for given in (5, "text", "text/csv\r\nSet-Cookie: a=b", "text/ж", "a/" + "x" * 200, "/")
        ),
        {"name": 5},
    ],
    ids=lambda wrong: repr(wrong)[:40],
)
def test_options_that_make_no_sense_are_refused_and_nothing_is_stored(ann: Caller, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
        ann.offload("value", **wrong)
    assert ann.usage().pointers == 0
    assert ann.list().pointers == ()


def test_a_century_and_a_parameter_of_a_media_type_are_taken(ann: Caller) -> None:
    pointer = ann.offload("value", ttl_ms=100 * 365 * 86_400_000, media_type="text/csv; header=present", name="\ud800")
    assert ann.describe(pointer.id) == pointer
    assert pointer.expires_at_ms > pointer.created_at_ms
    assert (pointer.media_type, pointer.name) == ("text/csv; header=present", "?")


def test_compressed_values_come_back_and_take_less(world: World) -> None:
    text = "".join(f"{number} is a line of a log\n" for number in range(4_000))
    settings = all_settings.Pointers(chunk_bytes=4_096, batch_bytes=16_384, compress_bytes_min=1)
    with world.open(settings=settings) as pointers:
        pointer = pointers.offload(text)
        assert pointers.usage().bytes < len(text) / 2
        assert pointers.resolve(pointer) == text
        assert pointers.slice(pointer, "lines", 2_000, 1).content == "2000 is a line of a log\n"
        assert pointers.slice(pointer, "characters", 50_000, 10).content == text[50_000:50_010]
        assert [match.line for match in pointers.search(pointer, "3999 is").matches] == [3_999]
        noise = pointers.offload(bytes(numpy.random.default_rng(1).bytes(50_000)))
        before = pointers.usage().bytes
        pointers.delete(noise)
        assert before - pointers.usage().bytes > 50_000  # what does not shrink is stored as it is
        pointers.sound()


# Once ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["x" * 900, "y" * 30_000], ids=["one round trip", "several"])
def test_equal_values_are_stored_once_and_live_until_the_last_pointer_goes(ann: Caller, value: str) -> None:
    pointers = [ann.offload(value) for _ in range(3)]
    assert len({pointer.id for pointer in pointers}) == 3
    assert ann.usage().values == 1
    assert ann.usage().bytes < 2 * len(value) + 4_000
    ann.delete(pointers[0])  # the one whose chunks they are
    ann.delete(pointers[2])
    assert ann.resolve(pointers[1]) == value
    assert ann.sound().values == 1
    ann.delete(pointers[1])
    assert (ann.usage().values, ann.usage().bytes) == (0, 0)
    ann.sound()


def test_a_server_that_has_forgotten_its_functions_is_taught_them_and_gets_the_value_again(
    ann: Caller, world: World
) -> None:
    for value in ("a", "b" * 3_500):  # of one chunk, of several
        world.client.function_flush()
        assert ann.resolve(ann.offload(value)) == value
    ann.sound()


def test_an_equal_value_of_several_batches_is_not_sent_again(ann: Caller) -> None:
    ann.offload("z" * 50_000)
    wire = Wire(ann.owner)
    ann.offload("z" * 50_000)
    parts = [part for batch in wire.batches for command in batch.commands for part in command]
    sent = sum(len(part) for part in parts if isinstance(part, str | bytes | memoryview))
    assert wire.take() == 2
    assert sent < 5_000


def test_text_and_array_and_bytes_of_the_same_bytes_do_not_meet(ann: Caller) -> None:
    text = ann.offload("[1,2,3]")
    array = ann.offload([1, 2, 3])
    raw = ann.offload(b"[1,2,3]")
    assert [ann.resolve(pointer) for pointer in (text, array, raw)] == ["[1,2,3]", [1, 2, 3], b"[1,2,3]"]
    assert text.hash == array.hash == raw.hash
    assert ann.slice(text, "characters", 0, 3).content == "[1,"
    assert ann.slice(array, "items", 1, 1).content == [2]
    ann.sound()


# Limits and damage ---------------------------------------------------------------------------------------------------


def test_a_value_above_the_setting_is_refused_and_nothing_is_stored(world: World) -> None:
    with world.open(settings=all_settings.Pointers(value_bytes_max=2_000, chunk_bytes=1_024)) as pointers:
        with pytest.raises(TooLargeError, match="over 2000 bytes"):
            pointers.offload("x" * 2_001)
        assert pointers.resolve(pointers.offload("x" * 2_000)) == "x" * 2_000
        assert len(world.client.keys(b"*:c:*")) == 2
        pointers.sound()


def test_an_upload_that_its_caller_gives_up_takes_no_room(world: World) -> None:
    class GivenUpError(BaseException):
        pass

    def given_up(steps: Steps[Any], after: int) -> Steps[Any]:
        request = next(steps)
        for _ in range(after):
            request = steps.send((yield request))
        request = steps.throw(GivenUpError())
        while True:
            request = steps.send((yield request))

    limits = all_settings.Pointers(chunk_bytes=1_024, batch_bytes=2_048, tenant_bytes_max=100_000)
    with world.open(settings=limits) as pointers:
        for after in range(2, 6):  # encoded; then: hashed, claimed, and some of it sent
            with pytest.raises(GivenUpError):
                pointers.run(given_up(offload(pointers.scope, os.urandom(60_000)), after))
            assert pointers.usage().bytes == 0
            pointers.delete(pointers.offload(os.urandom(60_000)))
        pointers.sound()


@pytest.mark.parametrize("size", [3_000, 60_000], ids=["one round trip", "several"])
def test_a_quota_holds_and_what_it_refuses_leaves_nothing(ann: Caller, size: int) -> None:
    one = ann.offload("a" * size)
    used = ann.usage().bytes
    full = ann.limited(tenant_bytes_max=used + size)
    with pytest.raises(QuotaExceededError, match=rf"take {used} of {used + size}") as refused:
        full.offload("b" * size)
    assert refused.value.data["bytes_max"] == used + size
    assert full.usage().bytes == used
    full.offload("a" * size)  # an equal value takes only its record
    ann.sound()
    ann.delete(one)
    full.offload("c" * 100)
    ann.sound()


def test_a_full_redis_takes_nothing_half(redis_server: ServerFactory, event_loop_thread: Loop) -> None:
    url = redis_server().url
    with redis.Redis.from_url(url) as client, World(url, client, event_loop_thread, False, 3).open() as ann:
        kept = ann.offload("kept" * 2_000)
        # It becomes full in the middle of an upload: the first of some large values that does not fit.
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 300_000)
        with pytest.raises(ServerFullError):
            fill(ann)
        assert ann.sound().uploads == 0
        client.config_set("maxmemory", 1)
        with pytest.raises(ServerFullError):
            ann.offload("small")
        assert ann.resolve(kept) == "kept" * 2_000
        assert ann.delete(kept) is True  # freeing works when Redis is full
        client.config_set("maxmemory", 0)
        ann.sound()


def fill(pointers: Caller) -> None:
    while True:
        pointers.offload(os.urandom(200_000))


@pytest.mark.parametrize("size", [900, 30_000])
def test_damage_is_told_and_never_returned(ann: Caller, world: World, size: int) -> None:
    pointer = ann.offload("d" * size)
    key = next(key for key in world.client.keys(b"*:c:*:0"))
    value = world.client.get(key)
    world.client.set(key, b"D" + value[1:])
    with pytest.raises(CorruptRecordError, match=f"pointer {pointer.id}: chunk 0 of .* checksum differs"):
        ann.resolve(pointer)
    world.client.set(key, b"\xff" + value[1:])
    with pytest.raises(CorruptRecordError, match="checksum differs"):
        ann.slice(pointer, "characters", 0, 10)
    world.client.delete(key)
    with pytest.raises(CorruptRecordError, match=r"chunk 0 of .* is gone"):
        ann.resolve(pointer)
    assert not ann.inspect().sound
    with pytest.raises(CorruptRecordError):
        ann.slice(pointer, "characters", 0, 10)


def test_damaged_records_are_typed_errors(ann: Caller, world: World) -> None:
    pointer = ann.offload("value")
    (records,) = world.client.keys(b"*:h")
    raw = world.client.hget(records, b"r" + pointer.id.encode())
    world.client.hset(records, b"r" + pointer.id.encode(), raw[:142] + b"\xff")
    with pytest.raises(CorruptRecordError, match="record does not decode"):
        ann.resolve(pointer)


def test_an_id_that_is_none_leads_nowhere(ann: Caller) -> None:
    near = ("mp_" + "a" * 25, "mp_" + "A" * 26, "mp_" + "a" * 26 + "\n", "mp_" + "1" * 26)
    for wrong in ("", "mp_", *near, "x" * 1_000_000, None, 7, "мп_", "mp_*", "\0", "\ud800"):
        with pytest.raises(PointerNotFoundError) as refused:
            ann.resolve(wrong)
        assert len(str(refused.value)) < 300
    with pytest.raises(PointerNotFoundError):
        ann.slice("mp_" + "a" * 26)


def test_nobody_waits_behind_more_than_256_kb_of_a_large_value(world: World) -> None:
    with world.open(principal="ann", settings=all_settings.Pointers()) as ann:
        wire = Wire(ann.owner)
        pointer = ann.offload(b"x" * 3_000_000)
        for batch in wire.batches:
            assert sum(len(command[2]) for command in batch.commands if command[0] == "SET") <= 256 * 1024
            assert sum(command[0] == "FCALL" for command in batch.commands) == 1
        assert ann.resolve(pointer) == b"x" * 3_000_000


def test_a_ttl_ends_a_pointer_for_its_owner_with_a_word_of_its_own(ann: Caller) -> None:
    pointer = ann.offload("short-lived", ttl_ms=1)
    assert pointer.expires_at_ms == pointer.created_at_ms + 1
    assert until_expired(ann, pointer.id)
    with pytest.raises(PointerNotFoundError) as foreign:
        ann.bind("bob").resolve(pointer.id)
    assert not isinstance(foreign.value, PointerExpiredError)


def until_expired(pointers: Caller, pointer_id: str) -> bool:
    """Resolve until that is refused: the clock of Redis decides when."""
    while True:
        try:
            pointers.resolve(pointer_id)
        except PointerExpiredError:
            return True


def test_a_stored_value_is_readable_by_the_other_colour_and_by_other_settings(ann: Caller, world: World) -> None:
    pointer = ann.offload(ROWS)
    with Pointers(world.url, principal="ann") as other:
        assert other.resolve(pointer.id) == ROWS
        assert other.offload(ROWS).hash == pointer.hash
        assert other.usage().values == 1


def test_settings_out_of_bounds_are_refused(ann: Caller) -> None:
    for wrong in (0, -1, 1.5, "1", True):
        with pytest.raises(InvalidRequestError, match="ttl_ms"):
            ann.offload("x", ttl_ms=wrong)
