"""Looking for a pattern in a value, chunk by chunk, in slices that are bounded in time and answers bounded in size.

Regular expressions are RE2's: linear in the text whatever the pattern, without back-references and look-around, which
is what makes other engines hang. Linear is not fast enough alone: a pattern of a thousand states looks at a thousand
states for each byte. So the larger its program, the less text one slice covers, and the time of a whole search has a
budget too; what is left is for the continuation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import re2

from rtmem.errors import QueryError
from rtmem.operations.pointer_cuts import characters_in
from rtmem.records import Match

PATTERN_CHARACTERS_MAX: Final = 1_000
MATCH_BYTES_MAX: Final = 4_096
"""A match of a regular expression that is longer than this is not found where it spans two chunks."""

_PROGRAM_MAX: Final = 5_000  # instructions
_COMPILED_BYTES_MAX: Final = 1024 * 1024  # so that compiling takes 50 ms at worst; with RE2's 8 MB it was 240 ms
_SEARCH_BYTES_MAX: Final = 8 * 1024 * 1024  # of states it remembers: with less it begins anew for each byte
_STEPS_MAX: Final = 1_000_000  # instructions times bytes of one slice: 10 to 50 ms at worst, 1 ms as a rule
_WINDOW_BYTES: Final = 64 * 1024
_CONTEXT_CHARACTERS: Final = 80  # on each side of a match, within its line
_SHOWN_CHARACTERS_MAX: Final = 200  # of a match

Find = Callable[[bytes, int, int], tuple[int, int] | None]
"""Where the pattern is found first from one place on, before another one."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What is looked for."""

    find: Find
    overlap_bytes: int  # how far behind the end of a slice a match that begins in it may reach
    window_bytes: int

    @property
    def costly(self) -> bool:
        """Whether a slice may take tens of milliseconds: RE2 works without the GIL, so a thread keeps the loop free."""
        return self.window_bytes < _WINDOW_BYTES // 4


def compile_pattern(pattern: str, *, regex: bool, ignore_case: bool) -> Pattern:
    """A pattern that can be looked for within bounds. Raises QueryError."""
    if type(pattern) is not str or not pattern:
        raise QueryError("search needs a pattern of at least one character")
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise QueryError(
            f"the pattern has {len(pattern)} characters, at most {PATTERN_CHARACTERS_MAX} are allowed: look for a part"
        )
    raw = pattern.encode("utf-8", "surrogatepass")
    if not regex and not ignore_case:

        def find(text: bytes, start: int, stop: int) -> tuple[int, int] | None:
            at = text.find(raw, start, stop)
            return None if at < 0 else (at, at + len(raw))

        return Pattern(find, len(raw), _WINDOW_BYTES)
    return _compile_regex(pattern, ignore_case=ignore_case, literal=not regex)


