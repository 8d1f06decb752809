"""Pairs are read from our own form and from public sets, and a bad file is told by line."""

from __future__ import annotations

import pytest

from rtmem.errors import InvalidRequestError
from rtmem.operations.labelled_pairs import DIFFERENT, PARAPHRASE, LabelledPair, read_pairs


def test_our_own_form_has_a_kind_and_two_texts() -> None:
    text = '\ufeffkind,first,second\r\nparaphrase," a, b ","say ""b"""\r\n\r\nnumber,2 eggs?,3 eggs?\r\n'
    read = read_pairs(text, "pairs.csv")
    assert read.pairs == [LabelledPair(PARAPHRASE, "a, b", 'say "b"'), LabelledPair("number", "2 eggs?", "3 eggs?")]
    assert [pair.same for pair in read.pairs] == [True, False]
    assert read.skipped == 0


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "0\t1\t2\tone\ttwo\t{}"),  # QQP
        ("id\tsentence1\tsentence2\tlabel", "1\tone\ttwo\t{}"),  # PAWS
        ("Quality;text_a;text_b", "{};one;two"),
        ("label,text2,text1", "{},two,one"),
    ],
)
def test_public_sets_are_known_by_their_columns(header: str, row: str) -> None:
    text = "\n".join([header, row.format(1), row.format(0), row.format("false"), row.format("TRUE")])
    read = read_pairs(text, "public.tsv")
    assert [pair.kind for pair in read.pairs] == [PARAPHRASE, DIFFERENT, DIFFERENT, PARAPHRASE]
    assert {(pair.first, pair.second) for pair in read.pairs} == {("one", "two")}


def test_quotes_in_a_file_with_tabs_are_text_where_its_cells_come_out_even() -> None:
    header = "sentence1\tsentence2\tlabel\n"
    plain = read_pairs(header + 'say "a\tb"\t1\n', "x.tsv")
    assert plain.pairs == [LabelledPair(PARAPHRASE, 'say "a', 'b"')]
    quoted = read_pairs(header + '"two\nlines, ""a"""\tb\t0\n', "x.tsv")
    assert quoted.pairs == [LabelledPair(DIFFERENT, 'two\nlines, "a"', "b")]


def test_a_row_without_a_text_is_left_out_and_counted() -> None:
    read = read_pairs("kind,first,second\nname,a,\nname,a,b\nname,  ,b\n", "pairs.csv")
    assert (len(read.pairs), read.skipped) == (1, 2)


@pytest.mark.parametrize(
    ("text", "line", "found", "expected"),
    [
        ("", 1, "the file is empty", "kind,first,second"),
        ("first,second\na,b\n", 1, "the header has first, second", "with a label (label, is_duplicate"),
        ("question1,label\na,1\n", 1, "the header has question1, label", "question1 and question2"),
        ("kind,first,second\nname,a,b\nparaphrases,a,b\n", 3, "'paraphrases'", "did you mean paraphrase?"),
        ("kind,first,second\nname,a\n", 2, "2 cells", "3 as in the header"),
        ("kind,first,second\nname,a, b, c\n", 2, "4 cells", "quote texts with commas"),
        ("sentence1\tsentence2\tlabel\na\tb\t1\na\tb\t2\n", 3, "the label '2'", "1 where one answer serves both"),
        ('kind,first,second\nname,"a\nb",c\nnome,a,b\n', 4, "'nome'", "did you mean name?"),
    ],
)
def test_a_bad_file_is_told_with_its_line_and_what_was_expected(
    text: str, line: int, found: str, expected: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_pairs(text, "pairs.csv")
    message = str(caught.value)
    assert message.startswith(f"pairs.csv, line {line}: ")
    assert found in message
    assert expected in message
