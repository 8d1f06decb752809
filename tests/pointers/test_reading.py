"""Looking into a value: every part of it can be had, no answer is too large, and nothing that is asked can hang."""

from __future__ import annotations

import json
import math
import re
import time
from typing import Any

import orjson
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rtmem import settings as all_settings
from rtmem.errors import InvalidRequestError, QueryError, QueryLimitError, RtmemError, TooLargeError
from rtmem.operations import pointer_continuations as continuations
from rtmem.pointers import Pointers
from rtmem.records import Matches, Slice
from tests.pointers.colours import SMALL, Caller, World
from tests.wire import Wire

ASCII = "".join(f"{number} a line of a log, level={'error' if number % 7 == 0 else 'info'}\n" for number in range(400))
MIXED = "".join(f"{number} при́вет 👩‍👩‍👧 мир{' длинно' * (number % 5)}\n" for number in range(300)) + "no end of line"
ONE_LINE = json.dumps([{"id": number, "text": "ü" * (number % 50)} for number in range(200)], ensure_ascii=False)
TEXTS = {
    "ascii": ASCII,
    "mixed": MIXED,
    "one line": ONE_LINE,
    "short": "ab\n\ncd",
    "empty": "",
    "line ends": "\n" * 2_500,
    # Characters of four bytes, in chunks that end where an answer of 512 or 256 of them would.
    "wide": "🙂" * 1_536 + "\nend of it",
}
RECORDS = [{"id": number, "name": f"row {number}", "tags": ["a"] * (number % 3)} for number in range(500)]
OBJECT = {f"key {number}": {"n": number} for number in range(500)}


def everything(ask: Any) -> list[Slice]:
    """An answer and all that follow it."""
    answers = [ask("")]
    while answers[-1].continuation:
        answers.append(ask(answers[-1].continuation))
        assert len(answers) < 20_000
    return answers


def outcome(call: Any) -> Any:
    """What a call answers, or the error of rtmem that it raises; no other error is one."""
    try:
        return call()
    except RtmemError as exc:
        return exc


def bounded(answer: Any) -> bool:
    """Whether an answer, or the words of an error, are short enough for a conversation."""
    return len(str(answer)) < (1_600 if isinstance(answer, Exception) else 40 * SMALL.output_characters_max)


# slice ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("unit", ["characters", "lines", "bytes"])
@pytest.mark.parametrize("characters_max", [97, 256, 512, 3_000])
def test_slices_that_follow_each_other_are_the_whole(ann: Caller, text: str, unit: Any, characters_max: int) -> None:
    pointer = ann.offload(text)
    answers = everything(lambda more: ann.slice(pointer, unit, characters_max=characters_max, continuation=more))
    empty: Any = b"" if unit == "bytes" else ""
    whole = empty.join(answer.content for answer in answers)
    assert whole == (text.encode() if unit == "bytes" else text)
    assert all(len(answer.content) <= characters_max for answer in answers)
    totals = {
        "characters": len(text),
        "bytes": len(text.encode()),
        "lines": len(text.split("\n")) - text.endswith("\n"),
    }
    assert answers[0].total == (totals[unit] if text else 0)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_range_of_characters_and_lines_is_what_python_says(ann: Caller, text: str) -> None:
    pointer = ann.offload(text)
    lines = text.splitlines(keepends=True)
    for start in (0, 1, 37, 1_023, 1_024, 1_025, 3_000, len(text) - 1, len(text), len(text) + 10**9):
        for count in (0, 1, 100, 2_000):
            if start >= 0:
                assert ann.slice(pointer, "characters", start, count).content == text[start : start + count]
                raw = text.encode()
                assert ann.slice(pointer, "bytes", start, count).content == raw[start : start + count]
                found = ann.slice(pointer, "lines", start, min(count, 30))
                assert found.content == "".join(lines[start : start + min(count, 30)])[: SMALL.output_characters_max]


@pytest.mark.parametrize(("value", "total"), [(RECORDS, 500), (OBJECT, 500), ([], 0), ([["x" * 5_000], 1], 2)])
def test_items_that_follow_each_other_are_the_whole(ann: Caller, value: Any, total: int) -> None:
    pointer = ann.offload(value)
    answers = everything(lambda more: ann.slice(pointer, "items", characters_max=700, continuation=more))
    members = [list(entry) for entry in value.items()] if isinstance(value, dict) else value
    found = [item for answer in answers for item in answer.content]
    cut = [answer for answer in answers if answer.excerpt]
    assert len(found) + len(cut) == total == len(members)
    if not cut:
        assert found == members
    for answer in answers:
        assert len(orjson.dumps(answer.content)) <= 720
        assert len(answer.excerpt) <= 700
        assert answer.total == total


