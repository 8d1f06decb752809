"""A list as shared pieces: which neighbours are stored already, which are new.

A conversation grows by a message at a time; storing the whole list at every step costs the square of the talk. Here
a list is an ordered sequence of *pieces*, each the encoding of one or a few neighbouring elements, and a checkpoint
names its pieces by ranges of numbers. Appending one message to 2,500 stores one piece and the text `17:2500,2519:1`.

Whether an element is stored already is decided by a *fingerprint* of what it holds now, not by identity (LangGraph
hands out new objects at every invocation) nor by `==` (1 == True == 1.0, and key order would be lost). So removing,
reordering, editing and mutating an old message in place are all seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rtmem.operations.fingerprints import prints_of
from rtmem.operations.serde import Serde

LARGE_PIECE_BYTES_MIN = 64 * 1024
LARGE_FIRST = 2**51  # numbers from here on are random; all fit the doubles that Lua counts with
OFFLOADED_FIRST = 2**52 + 2**51  # these too; the bytes of such a piece lie at a pointer

_BULK_BYTES_MIN = 256 * 1024
_BULK_PIECE_BYTES = 32 * 1024
_ELEMENTS_PER_PIECE_MAX = 64
_FIRST_RUN = 4  # elements of the first new piece; the next ones follow from its size
_SAMPLED_MIN = 256  # a shorter list is fingerprinted in no time
_PRINTS_PER_SLICE = 256
_PLAIN = frozenset({int, float, bool, type(None)})


def is_shareable(value: object) -> bool:
    """Whether `value` is a list that is worth splitting: of messages, dicts, texts, not of numbers."""
    if type(value) is not list or not value:
        return False
    sample = (value[0], value[len(value) // 2], value[-1])
    return any(type(element) not in _PLAIN for element in sample)


@dataclass(slots=True)
class ListImage:
    """What this process knows of a stored list: fingerprints of its elements, and the pieces that hold them."""

    prints: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # elements per piece
    numbers: list[int] = field(default_factory=list)  # piece numbers, in order
    stored: list[bytes] = field(default_factory=list)  # the pieces themselves
    decoded: list[list[Any] | None] = field(default_factory=list)  # their elements, handed out only as copies


class Fresh:
    """New pieces of one put.

    A small piece is passed to the Redis Function, which numbers it; until then it is known by its place, from 0. A
    large one must not go through Lua (2 ms per MB, during which the server does nothing else): it is written by a
    plain HSET in the same transaction, under a random number that no counter will reach. An oversized one is moved out
    of the thread, see offloading.py; from then on it is a piece like others.
    """

    __slots__ = ("_next_large", "_next_offloaded", "_offload_bytes_min", "large", "offloaded", "small")

    def __init__(self, offload_bytes_min: int = 0) -> None:
        self._next_large = LARGE_FIRST + random.getrandbits(51)
        self._next_offloaded = OFFLOADED_FIRST + random.getrandbits(50)
        self._offload_bytes_min = offload_bytes_min
        self.small: list[bytes] = []
        self.large: dict[int, bytes] = {}
        self.offloaded: dict[int, bytes] = {}

    def is_oversized(self, stored: bytes) -> bool:
        """Whether a value of these bytes is to be moved out of the thread."""
        return 0 < self._offload_bytes_min <= len(stored)

    def add(self, stored: bytes, in_bulk: bool = False) -> int:
        """Take a piece; answers its place if it is small, its number if it is large, oversized or one of many."""
        if self.is_oversized(stored):
            number = self._next_offloaded
            self._next_offloaded += 1
            self.offloaded[number] = stored
            return number
        if len(stored) < LARGE_PIECE_BYTES_MIN and not in_bulk:
            self.small.append(stored)
            return len(self.small) - 1
        number = self._next_large
        self._next_large += 1  # consecutive, so that all large pieces of a put are one range
        self.large[number] = stored
        return number

    def stored(self, ref: int) -> bytes:
        """The bytes of a piece."""
        if ref >= OFFLOADED_FIRST:
            return self.offloaded[ref]
        return self.large[ref] if ref >= LARGE_FIRST else self.small[ref]


def number_of(ref: int, first: int) -> int:
    """The number of a piece, once the server has given `first` to the first small one."""
    return ref if ref >= LARGE_FIRST else first + ref


@dataclass(slots=True)
class Piece:
    """A run of elements of a list: the `known`-th piece of what is stored, or the new one `fresh`."""

    size: int
    known: int = -1
    fresh: int = -1


@dataclass(slots=True)
class Cut:
    """A list cut into pieces: the first `kept` of `known`, then `tail`."""

    known: ListImage
    prints: list[bytes] = field(default_factory=list)
    kept: int = 0
    tail: list[Piece] = field(default_factory=list)


def split(elements: list[Any], cut: Cut, serde: Serde, fresh: Fresh, piece_bytes_min: int) -> Iterator[None]:
    """Fill `cut`: pieces that are known where the contents are the same, new ones, appended to `fresh`, elsewhere.

    Yields now and then, so that a long list can be worked off in slices; a short one is one slice.
    """
    at, long = 0, len(elements) > _PRINTS_PER_SLICE
    index: dict[bytes, list[tuple[list[bytes], int]]] = {}
    if cut.known.numbers and not _is_all_new(elements, cut.known, serde):
        for start in range(0, len(elements), _PRINTS_PER_SLICE):
            cut.prints += prints_of(elements[start : start + _PRINTS_PER_SLICE], serde.dumps)
            if long:
                yield
        cut.kept, at = _common_start(cut.prints, cut.known)
        index = _index(cut.known, cut.kept) if at < len(elements) else {}
    run = at
    per_piece, in_bulk = _FIRST_RUN, False
    while at < len(elements):
        found = _find(index, cut.prints, at) if index else None
        if run < at and (found or at - run >= per_piece):
            stored_bytes = _store(elements, run, at, cut, serde, fresh, in_bulk)
            element_bytes = stored_bytes / (at - run)
            in_bulk = element_bytes * (len(elements) - at) >= _BULK_BYTES_MIN
            per_piece = _elements_per_piece(element_bytes, in_bulk, piece_bytes_min)
            run = at
            if long:
                yield
        if found:
            size, which = found
            cut.tail.append(Piece(size, known=which))
            run = at = at + size
        else:
            at += 1
    if run < at:
        _store(elements, run, at, cut, serde, fresh, in_bulk)


def _store(elements: list[Any], start: int, stop: int, cut: Cut, serde: Serde, fresh: Fresh, in_bulk: bool) -> int:
    """Encode a run as a new piece; answers its size in bytes."""
    # Fingerprinted here, in the same slice: another task may have changed an element since it was looked up, and print
    # and bytes must be of one moment.
    stored, cut.prints[start:stop] = serde.dumps_run(elements[start:stop])
    cut.tail.append(Piece(stop - start, fresh=fresh.add(stored, in_bulk)))
    return len(stored)


def _elements_per_piece(element_bytes: float, in_bulk: bool, piece_bytes_min: int) -> int:
    """How many elements the next new piece should have.

    Much that arrives at once (a thread that is imported, a state that is copied) is cut into pieces of about 32 KB
    that do not go through Lua. Not larger: a piece is decoded in one slice, and 32 KB of messages take a millisecond.
    """
    if in_bulk:
        return max(1, int(_BULK_PIECE_BYTES / element_bytes))
    return max(1, min(_ELEMENTS_PER_PIECE_MAX, int(piece_bytes_min / element_bytes)))


def _is_all_new(elements: list[Any], known: ListImage, serde: Serde) -> bool:
    """Whether nothing of a sample of a long list is stored, so that looking for old pieces is in vain.

    Begin, end and every so-many-th element in between: a list that was appended to, trimmed, edited or summarised has
    old neighbours in one of them. Being wrong stores old elements once more; it never gives back a wrong value.
    """
    if len(elements) < _SAMPLED_MIN:
        return False
    sample = elements[:8] + elements[8 : -8 : len(elements) // 48] + elements[-8:]
    return set(prints_of(sample, serde.dumps)).isdisjoint(known.prints)


def _common_start(prints: list[bytes], known: ListImage) -> tuple[int, int]:
    """How many leading pieces of `known` are unchanged, and how many elements they hold."""
    # The usual case, an append, is decided by one comparison of lists in C.
    stop = len(known.prints)
    if prints[:stop] == known.prints:
        return len(known.numbers), stop
    pairs = zip(prints, known.prints, strict=False)
    stop = next((k for k, (new, old) in enumerate(pairs) if new != old), min(len(prints), stop))
    at = 0
    for kept, size in enumerate(known.sizes):
        if at + size > stop:
            return kept, at
        at += size
    return len(known.sizes), at


def _index(known: ListImage, skip: int) -> dict[bytes, list[tuple[list[bytes], int]]]:
    """The pieces of `known` behind the first `skip`, by the fingerprint of their first element."""
    index: dict[bytes, list[tuple[list[bytes], int]]] = {}
    at = sum(known.sizes[:skip])
    for which in range(skip, len(known.sizes)):
        prints = known.prints[at : at + known.sizes[which]]
        index.setdefault(prints[0], []).append((prints, which))
        at += known.sizes[which]
    return index


def _find(index: dict[bytes, list[tuple[list[bytes], int]]], prints: list[bytes], at: int) -> tuple[int, int] | None:
    for piece, which in index.get(prints[at], ()):
        if prints[at : at + len(piece)] == piece:
            return len(piece), which
    return None


def ranges_text(cut: Cut) -> str:
    """The pieces of `cut` as the text a put sends: "17:2500,+0:1"."""
    ranges: list[tuple[str, int, int]] = [("", start, count) for start, count in runs(cut.known.numbers[: cut.kept])]
    for piece in cut.tail:
        start = cut.known.numbers[piece.known] if piece.known >= 0 else piece.fresh
        sign = "+" if piece.known < 0 and start < LARGE_FIRST else ""
        if ranges and ranges[-1][0] == sign and ranges[-1][1] + ranges[-1][2] == start:
            ranges[-1] = (sign, ranges[-1][1], ranges[-1][2] + 1)
        else:
            ranges.append((sign, start, 1))
    return ",".join(f"{sign}{start}:{count}" for sign, start, count in ranges)


def runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """`numbers` as (start, count). Those of a conversation are mostly consecutive, so whole stretches are compared."""
    at = 0
    while at < len(numbers):
        start, count = numbers[at], 1
        stretch = len(numbers) - at - 1
        while stretch:
            if numbers[at + count : at + count + stretch] == list(range(start + count, start + count + stretch)):
                count += stretch
                stretch = min(stretch, len(numbers) - at - count)
            else:
                stretch //= 2
        yield start, count
        at += count


def numbers_of(ranges: bytes) -> list[int]:
    """The piece numbers of a stored list, in order."""
    numbers: list[int] = []
    for part in ranges.split(b",") if ranges else ():
        start, count = part.split(b":")
        numbers.extend(range(int(start), int(start) + int(count)))
    return numbers


def image_of(cut: Cut, fresh: Fresh, first: int) -> ListImage:
    """What is stored once the server has given `first` as the number of the first new piece."""
    known, kept = cut.known, cut.kept
    image = ListImage(cut.prints, known.sizes[:kept], known.numbers[:kept], known.stored[:kept], known.decoded[:kept])
    for piece in cut.tail:
        image.sizes.append(piece.size)
        new = piece.known < 0
        image.numbers.append(number_of(piece.fresh, first) if new else known.numbers[piece.known])
        image.stored.append(fresh.stored(piece.fresh) if new else known.stored[piece.known])
        image.decoded.append(None if new else known.decoded[piece.known])
    return image
