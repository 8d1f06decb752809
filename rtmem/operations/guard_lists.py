"""Lists, whose members may stand in any order: between A and B, A or B, A vs B, "apples, pears and plums"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

from msgspec.structs import replace

from rtmem.operations.guard_features import Features, Item

_ITEMS_MAX: Final = 40
_MEMBER_WORDS_MAX: Final = 3
_MEMBERS_MAX: Final = 8
# Where one of these stands, what is named first comes first.
_SEQUENCE: Final = re.compile(
    r"\b(?:then|first|firstly|next|before|after|afterwards|later|last|finally|respectively|"
    r"сначала|сперва|вначале|потом|затем|перед|после|раньше|позже|соответственно|перв\w+)\b"
)

Cut: TypeAlias = list[int]
"""Where the members of a list begin, and where the last one ends, in the items of a text."""
Members: TypeAlias = tuple[tuple[str, ...], ...]
"""The stems of the words of each."""


def relisted(asked: Features, cached: Features) -> Features | None:
    """`cached` with the members of a list in the order that `asked` has them in; None if there is no such list."""
    ours, theirs = asked.items[:_ITEMS_MAX], cached.items[:_ITEMS_MAX]
    if not (_has_list(ours) and _has_list(theirs)) or any(
        _SEQUENCE.search(side.text.casefold()) for side in (asked, cached)
    ):
        return None
    known: dict[Members, Cut] = {}
    for cut in _cuts(ours):
        known.setdefault(tuple(sorted(_members(ours, cut))), cut)
    for cut in _cuts(theirs):
        members = _members(theirs, cut)
        found = known.get(tuple(sorted(members)))
        if found is not None and _members(ours, found) != members:
            return replace(cached, items=_ordered(ours, found, theirs, cut) + cached.items[_ITEMS_MAX:])
    return None


def _has_list(items: tuple[Item, ...]) -> bool:
    return any(item.joined for item in items)


def _cuts(items: tuple[Item, ...]) -> Iterator[Cut]:
    """Each way to read a list, the longest members first: where the first begins and the last ends, nothing says."""
    lengths = range(_MEMBER_WORDS_MAX, 0, -1)
    for at, item in enumerate(items):
        if not item.joined:
            continue
        begins = [at]
        while begins[0] and len(begins) < _MEMBERS_MAX and (comma := _comma_before(items, begins[0])):
            begins.insert(0, comma)
        for first in range(len(begins)):  # a comma may belong to what stands before the list
            inner = begins[first:]
            sizes = {two - one for one, two in pairwise(inner)}
            for before in lengths:
                for after in lengths:
                    cut = [inner[0] - before, *inner, at + after]
                    # "Rome hates Paris and Milan" is not "Milan and Rome hate Paris".
                    is_even = max({before, after, *sizes}) - min({before, after, *sizes}) <= 1
                    if is_even and cut[0] >= 0 and cut[-1] <= len(items) and _is_list(items, cut):
                        yield cut


def _comma_before(items: tuple[Item, ...], end: int) -> int:
    """Where the member that ends before `end` begins, if with a comma; else 0."""
    for at in range(end - 1, max(end - 1 - _MEMBER_WORDS_MAX, 0), -1):
        if items[at].is_parted:
            return at
    return 0


def _is_list(items: tuple[Item, ...], cut: Cut) -> bool:
    """Whether all members play the role of the first, or of what stands before: not "a fever and no cough"."""
    first = items[cut[0]].role
    for at, end in pairwise(cut[1:]):
        role = items[at].role
        is_owner = role == "of" and end - at > 1  # between Ann's cat and Tom's dog
        if role == "not" or not (is_owner or role in ("", first, items[at - 1].role)):
            return False
    within = set(range(cut[0] + 1, cut[-1])) - set(cut)
    return not any(items[at].joined or items[at].is_parted for at in within)


def _members(items: tuple[Item, ...], cut: Cut) -> Members:
    return tuple(tuple([item.stem for item in items[begin:end]]) for begin, end in pairwise(cut))


def _ordered(ours: tuple[Item, ...], cut: Cut, theirs: tuple[Item, ...], their_cut: Cut) -> tuple[Item, ...]:
    """`theirs` with its list in the order of ours. What stands before a member stays where it is."""
    free = dict(enumerate(_members(theirs, their_cut)))
    result = list(theirs[: their_cut[0]])
    for place, member in enumerate(_members(ours, cut)):
        taken = next(at for at, stems in free.items() if stems == member)
        del free[taken]
        head, *rest = theirs[their_cut[taken] : their_cut[taken + 1]]
        before = theirs[their_cut[place]]
        role = ours[cut[place]].role if place else before.role
        result += [replace(head, role=role, joined=before.joined, is_parted=before.is_parted), *rest]
    return (*result, *theirs[their_cut[-1] :])