@pytest.mark.parametrize("value", [RECORDS, OBJECT])
def test_items_are_found_however_short_the_preview_is(ann: Caller, value: Any) -> None:
    pointer = ann.limited(preview_characters_max=1).offload(value)
    members = [list(entry) for entry in value.items()] if isinstance(value, dict) else value
    assert ann.slice(pointer, "items", 400, 2).content == members[400:402]


def test_what_is_nearly_json_is_looked_into_like_json(ann: Caller) -> None:
    rows = [{"price": number / 2, 7: (number, b"raw")} for number in range(500)] + [{"price": math.inf}]
    pointer = ann.offload(rows)
    assert pointer.shape == "array of 501 objects {price: number, 7: <tuple>}"
    assert pointer.head.startswith('[{"price":0.0,"7":[0,"<bytes>"]},')
    assert pointer.items == 501
    assert ann.slice(pointer, "items", 499, 2).content == [{"price": 249.5, 7: [499, b"raw"]}, {"price": math.inf}]
    assert ann.select(pointer, "[?price > `249`].price").text == "[249.5,null]"
    with pytest.raises(QueryError, match="no JSON"):
        ann.select(pointer, "[0]")
    with pytest.raises(QueryError, match="has no items: use bytes"):
        ann.slice(ann.offload({1, 2}), "items")


@pytest.mark.parametrize("start", [0, 1, 250, 499, 500, 10**12])
def test_any_range_of_items_and_rows_is_what_python_says(ann: Caller, start: int) -> None:
    table = pyarrow.Table.from_pylist([{"id": row["id"], "name": row["name"]} for row in RECORDS])
    for value, unit, members in (
        (RECORDS, "items", RECORDS),
        (json.dumps(RECORDS), "items", RECORDS),
        (OBJECT, "items", [list(entry) for entry in OBJECT.items()]),
        (table, "rows", table.to_pylist()),
    ):
        pointer = ann.offload(value)
        found = ann.slice(pointer, unit, start, 3)
        assert found.content == members[start : start + 3]
        assert bool(found.continuation) is False
        assert found.total == 500


def test_rows_of_a_wide_table_are_bounded_too(ann: Caller) -> None:
    table = pyarrow.table({f"column {number}": ["value"] * 5 for number in range(3_000)})
    pointer = ann.offload(table)
    answers = everything(lambda more: ann.slice(pointer, "rows", characters_max=500, continuation=more))
    assert [len(answer.excerpt) for answer in answers] == [500] * 5
    assert not any(answer.content for answer in answers)


def test_a_single_line_of_megabytes_is_read_piece_by_piece(ann: Caller) -> None:
    pointer = ann.offload("x" * 20_000)
    first = ann.slice(pointer, "lines", 0, 1, characters_max=1_000)
    assert first.content == "x" * 1_000
    assert first.total == 1
    assert first.continuation


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        ("text", "rows", "has no rows: use"),
        ("text", "items", "has no items: use lines or characters or bytes"),
        (b"bytes", "characters", "has no characters: use bytes"),
        ({1, 2}, "items", "has no items: use bytes"),
        ([1], "rows", "use items or lines or characters or bytes"),
        ("text", "pages", "unit 'pages': use one of bytes, characters, lines, items, rows"),
        ("text", "x" * 1_000_000, "unit"),
    ],
)
def test_a_unit_that_does_not_fit_names_those_that_do(ann: Caller, value: Any, unit: Any, said: str) -> None:
    pointer = ann.offload(value)
    with pytest.raises(QueryError, match=said) as refused:
        ann.slice(pointer, unit)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("wrong", [-1, 1.5, "1", None, True, 2**60, float("nan"), [1], "x" * 1_000_000])
def test_a_range_that_is_none_is_refused_in_few_words(ann: Caller, wrong: Any) -> None:
    pointer = ann.offload("text")
    with pytest.raises(QueryError) as refused:
        ann.slice(pointer, "characters", wrong)
    assert len(str(refused.value)) < 300
    if wrong is not None:
        with pytest.raises(QueryError):
            ann.slice(pointer, "characters", 0, wrong)
        with pytest.raises(QueryError):
            ann.slice(pointer, "characters", characters_max=wrong)


