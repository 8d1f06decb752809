"""Pairs are read from our own form and from public sets, and a bad file is told by line."""

from __future__ import annotations

import csv

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
        ("\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{}\t702876\t702977\tone\ttwo"),  # MRPC
        ("id,id_1,id_2,text_1,text_2,class", "1,201,8159,one,two,{}"),  # ParaPhraser.ru
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


def test_a_text_that_quora_quoted_is_read_without_its_quotes() -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    read = read_pairs(header + '8\t17\t18\tWhen "so"?\t"When ""&"" and when ""and""?"\t0\n', "quora.tsv")
    assert read.pairs == [LabelledPair(DIFFERENT, 'When "so"?', 'When "&" and when "and"?')]


def test_a_text_that_is_written_as_bytes_of_python_is_read_without_that() -> None:
    rows = [
        "id\tsentence1\tsentence2\tlabel",
        '1\tb"I \'m in K\\xc3\\xb6ln"\tb\'What "is" it ?\'\t1',
        "2\tb'\tb'\\xff'\t0",
    ]
    read = read_pairs("\n".join(rows), "paws_qqp.tsv")
    assert read.pairs[0] == LabelledPair(PARAPHRASE, "I 'm in K\u00f6ln", 'What "is" it ?')
    assert read.pairs[1] == LabelledPair(DIFFERENT, "b'", "b'\\xff'")  # what cannot be read so is left as it is


def test_in_a_file_with_tabs_a_row_that_is_cut_short_is_left_out_and_counted() -> None:
    header = "question1\tquestion2\tis_duplicate\n"
    cut = header + 'a\t"broken\nhere"\t1\n"c\td\t1\ne\tf\t0\n'
    read = read_pairs(cut, "glue.tsv")
    assert [(pair.first, pair.second) for pair in read.pairs] == [('"c', "d"), ("e", "f")]
    assert read.skipped == 2
    # What is never closed takes more than the parser allows for a cell.
    read = read_pairs(cut + f"{'x' * csv.field_size_limit()}\tg\t0\n", "glue.tsv")
    assert (len(read.pairs), read.skipped) == (3, 2)


@pytest.mark.parametrize("between", ["\u2028", "\x85", "\x0c"])
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_only_the_end_of_a_line_ends_a_row(between: str, delimiter: str) -> None:
    lines = [("text1", "text2", "label"), ("one", f"two{between}three", "1")]
    read = read_pairs("\r\n".join(delimiter.join(line) for line in lines), "x.csv")
    assert read.pairs == [LabelledPair(PARAPHRASE, "one", f"two{between}three")]


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
