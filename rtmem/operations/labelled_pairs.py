"""Pairs of texts of which somebody said whether one answer serves both: what a threshold is calibrated on.

Read from the text of a CSV or TSV file, either in our own form (`kind,first,second`) or as public sets of paraphrases
come: two columns of text and a label. Whoever opens the file is another one.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import io
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeAlias

from rtmem.errors import InvalidRequestError

PARAPHRASE: Final = "paraphrase"
UNRELATED: Final = "unrelated"
DIFFERENT: Final = "different"
"""What a file with labels calls 0: nobody knows in what."""

HARD: Final = ("number", "unit", "date", "negation", "antonym", "swap", "name", "quoted")
"""Hard negatives, by what differs: nearly the same words, and another answer."""

KINDS: Final = (PARAPHRASE, *HARD, UNRELATED, DIFFERENT)

_TEXTS: Final = (
    ("first", "second"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("question1", "question2"),
    ("sentence1", "sentence2"),
    ("#1 string", "#2 string"),
)
_LABELS: Final = ("label", "is_duplicate", "is_paraphrase", "same", "quality", "class")
_SAME: Final = frozenset({"1", "1.0", "true", "yes", "same"})
_NOT_SAME: Final = frozenset({"0", "0.0", "-1", "false", "no", "different"})
_DELIMITERS: Final = "\t;,"  # a header with tabs may well have commas in it, hardly the other way round
_SHOWN: Final = 80


class LabelledPair(NamedTuple):
    """Two texts, and in what they differ."""

    kind: str
    first: str
    second: str

    @property
    def same(self) -> bool:
        """One answer serves both."""
        return self.kind == PARAPHRASE


class PairsRead(NamedTuple):
    """What a file has."""

    pairs: list[LabelledPair]
    skipped: int  # rows in which a text is missing


class _Columns(NamedTuple):
    first: int
    second: int
    label: int
    by_kind: bool
    width: int


_Rows: TypeAlias = list[tuple[int, list[str]]]
"""With the number of the line that a row ends on."""


def read_pairs(text: str, source: str) -> PairsRead:
    """The pairs in the text of a file; the header tells which columns there are and what is between them.

    Raises:
        InvalidRequestError: no such columns, or a row that cannot be read; names `source`, the line and what was
            expected there.
    """
    header, _, _ = text.removeprefix("\ufeff").partition("\n")
    delimiter = next((each for each in _DELIMITERS if each in header), ",")
    rows = _rows(text.removeprefix("\ufeff"), delimiter, source)
    if not rows:
        raise _unreadable(source, 1, "the file is empty", _expected())
    columns = _columns([name.strip().lower() for name in rows[0][1]], source)
    pairs, skipped = [], 0
    for line, row in rows[1:]:
        if not any(cell.strip() for cell in row):
            continue
        if delimiter == "\t" and len(row) < columns.width:
            skipped += 1  # GLUE's QQP has some, and its readers leave them out
            continue
        pair = _pair(row, columns, source, line)
        if pair.first and pair.second:
            pairs.append(pair)
        else:
            skipped += 1
    return PairsRead(pairs, skipped)


def _rows(text: str, delimiter: str, source: str) -> _Rows:
    """All rows. Of files with tabs some quote as CSV does, and some have quotes that mean nothing."""
    if delimiter != "\t":
        return list(_parsed(text, delimiter, source, quoting=csv.QUOTE_MINIMAL))
    plain = [
        (line, [_unquoted(cell) for cell in row])
        for line, row in _parsed(text, delimiter, source, quoting=csv.QUOTE_NONE)
    ]
    if _even(plain) == len(plain):
        return plain
    try:
        quoted = list(_parsed(text, delimiter, source, quoting=csv.QUOTE_MINIMAL))
    except InvalidRequestError:  # a quote that is never closed took all that follows
        return plain
    return max(quoted, plain, key=_even)


def _even(rows: _Rows) -> int:
    """How many rows are empty or as wide as the first."""
    return sum(not row or len(row) == len(rows[0][1]) for _, row in rows)


def _unquoted(cell: str) -> str:
    """What the cell says, if it is quoted beyond doubt: around it, and doubled within; or as Python writes bytes."""
    within = cell[1:-1]
    if cell[:1] == cell[-1:] == '"' and '""' in within and '"' not in within.replace('""', ""):
        return within.replace('""', '"')
    if cell[:2] in ("b'", 'b"') and cell[1] == cell[-1:]:  # PAWS-QQP as its script writes it
        with contextlib.suppress(ValueError, SyntaxError):
            return str(ast.literal_eval(cell), "utf-8")
    return cell


def _parsed(text: str, delimiter: str, source: str, *, quoting: int) -> Iterator[tuple[int, list[str]]]:
    lines = io.StringIO(text, newline="")  # splitlines() would also split at what people write within a text
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting)  # type: ignore[arg-type]
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as exc:
        raise _unreadable(source, reader.line_num, str(exc), "rows of a CSV or TSV file") from exc


def _columns(header: Sequence[str], source: str) -> _Columns:
    place = {name: number for number, name in reversed(list(enumerate(header)))}
    for first, second in _TEXTS:
        if first not in place or second not in place:
            continue
        label = next((place[name] for name in ("kind", *_LABELS) if name in place), None)
        if label is not None:
            return _Columns(place[first], place[second], label, header[label] == "kind", len(header))
    found = ", ".join(header) if any(header) else "nothing"
    raise _unreadable(source, 1, f"the header has {found[:_SHOWN]}", _expected())


def _expected() -> str:
    texts = ", ".join(f"{first} and {second}" for first, second in _TEXTS[1:])
    return f"a header `kind,first,second`, or a pair of columns ({texts}) with a label ({', '.join(_LABELS)})"


def _pair(row: Sequence[str], columns: _Columns, source: str, line: int) -> LabelledPair:
    if len(row) != columns.width:
        what = f"{len(row)} {'cell' if len(row) == 1 else 'cells'}"
        raise _unreadable(source, line, what, f"{columns.width} as in the header; quote texts with commas or quotes")
    label = row[columns.label].strip().lower()
    kind = _known_kind(label, source, line) if columns.by_kind else _labelled(label, source, line)
    return LabelledPair(kind, row[columns.first].strip(), row[columns.second].strip())


def _known_kind(kind: str, source: str, line: int) -> str:
    if kind in KINDS:
        return kind
    near = get_close_matches(kind, KINDS, 1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise _unreadable(source, line, f"the kind {kind[:_SHOWN]!r}", f"{meant}one of {', '.join(KINDS)}")


def _labelled(label: str, source: str, line: int) -> str:
    if label in _SAME:
        return PARAPHRASE
    if label in _NOT_SAME:
        return DIFFERENT
    raise _unreadable(source, line, f"the label {label[:_SHOWN]!r}", "1 where one answer serves both texts, or 0")


def _unreadable(source: str, line: int, found: str, expected: str) -> InvalidRequestError:
    return InvalidRequestError(f"{source}, line {line}: {found}: expected {expected}", source=source, line=line)