def test_a_number_too_long_to_be_written_out_is_refused_too(ann: Caller) -> None:
    pointer, huge = ann.offload("text"), 10**5_000
    for start, count in ((huge, None), (0, huge)):
        with pytest.raises(QueryError, match="is <int>: a whole number"):
            ann.slice(pointer, "characters", start, count)
    with pytest.raises(InvalidRequestError, match="from 1 to 100 pointers"):
        ann.list(limit=huge)


def test_a_continuation_fits_its_own_question_only(ann: Caller) -> None:
    pointer, other = ann.offload(ASCII), ann.offload(MIXED)
    more = ann.slice(pointer, "characters", 0, characters_max=100).continuation
    assert len(more) <= 40
    assert ann.slice(pointer, "characters", 0, continuation=more, characters_max=10).content == ASCII[100:110]
    found = ann.search(pointer, "line", matches_max=1).continuation
    wrong = [
        (other, "characters", 0, None, more),
        (pointer, "lines", 0, None, more),
        (pointer, "characters", 1, None, more),
    ]
    wrong += [
        (pointer, "characters", 0, 5, more),
        (pointer, "characters", 0, None, found),
        (pointer, "bytes", 0, None, "x"),
    ]
    wrong += [(pointer, "characters", 0, None, bad) for bad in ("!", more[:-2], more + "aa", "ü" * 50, "a" * 1_000_000)]
    for pointer_, unit, start, count, continuation in wrong:
        with pytest.raises(QueryError, match="belongs to another question"):
            ann.slice(pointer_, unit, start, count, continuation=continuation)
    with pytest.raises(QueryError):
        ann.search(pointer, "other", continuation=found)
    for nonsense in ("nonsense", 5, None, b""):
        with pytest.raises(QueryError):
            ann.list(continuation=nonsense)