def _compile_regex(pattern: str, *, ignore_case: bool, literal: bool) -> Pattern:
    options = re2.Options()
    options.case_sensitive = not ignore_case
    options.log_errors = False
    options.never_capture = True
    options.literal = literal  # then "(?m:" would be part of it, and it has no lines to begin or end at
    source = pattern if literal else f"(?m:{pattern})"
    try:
        # Once to see that it is not too large, and then with room for the states of the search: a program of more
        # than 5,000 instructions has no second time.
        options.max_mem = _COMPILED_BYTES_MAX
        compiled: Any = re2.compile(source, options)
    except (re2.error, UnicodeError) as exc:
        reason = exc.args[0].decode() if exc.args and type(exc.args[0]) is bytes else str(exc)
        raise QueryError(
            f"the pattern is no regular expression of RE2 (no back-references, no look-around): {reason}"
        ) from exc
    if compiled.programsize > _PROGRAM_MAX:
        raise QueryError(
            f"the pattern has {compiled.programsize} steps, at most {_PROGRAM_MAX} are allowed: use smaller repeats"
        )
    options.max_mem = _SEARCH_BYTES_MAX
    compiled = re2.compile(source, options)
    if compiled.fullmatch(b"") is not None:
        raise QueryError("the pattern also matches nothing at all, and so everywhere: use + instead of *, or add text")

    def find(text: bytes, start: int, stop: int) -> tuple[int, int] | None:
        found = compiled.search(text, start, stop)
        return None if found is None else found.span()

    return Pattern(find, MATCH_BYTES_MAX, max(1_024, min(_WINDOW_BYTES, _STEPS_MAX // compiled.programsize)))


@dataclass(slots=True)
class Scan:
    """A search that is under way: feed it chunks in order, and run it after each."""

    pattern: Pattern
    buffer_start: int  # where in the value the buffer begins, in bytes
    position: int  # where to look next, in bytes of the value
    characters: int  # before the buffer
    lines: int  # before the buffer
    matches_max: int
    characters_max: int
    compute_ms_max: int
    buffer: bytes = b""
    matches: list[Match] = field(default_factory=list)
    full: bool = False  # an answer has no room for more, or the time is over
    _counted: int = 0  # index in the buffer up to which characters and lines are counted
    _spent_s: float = 0.0
    _shown: int = 0

    def feed(self, chunk: bytes, *, last: bool) -> Iterator[None]:
        """Look through what came before and `chunk`, in slices."""
        self.buffer += chunk
        end = len(self.buffer)
        stop = end if last else end - self.pattern.overlap_bytes - 4 * _CONTEXT_CHARACTERS
        at = self._character_at(self.position - self.buffer_start)
        while at < stop and not self.full:
            began = time.thread_time()
            till = min(at + self.pattern.window_bytes, stop)
            at = self._look(at, self._character_at(till), began)
            self.position = self.buffer_start + at
            self._spent_s += time.thread_time() - began
            if self._spent_s * 1000 >= self.compute_ms_max and not (last and at >= stop):
                self.full = True
            yield
        self._forget(at)

    def _look(self, at: int, till: int, began: float) -> int:
        """Note every match that begins in at..till; where to go on."""
        deadline = began + self.compute_ms_max / 1000 - self._spent_s
        while at < till:
            found = self.pattern.find(self.buffer, at, min(len(self.buffer), till + self.pattern.overlap_bytes))
            if found is None or found[0] >= till:
                return till
            start, end = found
            start = self._character_at(start)  # \C, and what is no UTF-8, may match inside of one
            if end > start and not self._note(start, end):
                self.full = True
                return start
            at = self._character_at(max(end, start + 1))
            if time.thread_time() > deadline:
                self.full = True
                return at
        return at

    def _character_at(self, at: int) -> int:
        """Where the first character begins from here on: an answer goes on, and counts, from whole ones."""
        while at < len(self.buffer) and self.buffer[at] & 0xC0 == 0x80:
            at += 1
        return at

    def _note(self, start: int, end: int) -> bool:
        """Take a match in; False if the answer has no room for it."""
        if len(self.matches) >= self.matches_max:
            return False
        text, match = self._excerpt(start, end)
        if self.matches and self._shown + len(text) + len(match) > self.characters_max:
            return False
        self._count(start)
        self.matches.append(Match(start=self.characters, line=self.lines, text=text, match=match))
        self._shown += len(text) + len(match)
        return True

    def _count(self, till: int) -> None:
        passed = self.buffer[self._counted : till]
        self.characters += characters_in(passed)
        self.lines += passed.count(b"\n")
        self._counted = till

    def characters_before(self, position: int) -> int:
        """How many characters of the value stand before a byte that is still in the buffer."""
        self._count(max(self._counted, position - self.buffer_start))
        return self.characters

    def _excerpt(self, start: int, end: int) -> tuple[str, str]:
        room = min(_SHOWN_CHARACTERS_MAX, max(1, self.characters_max // 4))
        side = min(_CONTEXT_CHARACTERS, room)
        begin = max(self.buffer.rfind(b"\n", 0, start) + 1, start - 4 * side)
        stop = self.buffer.find(b"\n", end)
        stop = min(len(self.buffer) if stop < 0 else stop, end + 4 * side)
        before = self._text(begin, start)[-side:]
        match = self._text(start, min(end, start + 4 * room))[:room]
        return before + match + self._text(end, stop)[:side], match

    def _text(self, start: int, stop: int) -> str:
        # What was cut off at its ends may be half a character there.
        return self.buffer[start:stop].decode("utf-8", "ignore")

    def _forget(self, at: int) -> None:
        """Drop what no match and no excerpt needs any more."""
        keep = max(0, min(at, len(self.buffer)) - 4 * _CONTEXT_CHARACTERS - 4)
        if keep > _WINDOW_BYTES // 2:
            keep = self._character_at(keep)
            self._count(max(self._counted, keep))
            self.buffer = self.buffer[keep:]
            self.buffer_start += keep
            self._counted -= keep
