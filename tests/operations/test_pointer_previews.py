"""What is told of a value: the same each time, whole characters only, and short whatever the value."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas
import pyarrow
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from rtmem.operations.pointer_media import media_type
from rtmem.operations.pointer_previews import (
    cut,
    cut_with_mark,
    estimate_tokens,
    head_and_tail,
    json_head,
    json_shape,
    preview,
    render,
    size_text,
)
from rtmem.records import Pointer

FAMILY, FLAG, ACCENT = "👩‍👩‍👧", "🇳🇴", "é"


@pytest.mark.parametrize("cluster", [FAMILY, FLAG, ACCENT, "한", "\r\n", "👍🏽", "नी"])
def test_a_cut_never_goes_through_a_character_as_people_see_it(cluster: str) -> None:
    text = "ab " + cluster * 40
    for characters_max in range(len(text)):
        kept = cut(text, characters_max)
        assert len(kept) <= characters_max
        if len(kept) > 3:
            assert kept == "ab " + cluster * ((len(kept) - 3) // len(cluster))


@given(st.text(max_size=300), st.integers(1, 200))
def test_head_and_tail_are_the_ends_of_the_text_and_short(text: str, characters_max: int) -> None:
    head, tail = head_and_tail(text, characters_max)
    assert text.startswith(head)
    assert text.endswith(tail)
    if len(text) <= characters_max:
        assert (head, tail) == (text, "")
    assert len(head) + len(tail) <= characters_max + 64
    assert "".join(regex.findall(r"\X", head)) == head


def test_a_run_of_marks_without_end_is_cut_anywhere_instead_of_kept_whole() -> None:
    text = "a" + "\u0301" * 10_000
    assert len(cut(text, 100)) <= 100
    assert len(head_and_tail(text, 90)[0]) <= 200


def test_the_shape_of_json_names_fields_and_counts() -> None:
    rows = [{"id": 1, "name": "a", "price": 1.5, "ok": True, "tags": ["x"], "none": None}] * 5_000
    assert json_shape(rows) == (
        "array of 5,000 objects {id: integer, name: string, price: number, ok: boolean, tags: array of 1 strings, "
        "none: null}"
    )
    assert json_shape({"results": rows, "total": 3}).startswith("object {results: array of 5,000 objects {id: integer")
    assert json_shape([]) == "empty array"
    assert json_shape({}) == "empty object"
    assert json_shape([1, "a", 2.0]) == "array of 3 integers or numbers or strings"
    assert (
        "and 88 more" in json_shape({f"f{number}": number for number in range(100)})
        or len(json_shape({f"f{number}": number for number in range(100)})) <= 300
    )


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "value",
    [
        {"long": "x" * 100_000, "last": 1},
        [{"long": "x" * 100_000, "last": 1}] * 3,
        {f"field {number}": "y" * 1_000 for number in range(1_000)},
        {"k" * 100_000: 1},
        deep(100),
        [[[[1] * 100] * 100] * 100],
        [FAMILY * 1_000] * 50,
    ],
    ids=range(7),
)
def test_one_long_field_hides_no_other_and_nothing_makes_a_preview_long(value: Any) -> None:
    head = json_head(value, 400)
    assert len(head) <= 400
    assert len(json_shape(value)) <= 300
    if isinstance(value, dict) and "last" in value:
        assert '"last":1' in head
        json.loads(head)


@pytest.mark.parametrize("characters_max", [1, 79, 80, 400])
def test_what_has_many_elements_or_rows_is_told_with_the_last_one(characters_max: int) -> None:
    rows = [{"id": number, "text": "x" * 50} for number in range(900)]
    for kind, value, last in (
        ("json", rows, '{"id":899,'),
        ("text", json.dumps(rows), '{"id":899,'),
        ("object", [*rows, {"id": math.nan}], '{"id":'),
        ("table", pyarrow.Table.from_pylist(rows), "899 | xxx"),
        ("dataframe", pandas.DataFrame(rows), "899 | xxx"),
    ):
        seen = preview(kind, "", value, characters_max, 1)  # type: ignore[arg-type]
        assert len(seen.head) + len(seen.tail) <= characters_max
        assert seen.tail.startswith(last if characters_max >= 80 else "")
        assert bool(seen.tail) == (characters_max >= 80)
    assert preview("json", "", rows[:3], 400).tail == preview("table", "", pyarrow.table({"a": [1]}), 400).tail == ""


def test_json_text_is_told_as_what_it_is() -> None:
    seen = preview("text", "text/plain", json.dumps([{"id": number} for number in range(900)]), 400)
    assert seen.shape == "JSON text: array of 900 objects {id: integer}"
    assert seen.items == 900
    assert preview("text", "text/plain", "{not json", 400, 1).shape == "1 line, 9 characters"
    long = json.dumps([{"id": number, "name": "x" * 40} for number in range(20_000)])
    assert (
        preview("text", "text/plain", long, 400, 1).shape == f"JSON text, by its ends: 1 line, {len(long):,} characters"
    )
    assert preview("text", "text/plain", long[:-1], 400, 1).shape == f"1 line, {len(long) - 1:,} characters"


def test_a_table_of_long_lists_is_told_without_making_objects_of_them() -> None:
    table = pyarrow.table({"id": [1, 2], "grid": [[[0.5] * 20_000]] * 2, "short": [[1, 2]] * 2})
    assert preview("table", "", table, 400).head == "id | grid | short\n1 | … | [1, 2]\n2 | … | [1, 2]"


def test_a_wide_table_shows_some_columns_and_says_how_many_there_are() -> None:
    table = pyarrow.table({f"column {number}": ["some text\nwith a line end"] * 4 for number in range(2_000)})
    seen = preview("table", "", table, 400)
    assert seen.shape.startswith("table of 4 rows x 2,000 columns (column 0: string, column 1: string")
    assert len(seen.shape) <= 300
    assert len(seen.head) <= 400
    assert seen.items == 4
    frame = preview("dataframe", "", pandas.DataFrame({"n": [1, 2], "t": ["a", "b"]}), 400)
    assert frame.shape.startswith("table of 2 rows x 2 columns (n: int64, t: ")
    assert frame.head == "n | t\n1 | a\n2 | b"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "audio/wav"),
        (b"RIFF\x24\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\x24\0\0\0AVI LIST", "application/octet-stream"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0", "video/mp4"),
        (b"\0\0\0\x18ftypM4A \0\0\0\0", "audio/mp4"),
        (b"\xff\xfb\x90\x64", "audio/mpeg"),
        (b"RIFF", "application/octet-stream"),
    ],
)
def test_images_and_sound_are_known_by_how_they_begin(raw: bytes, told: str) -> None:
    assert media_type("bytes", raw) == told


def test_images_and_sound_tell_their_size() -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (320).to_bytes(4) + (200).to_bytes(4)
    assert preview("bytes", "image/png", png, 400).shape == "320 x 200 pixels"
    assert preview("bytes", "image/gif", b"GIF89a" + b"\x40\x01\xc8\x00", 400).shape == "320 x 200 pixels"
    wave = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0" + (44_100).to_bytes(4, "little")
    assert preview("bytes", "audio/wav", wave, 400).shape == "2 channels, 44100 Hz"
    assert preview("bytes", "image/png", b"\x89PNG", 400).shape == ""


LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_preview_is_the_same_each_time_and_within_its_bounds(value: Any) -> None:
    if not isinstance(value, list | dict):
        value = [value]
    first = preview("json", "", value, 200)
    assert first == preview("json", "", json.loads(json.dumps(value)), 200)
    assert len(first.head) <= 200
    assert len(first.shape) <= 300


def test_what_a_model_is_told_names_the_units_that_suit() -> None:
    base = {"id": "mp_" + "a" * 26, "media_type": "text/plain", "bytes": 2_000_000, "tokens": 500_000}
    log = render(Pointer(kind="text", lines=20_000, characters=2_000_000, name="log", **base))
    assert log.splitlines()[0] == f"[log kept out of the conversation: {base['id']}"
    assert "2.0 MB, about 500,000 tokens" in log
    assert "read_pointer(unit='lines'), search_pointer" in log
    one_line = render(Pointer(kind="text", lines=1, characters=2_000_000, **base))
    assert "unit='characters'" in one_line
    assert "unit='rows'" in render(Pointer(kind="table", items=5, **base))
    assert "search_pointer" not in render(Pointer(kind="bytes", **base))
    assert "select_pointer" in render(Pointer(kind="text", lines=1, shape="JSON text: array of 3 integers", **base))


def test_sizes_and_tokens_are_told_in_round_numbers() -> None:
    assert [size_text(size) for size in (0, 999, 1_000, 1_234_567)] == ["0 bytes", "999 bytes", "1.0 kB", "1.2 MB"]
    assert (estimate_tokens("text", 400), estimate_tokens("json", 300), estimate_tokens("text", 0)) == (100, 100, 0)
    assert cut_with_mark("abcdef", 4) == "abc…"