@given(
    positions=st.lists(
        st.one_of(st.integers(-1, 9_000), st.sampled_from([2**53, 2**53 + 1, 2**60])), min_size=3, max_size=3
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_continuation_that_was_made_up_is_answered_within_bounds_or_refused(
    fuzzed: Any, positions: list[int]
) -> None:
    pointers, ids = fuzzed
    units = [(1, unit) for unit in ("characters", "lines", "bytes")] + [(3, "items"), (5, "bytes")]
    for which, unit in units:
        made_up = continuations.pack(("slice", ids[which], unit, 0, None), positions)
        answer = outcome(
            lambda which=which, unit=unit, made_up=made_up: pointers.slice(  # type: ignore[misc]
                ids[which], unit, continuation=made_up, characters_max=50
            )
        )
        assert isinstance(answer, QueryError) or len(answer.content) <= 50
    for pattern, regex in (("м", False), ("[аи]", True)):
        made_up = continuations.pack(("search", ids[1], pattern, regex, False), positions[:1])
        answer = outcome(
            lambda pattern=pattern, regex=regex, made_up=made_up: pointers.search(  # type: ignore[misc]
                ids[1], pattern, regex=regex, continuation=made_up
            )
        )
        assert bounded(answer)
        assert isinstance(answer, QueryError) or all(match.match for match in answer.matches)


def test_an_item_that_is_nested_too_deep_for_json_is_told_how_to_be_read(ann: Caller) -> None:
    pointer = ann.offload("[1, " + "[" * 600 + "]" * 600 + "]")
    assert ann.slice(pointer, "items", 0, 1).content == [1]
    with pytest.raises(QueryError, match=r"items 1 of .* read it as characters"):
        ann.slice(pointer, "items", 1)


def test_round_trips_are_as_promised(ann: Caller, world: World) -> None:
    with world.open(principal="ann", settings=all_settings.Pointers()) as pointers:
        wire = Wire(pointers.owner)

        def trips(call: Any) -> int:
            wire.take()
            call()
            return wire.take()

        def offloaded(value: Any) -> Any:
            pointer: Any = pointers.offload(value)
            return pointer

        assert trips(lambda: offloaded("small")) == 1
        assert trips(lambda: offloaded("x" * 1_000_000)) == 1
        assert trips(lambda: offloaded("y" * 3_000_000)) == 1 + 12  # 256 KB each
        small, middle, large = offloaded("small"), offloaded("m" * 1_000_000), offloaded(b"b" * 3_000_000)
        assert trips(lambda: pointers.resolve(small)) in (1, 2)  # an equal one was there before
        assert trips(lambda: pointers.resolve(middle)) == 1
        assert trips(lambda: pointers.resolve(large)) == 3
        assert trips(lambda: pointers.describe(large)) == 1
        assert trips(lambda: pointers.slice(large, "bytes", 1_500_000, 4_096)) == 1
        assert trips(lambda: pointers.slice(middle, "characters", 500_000, 4_096)) == 1
        text = offloaded(MIXED * 40)
        assert trips(lambda: pointers.slice(text, "characters", 100_000, 4_096)) == 2
        assert trips(lambda: pointers.slice(text, "lines", 5_000, 5)) in (2, 3)
        assert trips(lambda: pointers.slice(offloaded(MIXED[:10_000]), "lines", 50, 5)) == 2  # one of them offloads
        assert trips(lambda: pointers.search(middle, "nowhere")) == 1
        needles = offloaded("n" * 3_000_000)
        assert trips(lambda: pointers.search(needles, "nowhere")) == 3
        assert trips(lambda: pointers.select(offloaded({"a": 1}), "a")) == 2  # one of them offloads
        for verb in (
            lambda: pointers.pin(small, "t"),
            lambda: pointers.unpin(small, "t"),
            pointers.list,
            pointers.usage,
        ):
            assert trips(verb) == 1
        assert trips(lambda: pointers.delete(large)) == 1


def test_a_part_of_a_large_value_reads_only_its_chunks(world: World) -> None:
    with world.open(settings=all_settings.Pointers()) as pointers:
        pointer = pointers.offload(MIXED * 100)
        before = world.client.info("stats")["total_net_output_bytes"]
        pointers.slice(pointer, "lines", 15_000, 5)
        assert world.client.info("stats")["total_net_output_bytes"] - before < 450_000  # one or two chunks, of 3 MB


# search --------------------------------------------------------------------------------------------------------------


def all_matches(pointers: Any, pointer: Any, pattern: str, **options: Any) -> list[Any]:
    found: list[Any] = []
    more = ""
    for _ in range(10_000):
        answer: Matches = pointers.search(pointer, pattern, continuation=more, **options)
        found += answer.matches
        more = answer.continuation
        if not more:
            assert answer.searched_characters == answer.characters
            return found
    raise AssertionError("a search without end")


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("pattern", ["error", "line", "мир", "👩‍👩‍👧", "\n", "9", "ü", "id"])
def test_every_place_is_found_once_with_its_line(ann: Caller, text: str, pattern: str) -> None:
    pointer = ann.offload(text)
    for matches_max in (7, 1_000):
        found = all_matches(ann, pointer, pattern, matches_max=matches_max)
        assert [match.start for match in found] == [match.start() for match in re.finditer(re.escape(pattern), text)]
        assert [match.line for match in found] == [text.count("\n", 0, match.start) for match in found]
        assert all(match.match == pattern and pattern in match.text for match in found)


@pytest.mark.parametrize(
    "pattern", [r"^\d+ при", r"level=\w+$", "мир( длинно)+", r"(?i)ERROR", "[👩а-я]+", r"\bline\b"]
)
def test_regular_expressions_find_what_python_finds(ann: Caller, pattern: str) -> None:
    for text in (ASCII, MIXED):
        pointer = ann.offload(text)
        expected = [match.start() for match in re.finditer(pattern, text, re.MULTILINE)]
        assert [match.start for match in all_matches(ann, pointer, pattern, regex=True)] == expected


def test_a_literal_is_no_regular_expression_and_case_can_be_ignored(ann: Caller) -> None:
    pointer = ann.offload("a.c abc A.C ПРИВЕТ")
    assert [match.start for match in ann.search(pointer, "a.c").matches] == [0]
    assert [match.start for match in ann.search(pointer, "a.c", ignore_case=True).matches] == [0, 8]
    assert [match.start for match in ann.search(pointer, "привет", ignore_case=True).matches] == [12]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "no regular expression of RE2"),
        (r"(a)\1", "no regular expression of RE2"),
        ("(?=a)", "no regular expression of RE2"),
        ("a*", "matches nothing at all"),
        ("", "at least one character"),
        ("x" * 1_001, "at most 1000"),
        ("(a{1,1000}){1,1000}", "RE2"),
        ("((a{1,10}){1,10}){1,9}\\pL{9}" * 4, "steps|RE2"),
        (b"bytes", "at least one character"),
        (None, "at least one character"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_told_why(ann: Caller, pattern: Any, said: str) -> None:
    pointer = ann.offload("text")
    with pytest.raises(QueryError, match=said) as refused:
        ann.search(pointer, pattern, regex=True)
    assert len(str(refused.value)) < 500


def test_what_is_no_text_cannot_be_searched(ann: Caller) -> None:
    with pytest.raises(QueryError, match="only text and JSON"):
        ann.search(ann.offload(b"bytes"), "b")


def test_an_answer_of_a_search_is_bounded(ann: Caller) -> None:
    pointer = ann.offload("x" * 50_000 + "\n" + "needle " * 5_000)
    answer = ann.search(pointer, "needle", matches_max=1_000, characters_max=2_000)
    assert sum(len(match.text) + len(match.match) for match in answer.matches) <= 2_000
    assert answer.continuation
    found = ann.search(pointer, "x+", regex=True).matches
    assert all(len(match.text) <= 400 and len(match.match) <= 200 for match in found)


# select --------------------------------------------------------------------------------------------------------------


def test_select_takes_json_and_text_that_is_json(ann: Caller) -> None:
    for value in (RECORDS, json.dumps(RECORDS), json.dumps(RECORDS, indent=2)):
        pointer = ann.offload(value)
        assert ann.select(pointer, "[?id > `497`].name").text == '["row 498","row 499"]'
        assert ann.select(pointer, "length(@)").text == "500"
        assert ann.select(pointer, "nothing").text == "null"
        assert ann.select(pointer, "{first: [0].id, last: [-1].id}").text == '{"first":0,"last":499}'


def test_a_long_selection_continues(ann: Caller) -> None:
    pointer = ann.offload(RECORDS)
    expected = orjson.dumps([row["name"] for row in RECORDS]).decode()
    text = more = ""
    while True:
        answer = ann.select(pointer, "[].name", characters_max=500, continuation=more)
        assert answer.start == len(text)
        assert answer.characters == len(expected)
        assert len(answer.text) <= 500
        text, more = text + answer.text, answer.continuation
        if not more:
            break
    assert text == expected


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("[", "no JMESPath"),
        ("", "needs a JMESPath"),
        ("   ", "needs a JMESPath"),
        ("x" * 1_001, "at most 1000"),
        ("no_such_function(@)", "Unknown function"),
        ("length(`1`)", r"length\(\) takes string or array or object, and got number"),
        ("sort(@)", r"sort\(\) takes"),
        ("[" * 500, "nested too deep|no JMESPath"),
        ("&id", "no JSON"),
        (None, "needs a JMESPath"),
    ],
)
def test_an_expression_that_cannot_be_used_is_told_why(ann: Caller, expression: Any, said: str) -> None:
    pointer = ann.offload(RECORDS)
    with pytest.raises(QueryError, match=said) as refused:
        ann.select(pointer, expression)
    assert len(str(refused.value)) < 500


