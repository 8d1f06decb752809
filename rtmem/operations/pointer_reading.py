"""Looking into a value: search and select. Every answer is bounded, and says how to get what follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from rtmem.errors import QueryError
from rtmem.operations import pointer_continuations as continuations
from rtmem.operations.pointer_search import Scan, compile_pattern
from rtmem.operations.pointer_select import as_text, compile_expression, evaluate
from rtmem.operations.pointer_slices import output_max, whole_json
from rtmem.operations.pointers import PointerScope, id_of, open_pointer
from rtmem.records import Matches, Pointer, Selection
from rtmem.steps import Compute, Steps

_MATCHES_MAX: Final = 1_000


# search --------------------------------------------------------------------------------------------------------------


def search(
    scope: PointerScope,
    pointer: str | Pointer,
    pattern: str,
    *,
    regex: bool = False,
    ignore_case: bool = False,
    matches_max: int = 20,
    characters_max: int | None = None,
    continuation: str = "",
) -> Steps[Matches]:
    """Where a text or JSON value has `pattern`, each place with what stands around it in its line.

    Args:
        regex: a regular expression of RE2, over lines (`^` and `$` are those of a line); else the text as it is. JSON
            is looked through as it is stored: compact, on one line.
        matches_max: of this answer, at most 1,000.

    Raises:
        QueryError: no pattern, a pattern that RE2 refuses, or a value that is no text.
        PointerNotFoundError, PointerExpiredError, CorruptRecordError.

    Redis: 1 round trip per batch that is looked through, the first of them together with the look-up. After
        `compute_ms_max` of looking it answers what it has, with a continuation.
    """
    compiled = compile_pattern(pattern, regex=bool(regex), ignore_case=bool(ignore_case))
    if type(matches_max) is not int or not 1 <= matches_max <= _MATCHES_MAX:
        raise QueryError(f"matches_max: from 1 to {_MATCHES_MAX} in one answer")
    question = ("search", id_of(pointer), pattern, bool(regex), bool(ignore_case))
    answer_max = output_max(scope, characters_max)
    at = continuations.unpack(question, continuation, 1)[0] if continuation else 0
    opened = yield from open_pointer(scope, pointer, prefetch=at == 0)
    told, manifest = opened.pointer, opened.manifest
    if told.kind not in ("text", "json"):
        raise QueryError(f"pointer {told.id} is {told.media_type} ({told.kind}): only text and JSON can be searched")
    # From the chunk that holds the character before: whether a line begins here depends on it.
    first = manifest.chunk_at(max(0, at - 1), 0)
    if first >= manifest.chunks:
        return Matches(matches=(), searched_characters=told.characters, characters=told.characters)
    scan = Scan(
        compiled,
        buffer_start=manifest.begin(first, 0),
        position=at,
        characters=manifest.begin(first, 1),
        lines=manifest.begin(first, 2),
        matches_max=matches_max,
        characters_max=answer_max,
        compute_ms_max=scope.settings.compute_ms_max,
    )
    for batch in manifest.batches(first, manifest.chunks, scope.settings.batch_bytes):
        chunks = yield from opened.chunks(batch)
        yield Compute(_feed(scan, batch, chunks, manifest.chunks - 1), apart=compiled.costly)
        if scan.full:
            break
    done = not scan.full
    return Matches(
        matches=tuple(scan.matches),
        searched_characters=told.characters if done else scan.characters_before(scan.position),
        characters=told.characters,
        continuation="" if done else continuations.pack(question, (scan.position,)),
    )


def _feed(scan: Scan, numbers: range, chunks: list[bytes], last: int) -> Iterator[None]:
    for number, chunk in zip(numbers, chunks, strict=True):
        yield from scan.feed(chunk, last=number == last)
        if scan.full:
            return


# select --------------------------------------------------------------------------------------------------------------


def select(
    scope: PointerScope,
    pointer: str | Pointer,
    expression: str,
    *,
    characters_max: int | None = None,
    continuation: str = "",
) -> Steps[Selection]:
    """What a JMESPath expression selects of a JSON value, or of text that is JSON, as JSON text.

    Raises:
        QueryError: no expression, or one that does not fit the value. QueryLimitError: it takes over `compute_ms_max`,
        or makes over 1,000,000 characters. TooLargeError: over `select_bytes_max` would have to be decoded.
        PointerNotFoundError, PointerExpiredError, CorruptRecordError.

    Redis: as `resolve`; a continuation selects again.
    """
    parsed = compile_expression(expression)
    question = ("select", id_of(pointer), expression)
    answer_max = output_max(scope, characters_max)
    start = continuations.unpack(question, continuation, 1)[0] if continuation else 0
    opened = yield from open_pointer(scope, pointer, prefetch=True)
    value = yield from whole_json(opened)
    answers: list[str] = []
    yield Compute(_evaluate(parsed, value, scope.settings.compute_ms_max, answers), apart=True)
    text = answers[0]
    part = text[max(0, start) : start + answer_max]
    stop = start + len(part)
    more = continuations.pack(question, (stop,)) if stop < len(text) else ""
    return Selection(text=part, characters=len(text), start=start, continuation=more)


def _evaluate(parsed: Any, value: Any, compute_ms_max: int, into: list[str]) -> Iterator[None]:
    into.append(as_text(evaluate(parsed, value, compute_ms_max)))
    yield
