"""What is told of a value in place of it: shape, head and tail, and how to get more. Pure functions of the value.

The same value always gives the same text, so that a prompt that was cached stays cached.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any, Final

import msgspec
import orjson
import regex

from rtmem.records import Pointer, PointerKind, PointerUnit

_GRAPHEME: Final = regex.compile(r"\X")
_WINDOW: Final = 64
_SNIFFED_CHARACTERS_MAX: Final = 1024 * 1024  # longer text is not parsed to see whether it is JSON
_SELECTED_CHARACTERS_MAX: Final = 4 * 1024 * 1024  # what `select` takes unless it is told otherwise
_SHAPE_CHARACTERS_MAX: Final = 300
_FIELDS_MAX: Final = 12
_SAMPLED: Final = 20  # elements of an array whose fields are looked at
_STRING_CHARACTERS_MAX: Final = 60
_ITEMS_SHOWN_MAX: Final = 3  # elements or rows from the beginning
_TAIL_PART: Final = 4  # a fourth of a preview is for the last one
_TAILED_CHARACTERS_MIN: Final = 80  # a shorter preview has no room for both
_DEPTH_MAX: Final = 4
_LENIENT: Final = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
_NESTED_BYTES_MAX: Final = 64 * 1024  # of a column of lists in the rows of a preview


class Preview(msgspec.Struct, frozen=True):
    """What a model needs to decide whether to look closer."""

    shape: str
    head: str
    tail: str = ""
    items: int = 0  # elements of an array, entries of an object, rows of a table


def preview(kind: PointerKind, media_type: str, value: Any, characters_max: int, lines: int = 0) -> Preview:
    """The preview of a value that was offloaded as `kind`; `lines` are those of a text, which were counted already."""
    if kind == "text":
        parsed = _parsed(value)
        if parsed is not _NOTHING:
            head, tail = json_head_and_tail(parsed, characters_max)
            return Preview("JSON text: " + json_shape(parsed), head, tail, items=len(parsed))
        shape = f"{lines:,} line{'s' * (lines != 1)}, {len(value):,} characters"
        if _SNIFFED_CHARACTERS_MAX < len(value) <= _SELECTED_CHARACTERS_MAX and _looks_like_json(value):
            shape = f"JSON text, by its ends: {shape}"
        return Preview(shape, *head_and_tail(value, characters_max))
    if kind == "json":
        items = len(value) if type(value) in (list, dict) else 0
        return Preview(json_shape(value), *json_head_and_tail(value, characters_max), items=items)
    if kind in ("table", "dataframe"):
        return _table_preview(value, characters_max)
    if kind == "bytes":
        return Preview(bytes_shape(media_type, value), "")
    if type(value) in (list, dict):
        # Nearly JSON: there is a NaN in it, or a key that is a number. It can be looked into in the same ways.
        return Preview(json_shape(value), *json_head_and_tail(value, characters_max), items=len(value))
    return Preview(f"{type(value).__module__}.{type(value).__qualname__}{_array_shape(value)}", "")


def estimate_tokens(kind: PointerKind, size: int) -> int:
    """About how many tokens a value of `size` bytes would cost in a conversation.

    Text has about 4 bytes of UTF-8 to a token, in English as in Russian or Chinese; digits and punctuation of JSON and
    tables about 3; binary data would travel as base64.
    """
    return -(-size // 4) if kind == "text" else -(-size // 3)


# Text ----------------------------------------------------------------------------------------------------------------


def head_and_tail(text: str, characters_max: int) -> tuple[str, str]:
    """The beginning of a text and, if it is longer than that, its end. No character is cut, however it is composed."""
    if len(text) <= characters_max:
        return text, ""
    head = characters_max * 2 // 3
    return text[: _boundary(text, head)], text[_boundary(text, len(text) - (characters_max - head), forward=True) :]


def cut(text: str, characters_max: int) -> str:
    """The beginning of a text, at most so many code points, ending between two characters as people see them."""
    return text if len(text) <= characters_max else text[: _boundary(text, characters_max)]


def printable(text: str) -> str:
    """`text` as UTF-8 can carry it: half a surrogate pair becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _boundary(text: str, at: int, *, forward: bool = False) -> int:
    """The last place up to `at` (or the first from it on) where no grapheme cluster is cut (UAX 29)."""
    if at <= 0 or at >= len(text):
        return max(0, min(at, len(text)))
    if text[at - 1].isascii() and text[at].isascii() and text[at] != "\n":
        return at
    # From a place that is surely one: after an ASCII character; else from somewhere, as a run of 64 marks is no text.
    start = max(0, at - _WINDOW)
    for back in range(at - 1, start, -1):
        if text[back - 1].isascii() and text[back].isascii() and text[back] != "\n":
            start = back
            break
    place = start
    for cluster in _GRAPHEME.finditer(text, start, min(len(text), at + _WINDOW)):
        if cluster.end() == at:
            return at
        if cluster.end() > at:
            return cluster.end() if forward else place or at
        place = cluster.end()
    return at


_NOTHING: Final = object()


