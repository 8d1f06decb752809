"""A part of a value, by bytes, characters, lines, items or rows. Every answer is bounded, and says how to get what
follows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from rtmem.errors import QueryError, TooLargeError
from rtmem.operations import pointer_continuations as continuations
from rtmem.operations.pointer_chunks import COLUMNS
from rtmem.operations.pointer_decoding import decode, decode_items, loads
from rtmem.operations.pointer_previews import cut_with_mark
from rtmem.operations.pointer_tables import read_table
from rtmem.operations.pointers import Opened, PointerScope, id_of, look_up
from rtmem.records import Pointer, PointerUnit, Slice
from rtmem.steps import Command, Steps

_GUESSED_MAX: Final = 2  # chunks
_FIRST_ITEMS: Final = 1_000
OUTPUT_CHARACTERS_MAX: Final = 1_000_000
_POSITION_MAX: Final = 2**53

_UNITS: Final[dict[str, tuple[str, ...]]] = {
    "bytes": ("text", "bytes", "json", "table", "dataframe", "object"),
    "characters": ("text", "json"),
    "lines": ("text", "json"),
    "items": ("json", "text", "object"),
    "rows": ("table", "dataframe"),
}


def slice_value(
    scope: PointerScope,
    pointer: str | Pointer,
    unit: PointerUnit = "characters",
    start: int = 0,
    count: int | None = None,
    *,
    characters_max: int | None = None,
    continuation: str = "",
) -> Steps[Slice]:
    """A part of a value, as much as one answer may have.

    Args:
        unit: characters, lines (of text and JSON), items (of a JSON array or object), rows (of a table), bytes.
        start: of the first one, from 0. Behind the end the answer is empty.
        count: None means as many as fit.
        characters_max: of this answer; `settings.output_characters_max` without it.

    Raises:
        QueryError: a range that is none, or a unit that this value does not have; the message names those it has.
        PointerNotFoundError, PointerExpiredError, CorruptRecordError, TooLargeError.

    Redis: 1 round trip, of plain commands, for bytes and for characters where all before them and among them are ASCII;
        else 1 more for the chunk that has to be looked into, and 2 if the answer spans two. The first chunk comes along
        when the first 1,000 lines, items or rows are asked for.
    """
    pointer_id = id_of(pointer)
    if unit not in tuple(_UNITS):  # by equality: what is asked for may have no hash
        raise QueryError(f"unit {cut_with_mark(str(unit), 40)!r}: use one of {', '.join(_UNITS)}")
    cut = _Cut(scope, pointer_id, unit, _whole("start", start), count, output_max(scope, characters_max))
    if count is not None:
        _whole("count", count)
    at, left = cut.start, -1 if count is None else int(count)
    byte_at = -1
    if continuation:
        at, left, byte_at = continuations.unpack(cut.question, continuation, 3)
    ask = cut.characters_max if left < 0 else min(left, cut.characters_max)
    guess = _Guess.of(scope, pointer_id, unit, at, ask, byte_at)
    opened, replies = yield from look_up(scope, pointer_id, guess.commands)
    _check_unit(opened.pointer, unit)
    if unit == "lines":
        guess.keep(opened, replies)
        return (yield from cut.lines(opened, at, left, byte_at))
    if unit in ("items", "rows"):
        guess.keep(opened, replies)
        return (yield from cut.items(opened, at, left))
    part = guess.part(opened, replies, unit, at, ask)
    if part is None:
        return (yield from cut.characters(opened, at, left))
    total = opened.manifest.total(COLUMNS[unit])
    if unit == "characters" and not part.isascii():
        # It is damaged, as all of these are ASCII: read with its checksum, it says so.
        return (yield from cut.characters(opened, at, left))
    return cut.answer(part if unit == "bytes" else part.decode(), len(part), at, left, total)


@dataclass(frozen=True, slots=True)
class _Guess:
    """What a part of a value is read from if its chunks lie where they mostly do, asked for before that is known.

    The chunks of most values lie under their pointer's own id, and those of bytes and ASCII text are all as long as the
    setting says. The manifest, which comes in the same round trip, tells whether the guess was right.
    """

    commands: list[Command] = field(default_factory=list)
    numbers: tuple[int, ...] = ()
    chunk_bytes: int = 0

    @classmethod
    def of(cls, scope: PointerScope, pointer_id: str, unit: PointerUnit, at: int, ask: int, byte_at: int) -> _Guess:
        """The guess for a part that begins `at`."""
        size, key = scope.settings.chunk_bytes, scope.keys.chunk
        if unit in ("bytes", "characters"):
            numbers = tuple(range(at // size, (at + ask - 1) // size + 1)) if ask else ()
            if len(numbers) > _GUESSED_MAX:
                return cls()
            ranges = [(max(at, number * size), min(at + ask, (number + 1) * size)) for number in numbers]
            commands: list[Command] = [
                ("GETRANGE", key(pointer_id, number), begin - number * size, end - number * size - 1)
                for number, (begin, end) in zip(numbers, ranges, strict=True)
            ]
            return cls(commands, numbers, size)
        if byte_at > 0 or at >= _FIRST_ITEMS:
            return cls()
        numbers = (0, 1) if unit == "rows" else (0,)
        return cls([("MGET", *(key(pointer_id, number) for number in numbers))], numbers, size)

    def keep(self, opened: Opened, replies: list[Any]) -> None:
        """Keep the chunks that came along, if they are those of this value."""
        if self.commands and opened.manifest.host == opened.pointer.id:
            found = zip(self.numbers, replies[0], strict=True)
            opened.here.update((number, stored) for number, stored in found if number < opened.manifest.chunks)

    def part(self, opened: Opened, replies: list[bytes], unit: PointerUnit, at: int, ask: int) -> bytes | None:
        """The part that was asked for; None if the guess was wrong."""
        manifest, column, size = opened.manifest, COLUMNS[unit], self.chunk_bytes
        if manifest.codec != "r" or manifest.host != opened.pointer.id or not self.numbers:
            return None
        for number in self.numbers:
            if number < manifest.chunks and not (
                number * size == manifest.begin(number, 0) == manifest.begin(number, column)
                and manifest.end(number, 0) == manifest.end(number, column)
            ):
                return None
        part = b"".join(replies)
        return part if len(part) == max(0, min(at + ask, manifest.total(column)) - at) else None


def _whole(what: str, number: Any) -> int:
    if type(number) is not int or not 0 <= number <= _POSITION_MAX:
        is_long = type(number) is int and number > _POSITION_MAX  # Python refuses to write out the longest
        shown = repr(number) if type(number) in (int, float, str) and not is_long else f"<{type(number).__name__}>"
        raise QueryError(f"{what} is {cut_with_mark(shown, 40)}: a whole number from 0 to 2**53")
    return number


def output_max(scope: PointerScope, characters_max: int | None) -> int:
    """How many characters an answer may have. Raises QueryError."""
    if characters_max is None:
        return scope.settings.output_characters_max
    if type(characters_max) is not int or not 1 <= characters_max <= OUTPUT_CHARACTERS_MAX:
        raise QueryError(f"characters_max: from 1 to {OUTPUT_CHARACTERS_MAX:,} characters in one answer")
    return characters_max


def _check_unit(pointer: Pointer, unit: PointerUnit) -> None:
    if pointer.kind not in _UNITS[unit] or (unit == "items" and pointer.kind != "json" and not pointer.items):
        fits = [name for name, kinds in _UNITS.items() if pointer.kind in kinds and (name != "items" or pointer.items)]
        raise QueryError(
            f"pointer {pointer.id} is {pointer.media_type} ({pointer.kind}) and has no {unit}: use "
            f"{' or '.join(reversed(fits))}"
        )


class _Cut:
    """One question for a part of a value."""

    def __init__(
        self, scope: PointerScope, pointer_id: str, unit: PointerUnit, start: int, count: Any, characters_max: int
    ) -> None:
        self.scope = scope
        self.unit = unit
        self.start = start
        self.characters_max = characters_max
        self.question = ("slice", pointer_id, unit, start, count)

    def answer(
        self, content: Any, taken: int, at: int, left: int, total: int, *, byte_at: int = -1, excerpt: str = ""
    ) -> Slice:
        """The answer, with a continuation if something is left of the question and of the value."""
        passed = taken + bool(excerpt)
        rest = -1 if left < 0 else left - passed
        more = rest != 0 and at + passed < total
        return Slice(
            unit=self.unit,
            start=at,
            count=taken,
            total=total,
            content=content,
            excerpt=excerpt,
            continuation=continuations.pack(self.question, (at + passed, rest, byte_at)) if more else "",
        )

    def characters(self, opened: Opened, at: int, left: int) -> Steps[Slice]:
        """Characters or bytes that lie in compressed chunks, or among characters of several bytes."""
        column = 0 if self.unit == "bytes" else 1
        manifest = opened.manifest
        total = manifest.total(column)
        till = min(total, at + (self.characters_max if left < 0 else min(left, self.characters_max)))
        if at >= till:
            return self.answer(b"" if column == 0 else "", 0, at, left, total)
        first = manifest.chunk_at(at, column)
        chunks = yield from opened.chunks(range(first, manifest.chunk_at(till - 1, column) + 1))
        skip = at - manifest.begin(first, column)
        raw = b"".join(chunks)
        content: Any = raw if column == 0 else raw.decode("utf-8", "surrogatepass")
        return self.answer(content[skip : skip + till - at], till - at, at, left, total)

    def lines(self, opened: Opened, at: int, left: int, byte_at: int) -> Steps[Slice]:
        """Lines; one that is too long for an answer goes on in the next."""
        manifest, total = opened.manifest, opened.pointer.lines
        if at >= total or left == 0:
            return self.answer("", 0, at, left, total)
        if byte_at < 0:
            byte_at = yield from self._line_begin(opened, at)
        number = manifest.chunk_at(byte_at, 0)
        raw = b""
        while number < manifest.chunks:
            (chunk,) = yield from opened.chunks([number])
            raw += chunk[byte_at - manifest.begin(number, 0) :] if not raw else chunk
            number += 1
            # More than the answer may have, whatever the characters: so the end of what is here, where a line goes on
            # behind it, is never taken for the end of the line.
            if len(raw) > 4 * self.characters_max or (0 <= left <= raw.count(b"\n")):
                break
        try:
            text = raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise continuations.another_question() from None  # chunks are whole: it begins inside of a character
        ends = self._line_ends(text, left)
        whole = [end for end in ends if end <= self.characters_max]
        if whole:
            return self.answer(
                text[: whole[-1]], len(whole), at, left, total, byte_at=byte_at + _size(text[: whole[-1]])
            )
        # The first line alone is too long: as much of it as fits, and the next answer goes on inside of it.
        part = text[: self.characters_max]
        rest = continuations.pack(self.question, (at, left, byte_at + _size(part)))
        return Slice(unit="lines", start=at, count=1, total=total, content=part, continuation=rest)

    def _line_ends(self, text: str, left: int) -> list[int]:
        """Where lines end in `text`, up to the first that is too far for this answer."""
        ends: list[int] = []
        end = 0
        while end < len(text) and (left < 0 or len(ends) < left) and end <= self.characters_max:
            end = text.find("\n", end) + 1 or len(text)
            ends.append(end)
        return ends

    def _line_begin(self, opened: Opened, line: int) -> Steps[int]:
        """The byte at which a line begins."""
        if line == 0:
            return 0
        manifest = opened.manifest
        # The chunk in which the line before it ends.
        number = manifest.chunk_with_line_end(line)
        (chunk,) = yield from opened.chunks([number])
        rest = chunk.split(b"\n", line - manifest.begin(number, 2))[-1]
        return manifest.end(number, 0) - len(rest)

    def items(self, opened: Opened, at: int, left: int) -> Steps[Slice]:
        """Elements of an array, entries of an object, rows of a table: whole ones, as many as fit."""
        total = opened.pointer.items
        content: list[Any] = []
        room, excerpt = self.characters_max, ""
        found: list[Any] = []
        if at < total and left != 0:
            found = yield from self._items_from(opened, at)
        for item in found:
            if left >= 0 and len(content) == left:
                break
            try:
                text = orjson.dumps(item, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
            except TypeError as exc:
                raise QueryError(
                    f"{self.unit} {at + len(content)} of pointer {opened.pointer.id} cannot be told as JSON ({exc}): "
                    "read it as characters"
                ) from exc
            if len(text) > room:
                if not content:
                    excerpt = cut_with_mark(text, self.characters_max)
                break
            room -= len(text) + 1
            content.append(item)
        return self.answer(content, len(content), at, left, total, excerpt=excerpt)

    def _items_from(self, opened: Opened, at: int) -> Steps[list[Any]]:
        """Items from `at` on, more of them than an answer may have."""
        manifest, table = opened.manifest, self.unit == "rows"
        if not manifest.total(3):
            # They were not counted, because they are long, or the value is text: all of it must be decoded.
            value = yield from whole_json(opened) if not table else opened.value()
            return (_rows(_as_table(value)) if table else _members(value))[at:]
        number = manifest.chunk_at(at, 3)
        skip = at - manifest.begin(number, 3)
        items: list[Any] = []
        size = 0
        while number < manifest.chunks and size <= 2 * self.characters_max:
            # Rows need the schema, which lies in the first chunk.
            *head, chunk = yield from opened.chunks([0, number] if table else [number])
            if table:
                items += _rows(read_table(head[0] + chunk).slice(skip, self.characters_max))
            else:
                opening = b"[" if opened.pointer.shape.startswith("array") else b"{"
                part = decode_items(chunk, opening=opening, last=number == manifest.chunks - 1)
                items += _members(part)[skip:]
            size += len(chunk)
            skip, number = 0, number + 1
        return items


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _members(value: Any) -> list[Any]:
    return [list(entry) for entry in value.items()] if type(value) is dict else list(value)


def _rows(table: Any) -> list[Any]:
    rows: list[Any] = table.to_pylist()
    return rows


def _as_table(value: Any) -> Any:
    if hasattr(value, "to_pylist"):
        return value
    import pyarrow

    return pyarrow.Table.from_pandas(value)


def whole_json(opened: Opened) -> Steps[Any]:
    """The JSON that a value is (all but, with a NaN in it) or that its text is. Raises QueryError, TooLargeError."""
    pointer, bytes_max = opened.pointer, opened.scope.settings.select_bytes_max
    if pointer.kind not in ("json", "text") and not (pointer.kind == "object" and pointer.items):
        raise QueryError(f"pointer {pointer.id} is {pointer.media_type} ({pointer.kind}), not JSON: use slice")
    if pointer.bytes > bytes_max:
        raise TooLargeError(
            f"pointer {pointer.id} has {pointer.bytes} bytes of JSON, and at most {bytes_max} are decoded to look into "
            "them: use slice or search, or raise select_bytes_max in [pointers]",
            bytes_max=bytes_max,
        )
    if pointer.kind != "text":
        return (yield from opened.value())
    chunks = yield from opened.all_chunks()
    try:
        return loads(decode("bytes", chunks))
    except ValueError as exc:
        raise QueryError(f"pointer {pointer.id} is text that is no JSON: use slice or search ({exc})") from exc