EXPLOSIONS = [
    "[@, @]" + "|[@, @]" * 60,
    "[@, @]" + "|[@, @]" * 60 + "|to_string(@)",
    "[@, @][]" + "|[@, @][]" * 60,
    f"({'[@, @]' + '|[@, @]' * 40}) == ({'[@, @]' + '|[@, @]' * 40})",
    f"contains({'[@, @]' + '|[@, @]' * 40}, {'[@, @]' + '|[@, @]' * 40})",
    "sum(to_array([@, @]" + "|[@, @]" * 60 + "))",
    "[].[@, @][].[@, @][].[@, @][].[@, @][].[@, @][].[@, @][].[@, @][].[@, @][].[@, @][].[@, @][].[@, @][].[@, @]",
    "map(&to_string(@), [@, @, @, @][])",
    "join(to_string(@), map(&to_string(@), [@, @, @, @, @, @, @, @][]))",
    "[?[0] == [?[0] == [?[0] == [?[0] == id]]]]",
    "sort_by([@, @, @, @, @, @][][], &to_string(@))",
]


@pytest.mark.parametrize("expression", EXPLOSIONS, ids=range(len(EXPLOSIONS)))
def test_an_expression_that_would_explode_is_stopped(ann: Caller, expression: str) -> None:
    pointer = ann.offload([RECORDS[:50], [1, 2, 3]])
    assert bounded(outcome(lambda: ann.select(pointer, expression)))


def test_json_too_large_to_decode_is_refused_with_what_to_do(ann: Caller) -> None:
    pointer = ann.limited(select_bytes_max=1_000).offload(RECORDS)
    with pytest.raises(TooLargeError, match="use slice or search"):
        ann.limited(select_bytes_max=1_000).select(pointer, "[0]")