def _looks_like_json(text: str) -> bool:
    ends = text[:64].lstrip()[:1] + text[-64:].rstrip()[-1:]
    return ends in ("{}", "[]")


def _parsed(text: str) -> Any:
    """The array or object that a text is in JSON, if it is one."""
    if not text[:64].lstrip().startswith(("{", "[")) or len(text) > _SNIFFED_CHARACTERS_MAX:
        return _NOTHING
    try:
        return orjson.loads(text)
    except ValueError:
        return _NOTHING


# JSON ----------------------------------------------------------------------------------------------------------------


def json_shape(value: Any) -> str:
    """What a JSON value is made of: "array of 5,000 objects {id: integer, name: string}"."""
    return cut_with_mark(_shape(value, _DEPTH_MAX), _SHAPE_CHARACTERS_MAX)


def _shape(value: Any, depth: int) -> str:
    if type(value) is list:
        if not value:
            return "empty array"
        kinds = sorted({_name(item) for item in value[:_SAMPLED]})
        of = f"array of {len(value):,} {' or '.join(f'{kind}s' for kind in kinds)}"
        if kinds == ["object"] and depth:
            fields: dict[str, Any] = {}
            for item in value[:_SAMPLED]:
                for name, member in item.items():
                    fields.setdefault(name, member)
            return f"{of} {_fields(fields, depth - 1)}"
        return of
    if type(value) is dict:
        if not value:
            return "empty object"
        return f"object {_fields(value, depth - 1)}" if depth else f"object of {len(value):,} fields"
    return _name(value)


def _fields(members: dict[str, Any], depth: int) -> str:
    named = [
        f"{cut_with_mark(str(name), 40)}: {_shape(member, depth)}"
        for name, member in islice(members.items(), _FIELDS_MAX)
    ]
    more = len(members) - len(named)
    return "{" + ", ".join(named) + (f", and {more:,} more" if more > 0 else "") + "}"


def _name(value: Any) -> str:
    kind = type(value)
    if kind is bool:
        return "boolean"
    names = {str: "string", int: "integer", float: "number", dict: "object", list: "array", type(None): "null"}
    return names.get(kind) or _other(value)


def _other(value: Any) -> str:
    return f"<{type(value).__name__}>"


