"""Scanning chunk by chunk finds what scanning the whole would find, wherever the cuts are."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtmem.errors import QueryError
from rtmem.operations.pointer_search import MATCH_BYTES_MAX, Pattern, Scan, compile_pattern


def scan(text: str, pattern: Pattern, cuts: list[int], **limits: int) -> Scan:
    """Feed `text` to a new scan, cut at these characters."""
    bounds = {"matches_max": 10_000, "characters_max": 10**9, "compute_ms_max": 10**6, **limits}
    found = Scan(pattern, buffer_start=0, position=0, characters=0, lines=0, **bounds)
    edges = [0, *sorted({cut % (len(text) + 1) for cut in cuts}), len(text)]
    for begin, end in pairwise(edges):
        for _ in found.feed(text[begin:end].encode(), last=end == len(text)):
            pass
        if end == len(text):
            break
    return found


@given(
    st.text("ab\nё", max_size=400), st.text("abё", min_size=1, max_size=4), st.lists(st.integers(0, 400), max_size=6)
)
def test_a_literal_is_found_across_every_cut(text: str, needle: str, cuts: list[int]) -> None:
    found = scan(text, compile_pattern(needle, regex=False, ignore_case=False), cuts)
    assert [match.start for match in found.matches] == [match.start() for match in re.finditer(re.escape(needle), text)]
    assert [match.line for match in found.matches] == [text.count("\n", 0, match.start) for match in found.matches]


@given(st.integers(0, 10**6))
def test_a_regular_expression_is_found_across_every_cut(seed: int) -> None:
    source = random.Random(seed)
    text = "".join(source.choice(["ab", "ba", "\n", "ё", "12", " "]) for _ in range(source.randrange(12_000)))
    pattern = source.choice(["a+b", "^b", "a$", "[0-9]+ё", "ё.{2}a", "ba|12"])
    cuts = [source.randrange(30_000) for _ in range(source.randrange(5))]
    found = scan(text, compile_pattern(pattern, regex=True, ignore_case=False), cuts)
    assert [match.start for match in found.matches] == [match.start() for match in re.finditer(pattern, text, re.M)]


def test_a_scan_that_is_over_its_time_stops_where_it_can_go_on() -> None:
    text = "needle " * 100_000
    pattern = compile_pattern("nowhere", regex=True, ignore_case=False)
    first = scan(text, pattern, [], compute_ms_max=0)
    assert first.full
    assert 0 < first.position < len(text)


@pytest.mark.parametrize(
    "text", ["漢é" * 100_000, "🙂" * 100_000, "a漢" * 100_000], ids=["2 and 3 bytes", "4", "1 and 3"]
)
def test_a_scan_stops_between_two_characters(text: str) -> None:
    raw = text.encode()
    for pattern in ("nowhere", "(a|b|c){90}"):
        found = scan(text, compile_pattern(pattern, regex=True, ignore_case=True), [], compute_ms_max=0)
        assert 0 < found.position < len(raw)
        assert found.characters_before(found.position) == len(raw[: found.position].decode())


def test_text_in_any_case_is_no_regular_expression_and_need_not_be_unicode() -> None:
    found = scan("a(B\n^É$.c", compile_pattern("^é$.C", regex=False, ignore_case=True), [])
    assert [match.match for match in found.matches] == ["^É$.c"]
    with pytest.raises(QueryError, match="no regular expression"):
        compile_pattern("\ud800", regex=False, ignore_case=True)


def test_a_pattern_of_bytes_finds_whole_characters() -> None:
    found = scan("é漢🙂b" * 100, compile_pattern(r"\Cb", regex=True, ignore_case=False), [7, 150])
    assert all(match.match.startswith("b") for match in found.matches)
    assert len(scan("é漢" * 10, compile_pattern(r"\C", regex=True, ignore_case=False), []).matches) == 20


@pytest.mark.parametrize("pattern", [r"(\pL\PN){300}", r"[^\pL]{300}", r"\pL" * 330])
def test_a_pattern_that_takes_long_to_compile_is_refused_before_it_does(pattern: str) -> None:
    with pytest.raises(QueryError, match="too large"):
        compile_pattern(pattern, regex=True, ignore_case=False)


def test_a_large_program_covers_less_text_at_once() -> None:
    small = compile_pattern("a", regex=True, ignore_case=False)
    large = compile_pattern("(a|b|c){300}", regex=True, ignore_case=False)
    assert large.window_bytes < small.window_bytes
    assert large.overlap_bytes == MATCH_BYTES_MAX


@pytest.mark.parametrize("pattern", ["", "a{0}", "(", "x" * 1_001, "\ud800("])
def test_what_cannot_be_looked_for_is_refused(pattern: str) -> None:
    with pytest.raises(QueryError):
        compile_pattern(pattern, regex=True, ignore_case=False)


def test_half_a_surrogate_pair_is_found_as_it_is_stored() -> None:
    pattern = compile_pattern("\ud800", regex=False, ignore_case=False)
    assert pattern.find("a\ud800b".encode("utf-8", "surrogatepass"), 0, 10) == (1, 4)