def test_text_that_is_no_json_is_told(ann: Caller) -> None:
    with pytest.raises(QueryError, match="text that is no JSON"):
        ann.select(ann.offload("{no json"), "a")
    with pytest.raises(QueryError, match="not JSON"):
        ann.select(ann.offload(b"bytes"), "a")


# Fuzz ----------------------------------------------------------------------------------------------------------------

FUZZ_S_MAX = 20.0
"""No question may hang. The promise is 100 ms of computing; a test on a loaded machine only tells minutes from it."""

HARD_PATTERNS = [
    *("(x+x+)+y", "(a|a)+$", "(.*)(.*)(.*)(.*)z", "(a?){100}a{100}", ".{500}z", "(x{1,30}){1,30}y", r"(\pL\pN?){40}z"),
    *("(?i)(x|X|\\x{0445})+\u0444", "[^y]*y{50}", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x|xx|xxx|xxxx)+y"),
]


@pytest.mark.parametrize("pattern", HARD_PATTERNS)
def test_patterns_that_hang_other_engines_answer_here(ann: Caller, pattern: str) -> None:
    pointer = ann.offload("x" * 200_000)
    began = time.monotonic()
    assert bounded(outcome(lambda: ann.search(pointer, pattern, regex=True)))
    assert time.monotonic() - began < FUZZ_S_MAX


@pytest.fixture(scope="module")
def fuzzed(redis_url: str) -> Any:
    with Pointers(redis_url, principal="fuzz", settings=SMALL) as pointers:
        values = [ASCII, MIXED, ONE_LINE, RECORDS, OBJECT, b"bytes" * 1_000, {1, 2}]
        yield pointers, [pointers.offload(value).id for value in values]


FUZZ = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
anything = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.binary(max_size=9))


@FUZZ
@given(
    which=st.integers(0, 6),
    unit=st.sampled_from(["characters", "lines", "items", "rows", "bytes", "", "x"]),
    start=st.one_of(st.integers(0, 9_000), anything),
    count=st.one_of(st.none(), st.integers(0, 9_000), anything),
    characters_max=st.one_of(st.none(), st.integers(1, 9_000), anything),
    continuation=st.one_of(st.just(""), st.text(max_size=40)),
)
def test_any_range_is_answered_within_bounds_or_refused(
    fuzzed: Any, which: int, unit: Any, start: Any, count: Any, characters_max: Any, continuation: str
) -> None:
    pointers, ids = fuzzed
    assert bounded(
        outcome(
            lambda: pointers.slice(
                ids[which], unit, start, count, characters_max=characters_max, continuation=continuation
            )
        )
    )


@FUZZ
@given(
    which=st.integers(0, 6),
    pattern=st.one_of(
        st.text(max_size=40), st.text("abx01()[]{}*+?|.^$\\-,:dwsPLnü", max_size=30), st.sampled_from(HARD_PATTERNS)
    ),
    regex=st.booleans(),
    ignore_case=st.booleans(),
)
def test_any_pattern_is_answered_within_bounds_or_refused(
    fuzzed: Any, which: int, pattern: str, regex: bool, ignore_case: bool
) -> None:
    pointers, ids = fuzzed
    began = time.monotonic()
    assert bounded(outcome(lambda: pointers.search(ids[which], pattern, regex=regex, ignore_case=ignore_case)))
    assert time.monotonic() - began < FUZZ_S_MAX


WORDS = "@ . [ ] [] [*] * [? id name | {a: } , == `1` & ( ) length( sort_by( map(& to_string( max_by( [0] [::2] || !"
TOKENS = st.sampled_from(WORDS.split())


@FUZZ
@given(which=st.integers(0, 6), expression=st.one_of(st.lists(TOKENS, max_size=25).map("".join), st.text(max_size=30)))
def test_any_expression_is_answered_within_bounds_or_refused(fuzzed: Any, which: int, expression: str) -> None:
    pointers, ids = fuzzed
    began = time.monotonic()
    assert bounded(outcome(lambda: pointers.select(ids[which], expression)))
    assert time.monotonic() - began < FUZZ_S_MAX


def test_a_costly_expression_is_a_limit_and_no_hang(ann: Caller) -> None:
    pointer = ann.offload(list(range(3_000)))
    slow = "[*].[@, @, @][].[@, @, @][].[@, @, @][].[@, @, @][].[@, @, @][].[@, @, @][]"
    with pytest.raises(QueryLimitError, match=r"takes over 5 ms|more than an answer"):
        ann.limited(compute_ms_max=5).select(pointer, slow)