def json_head_and_tail(value: Any, characters_max: int) -> tuple[str, str]:
    """The beginning of a JSON value and, of an array that is not told whole, its last element: together so long."""
    tail = ""
    if type(value) is list and len(value) > _ITEMS_SHOWN_MAX and characters_max >= _TAILED_CHARACTERS_MIN:
        tail = json_head(value[-1], characters_max // _TAIL_PART)
    return json_head(value, characters_max - len(tail)), tail


def json_head(value: Any, characters_max: int) -> str:
    """The beginning of a JSON value with long strings and arrays shortened, so that one long field hides no other."""
    for items_max, string_max in ((_ITEMS_SHOWN_MAX, _STRING_CHARACTERS_MAX), (2, 30), (1, 15)):
        text = _as_json(_shortened(value, items_max, string_max, _DEPTH_MAX))
        if len(text) <= characters_max:
            break
    return cut_with_mark(text, characters_max)


def _as_json(value: Any) -> str:
    return orjson.dumps(value, _other, _LENIENT).decode()


def _shortened(value: Any, items_max: int, string_max: int, depth: int) -> Any:
    if type(value) is str:
        return cut_with_mark(value, string_max)
    if type(value) in (list, tuple, dict) and not depth:
        return "…"
    if type(value) in (list, tuple):
        shown = [_shortened(item, items_max, string_max, depth - 1) for item in value[:items_max]]
        more = len(value) - len(shown)
        return [*shown, f"… {more:,} more"] if more > 0 else shown
    if type(value) is dict:
        members = {
            cut_with_mark(str(name), 40): _shortened(member, items_max, string_max, depth - 1)
            for name, member in islice(value.items(), _FIELDS_MAX)
        }
        more = len(value) - len(members)
        return {**members, "…": f"{more:,} more"} if more > 0 else members
    return value


def cut_with_mark(text: str, characters_max: int) -> str:
    """Like `cut`, with an ellipsis where something is missing."""
    return text if len(text) <= characters_max else cut(text, characters_max - 1) + "…"


# Tables and bytes ----------------------------------------------------------------------------------------------------


def _table_preview(table: Any, characters_max: int) -> Preview:
    if hasattr(table, "column_names"):
        names, types = table.column_names, [str(kind) for kind in table.schema.types]
        rows, first, last = table.num_rows, table.slice(0, _ITEMS_SHOWN_MAX), table.slice(max(table.num_rows - 1, 0))
    else:
        names, types = [str(name) for name in table.columns], [str(kind) for kind in table.dtypes]
        rows, first, last = len(table), table.iloc[:_ITEMS_SHOWN_MAX], table.iloc[-1:]
    columns = [f"{cut_with_mark(name, 40)}: {kind}" for name, kind in zip(names[:_FIELDS_MAX], types, strict=False)]
    more = f", and {len(names) - _FIELDS_MAX:,} more" if len(names) > _FIELDS_MAX else ""
    shape = f"table of {rows:,} rows x {len(names):,} columns ({', '.join(columns)}{more})"
    tail = ""
    if rows > _ITEMS_SHOWN_MAX and characters_max >= _TAILED_CHARACTERS_MIN:
        tail = cut_with_mark(_line(_rows(last)[0]), characters_max // _TAIL_PART)
    head = "\n".join(map(_line, ([cut_with_mark(name, 40) for name in names[:_FIELDS_MAX]], *_rows(first))))
    head = cut_with_mark(head, characters_max - len(tail))
    return Preview(cut_with_mark(shape, _SHAPE_CHARACTERS_MAX), head, tail, items=rows)


def _rows(part: Any) -> list[list[str]]:
    """The rows of a few of an Arrow table or DataFrame, as text."""
    if not hasattr(part, "column_names"):
        return [[str(value) for value in row] for row in part.iloc[:, :_FIELDS_MAX].itertuples(index=False)]
    columns = [[str(value) for value in _cells(column)] for column in part.columns[:_FIELDS_MAX]]
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(column: Any) -> list[Any]:
    # Of lists and structs Python would make a million objects, to show 30 characters.
    is_too_much = column.type.num_fields and column.nbytes > _NESTED_BYTES_MAX
    cells: list[Any] = ["…"] * len(column) if is_too_much else column.to_pylist()
    return cells


def _line(cells: Iterable[str]) -> str:
    return " | ".join(cut_with_mark(cell.replace("\n", " "), 30) for cell in cells)


def bytes_shape(media_type: str, raw: bytes) -> str:
    """What can be told of bytes without a decoder: the size of a PNG or GIF, the channels and rate of a WAV."""
    if media_type == "image/png" and len(raw) >= 24:
        return f"{int.from_bytes(raw[16:20])} x {int.from_bytes(raw[20:24])} pixels"
    if media_type == "image/gif" and len(raw) >= 10:
        return f"{int.from_bytes(raw[6:8], 'little')} x {int.from_bytes(raw[8:10], 'little')} pixels"
    if raw[:4] == b"RIFF" and raw[8:12] == b"WAVE" and len(raw) >= 28:
        return f"{int.from_bytes(raw[22:24], 'little')} channels, {int.from_bytes(raw[24:28], 'little')} Hz"
    return ""


def _array_shape(value: Any) -> str:
    shape, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
    if type(shape) is tuple and kind is not None:
        return f" of {kind}, {' x '.join(map(str, shape))}"
    try:
        return f" of {len(value):,}"
    except TypeError:
        return ""


# Telling a model -----------------------------------------------------------------------------------------------------


def size_text(size: int) -> str:
    """ "1.2 MB"."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


MODEL_TOOLS: Final = ("read_pointer", "search_pointer", "select_pointer")
"""The tools with which a model looks into a value."""


def render(pointer: Pointer, *, tools: Collection[str] = MODEL_TOOLS) -> str:
    """What stands in a message in place of the value: its pointer, what it is, and how to see more of it.

    Args:
        tools: which of MODEL_TOOLS the model has; no other is named to it.
    """
    about = [pointer.media_type, size_text(pointer.bytes), f"about {pointer.tokens:,} tokens"]
    lines = [f"[{pointer.name or 'value'} kept out of the conversation: {pointer.id}", f"{', '.join(about)}"]
    if pointer.shape:
        lines.append(pointer.shape)
    if pointer.head:
        lines.append(f"begins: {pointer.head}")
    if pointer.tail:
        lines.append(f"ends: {pointer.tail}")
    lines.append(f"{how_to_see_more(pointer, tools=tools)}]")
    return "\n".join(lines)


def how_to_see_more(pointer: Pointer, *, tools: Collection[str] = MODEL_TOOLS) -> str:
    """One line for a model: which of its tools, and which unit, suit this value."""
    unit = reading_unit(pointer)
    verbs = [f"read_pointer(unit={unit!r})"] if unit else []
    if pointer.kind in ("text", "json"):
        verbs.append("search_pointer")
    if pointer.kind == "json" or pointer.shape.startswith("JSON text") or (pointer.kind == "object" and pointer.items):
        verbs.append("select_pointer (JMESPath)")
    verbs = [verb for verb in verbs if verb.startswith(tuple(tools))]
    verbs.append("or pass the pointer to a tool as it is" if verbs else "pass the pointer to a tool as it is")
    return "More: " + ", ".join(verbs)


def reading_unit(pointer: Pointer) -> PointerUnit | None:
    """The unit in which a value is best read by parts; None for one that is no text, JSON or table."""
    if pointer.kind in ("table", "dataframe"):
        return "rows"
    if pointer.kind == "json":
        return "items" if pointer.items else "characters"
    if pointer.kind == "object":
        return "items" if pointer.items else None
    if pointer.kind == "text":
        # Hardly a line break: lines would be too long to read by.
        long_lines = pointer.lines <= 1 or pointer.characters > 1_000 * pointer.lines
        return "characters" if long_lines else "lines"
    return None
