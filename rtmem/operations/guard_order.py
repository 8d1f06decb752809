"""Do the words that two texts share play the same roles in both?

"Florida to NY" and "NY to Florida" have the same words. Roles show in three ways: by the preposition before a word, by
its place among the others (subject, verb, object), and in Russian by its ending.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from rtmem.operations.guard_endings import are_bent, declined, is_instrumental
from rtmem.operations.guard_features import Features, Item
from rtmem.operations.guard_lexicon import Kind, words_of
from rtmem.operations.guard_lists import relisted
from rtmem.operations.guard_pairs import NO_KIN, Kin, Pair, Said, paired, said
from rtmem.operations.text_query import stem

_ITEMS_MAX: Final = 40
"""Of a longer text only the first are looked at: the work grows with the square."""

# The prepositions of one word that cannot mean the same; "" is none.
_OPPOSED: Final = """
from to, before after, before during, after during, against for, under over, over -, under -, than -, by -
instead of -, in out, in off, up down
из в, из к, из до, с до, после перед, после до, под над, за против, для против, вместо -, по сравнению с -
при после, при до
"""
_OPPOSED_ROLES: Final = frozenset(
    frozenset(pair.strip().replace("-", "").rsplit(" ", 1)) for line in _OPPOSED.split("\n") for pair in line.split(",")
)
# Before a number or a date each preposition says something else, and these say something that none does not.
_DATED: Final[frozenset[Kind]] = frozenset(("number", "date"))
_BOUNDS: Final = words_of("before after over under than until до после перед")
_AND_OR: Final = {"and", "or"}
_DURING: Final = frozenset(("in", "during"))
# Between what these join, there is no first and second: mix A with B, how far is A from B.
_MUTUAL: Final = frozenset(
    map(
        stem,
        words_of(
            "mix combine blend compare pair far distance differ different similar same equal "
            "смешать смешивать мешать сочетать сочетаться сравнить сравнивать расстояние далеко совместим"
        ),
    )
) | {"how far"}
_HOW_FAR: Final = frozenset(("how far",))
_CHOOSING: Final = frozenset(("what", "who"))
_MUTUAL_ROLES: Final = frozenset(frozenset(("", role)) for role in ("with", "from", "с"))
# These are between two whatever is asked of them: the distance from A to B, чем А отличается от Б.
_BETWEEN_TWO: Final = {
    frozenset(roles): frozenset(map(stem, words.split()))
    for *roles, words in (
        ("from", "to", "distance"),
        ("", "to", "compare comparison similar equal"),
        ("", "with", "compare comparison"),
        ("из", "до", "расстояние"),
        ("", "из", "отличается отличие"),
        ("", "с", "сравнить сравнивать сравнение"),
    )
}
_THAN: Final = frozenset(("than", ""))
_COMPARES: Final = re.compile(r"\bcompares? (?:to|with)\b")
_NO_STEMS: Final[frozenset[str]] = frozenset()
_OBJECT_AND_SUBJECT: Final = {"object", "subject"}
_BY: Final = frozenset(("by", ""))


def exchanged(asked: Features, cached: Features, kin: Kin = NO_KIN) -> Said | None:
    """The words whose roles differ, as they stand in either text; None if all play the same.

    kin: which items of `asked` and `cached` are made from one word, though they share no sense.
    """
    found = _exchanged(asked, cached, kin)
    if found:
        listed_anew = relisted(asked, cached)
        if listed_anew is not None:
            return _exchanged(asked, listed_anew, kin)
    return found


def _exchanged(asked: Features, cached: Features, kin: Kin) -> Said | None:
    pairs = paired(asked.items[:_ITEMS_MAX], cached.items[:_ITEMS_MAX], kin)
    moved = [pair for pair in pairs if pair.one.role != pair.other.role]
    excused: set[Pair] = set()
    for at, first in enumerate(moved):
        for second in moved[at + 1 :]:
            if first.one.role == second.other.role and second.one.role == first.other.role:
                if _is_mutual(pairs, asked, frozenset((first.one.role, second.one.role))):
                    excused |= {first, second}
                    continue
                return said(first.one, second.one), said(first.other, second.other)
    if excused:
        pairs = [pair for pair in pairs if pair not in excused]
        moved = [pair for pair in moved if pair not in excused]
    for pair in pairs:
        if pair.one.joined != pair.other.joined and {pair.one.joined, pair.other.joined} == _AND_OR:
            return pair.one.joined, pair.other.joined
    if not moved and not _is_turned(pairs):  # then only the words themselves may tell, as most rewordings do not
        return declined(pairs) or _suffered(pairs, asked, cached)
    for pair in moved:
        roles = frozenset((pair.one.role, pair.other.role))
        if pair.one.kind in _DATED and roles != _DURING and ("" not in roles or not roles.isdisjoint(_BOUNDS)):
            return said(pair.one), said(pair.other)
        # "by" only marks who acts in a sentence turned around: A hit B, B was hit by A.
        if roles in _OPPOSED_ROLES and not (roles == _BY and _is_turned(pairs)):
            return said(pair.one), said(pair.other)
    if {asked.asked, cached.asked} == _OBJECT_AND_SUBJECT and _is_turned(_told(pairs, asked, cached)):
        return asked.text, cached.text
    # Of what stands anywhere, because its preposition says what it is, the second look is free.
    settled = [pair for pair in pairs if pair.one.role and pair.one.role == pair.other.role]
    if settled and len(pairs) - len(settled) > 1:
        found = _swapped([pair for pair in pairs if pair not in settled])
        if found:
            return found
    return _swapped(pairs) or declined(pairs) or _suffered(pairs, asked, cached) or _crossed(pairs)


def _is_mutual(pairs: list[Pair], asked: Features, roles: frozenset[str]) -> bool:
    """Whether two do it with each other. "Which drinks mix with gin" is not "which gins mix with drinks"."""
    if roles == _THAN:  # "compare to" is read as "than" is
        return _COMPARES.search(asked.text.casefold()) is not None
    stems = _BETWEEN_TWO.get(roles, _NO_STEMS)
    if roles in _MUTUAL_ROLES:
        stems |= _HOW_FAR if asked.question in _CHOOSING else _MUTUAL
    return any(pair.one.stem in stems for pair in pairs)


def _is_turned(pairs: list[Pair]) -> bool:
    return any(one.place > two.place for one, two in pairwise(pairs))


def _told(pairs: list[Pair], asked: Features, cached: Features) -> list[Pair]:
    """The pairs without fillers, if the texts have nothing else; else none."""
    told = [pair for pair in pairs if pair.one.kind != "filler"]
    counts = {sum(item.kind != "filler" for item in side.items) for side in (asked, cached)}
    return told if counts == {len(told)} else []


def _swapped(pairs: list[Pair]) -> Said | None:
    """X verb Y against Y verb X: two blocks have changed places around what stands between them."""
    ranks = {place: rank for rank, place in enumerate(sorted(pair.place for pair in pairs))}
    begin = highest = 0
    for at, pair in enumerate(pairs):
        highest = max(highest, ranks[pair.place])
        if highest == at:  # so far the same items in both: whatever moved, moved among them
            if at > begin and (found := _exchanged_blocks(pairs[begin : at + 1], is_first=begin == 0)):
                return found
            begin = at + 1
    return None


def _exchanged_blocks(pairs: list[Pair], *, is_first: bool) -> Said | None:
    """The blocks at both ends of `pairs` if they have changed places and what is between them has stayed."""
    places = sorted(pair.place for pair in pairs)
    order = [places.index(pair.place) for pair in pairs]
    size = len(order)
    for left in range(1, size):
        if order[:left] != list(range(size - left, size)):
            continue
        for right in range(1, size - left + 1):
            between = order[left : size - right]
            if order[size - right :] == list(range(right)) and between == list(range(right, right + len(between))):
                front, back = pairs[:left], pairs[size - right :]
                if _matters(front, back, is_adjacent=not between, is_first=is_first):
                    first, second = front[0], back[0]
                    return said(first.one, second.one), said(second.other, first.other)
    return None


def _matters(front: list[Pair], back: list[Pair], *, is_adjacent: bool, is_first: bool) -> bool:
    """Whether two blocks that changed places mean something else now.

    Not if prepositions say what they are, wherever they stand; nor if one text says it in the passive.
    """
    moved = (*front, *back)
    speaks = any(pair.one.kind == "pronoun" for pair in moved)
    if not speaks and "filler" in (front[0].one.kind, back[0].one.kind):
        return False
    if _is_resumed(front, back) or (is_adjacent and _is_suffering(front, back)):
        return False
    if any(pair.one.role or pair.other.role for pair in (moved if is_adjacent else (_head(front), _head(back)))):
        return _are_owners(front, back) if is_adjacent else _keep_one_role(moved, is_first=is_first)
    first, second = front[0], back[0]
    is_listed = second.one.joined and first.other.joined  # "A and B" is "B and A"
    if is_adjacent and not is_listed and are_bent(first, second):
        return True
    if any(is_instrumental(pair.one) for pair in moved) != any(is_instrumental(pair.other) for pair in moved):
        return False
    if speaks:  # who follows me, whom I follow
        return True
    if is_adjacent:
        # "Learn quickly" is "quickly learn".
        return not is_listed and (_are_even(first, second) or _are_nouns(first, second))
    return True


def _head(block: list[Pair]) -> Pair:
    """The word that a block is about: a child's teacher, a teacher of children."""
    return next((pair for pair in block if "of" not in (pair.one.role, pair.other.role)), block[0])


def _are_owners(front: list[Pair], back: list[Pair]) -> bool:
    """Whether each belongs to the other now: my wife's boss's car, my boss's wife's car."""
    pairs = (front[-1], back[0])
    is_listed = any(item.joined for pair in pairs for item in (pair.one, pair.other))
    return not is_listed and all(pair.one.role == pair.other.role == "of" for pair in pairs)


def _is_suffering(front: list[Pair], back: list[Pair]) -> bool:
    """Whether a verb comes before what it is done to, and after it in the passive: delete a file, a file is deleted."""
    return (front[0].other.is_passive and not front[0].one.is_passive) or (
        back[-1].one.is_passive and not back[-1].other.is_passive
    )


def _crossed(pairs: list[Pair]) -> Said | None:
    """Two English words in the other order, where it shows that each is now what the other was.

    Both are names; or one has lost a preposition, and the other has got one.
    """
    pairs = [pair for pair in pairs if pair.one.kind in _THINGS and pair.one.surface.isascii()]
    is_directed = any(pair.one.stem in _DIRECTED and not pair.one.is_passive | pair.other.is_passive for pair in pairs)
    for at, first in enumerate(pairs):
        for second in pairs[at + 1 :]:
            if _has_followed(first, second) or (
                first.place > second.place
                and (
                    _are_bare_names(first, second)
                    or _has_passed(first, second)
                    or (is_directed and _is_moved(first, second))
                    or _are_around(first, second, pairs[at + 1 :])
                )
            ):
                return said(first.one, second.one), said(second.other, first.other)
    return None


def _has_followed(first: Pair, second: Pair) -> bool:
    """Whether one plays now what the other played, which plays something else: sold to her, bought by her from him."""
    if first.one.role == first.other.role or second.one.role == second.other.role:
        return False
    taken = {first.one.role} & {second.other.role} | {first.other.role} & {second.one.role}
    return bool(taken - _TAKEN_BY_ANY)


def _is_moved(first: Pair, second: Pair) -> bool:
    """Whether one of two that are more than what joins them is marked otherwise: A affects B, the effect of B on A."""
    pairs = (first, second)
    if any(pair.one.stem in _DIRECTED for pair in pairs):
        return False
    return any(pair.one.role != pair.other.role for pair in pairs)


def _are_around(first: Pair, second: Pair, after: list[Pair]) -> bool:
    """Whether a word stands between both in either text: the police search a citizen, a citizen searches the police."""
    if _is_resumed([first], [second]):
        return False
    if any(role not in _BARE for pair in (first, second) for role in (pair.one.role, pair.other.role)):
        return False
    between = after[: after.index(second)]
    return any(
        second.place < pair.place < first.place
        and {pair.one.role, pair.other.role} <= _VERBAL
        and not (pair.one.is_passive or pair.other.is_passive)
        for pair in between
    )


_DIRECTED: Final = frozenset(map(stem, words_of("affect effect impact influence cause lead depend result")))
_BARE: Final = frozenset(("", "of"))
_VERBAL: Final = frozenset(("", "to"))
_TAKEN_BY_ANY: Final = frozenset(("", "of", "in", "for"))


def _are_bare_names(first: Pair, second: Pair) -> bool:
    items = (first.one, first.other, second.one, second.other)
    return all(item.is_name and not item.role and not item.joined for item in items)


def _has_passed(first: Pair, second: Pair) -> bool:
    changes = []
    for pair in (first, second):
        was, is_now = pair.one.role, pair.other.role
        if bool(was) == bool(is_now) or (was or is_now) in _NO_PLACE:
            return False
        changes.append(bool(is_now))
    return changes[0] != changes[1]


_NO_PLACE: Final = frozenset(("of", "to"))  # its president; to rename


def _is_resumed(front: list[Pair], back: list[Pair]) -> bool:
    """Whether one text has "it" where the other has the word: fix the tap; the tap leaks, fix it."""
    return any(pair.one.takes_it != pair.other.takes_it for pair in (front[0], back[-1]))


def _suffered(pairs: list[Pair], asked: Features, cached: Features) -> Said | None:
    """Somebody who does it in one text, and to whom it is done in the other: cats eat, cats are eaten."""
    for before, verb in pairwise(pairs):
        if (
            verb.one.is_passive != verb.other.is_passive
            and " " not in verb.one.surface + verb.other.surface
            and before.place + 1 == verb.place
            and _follow(asked.items, before.one, verb.one)
            and not (before.one.role or before.other.role)
            and before.one.kind == "content"
            and before.one.is_apart == before.other.is_apart
        ):
            return said(before.one, verb.one), said(before.other, verb.other)
    return None


def _follow(items: tuple[Item, ...], first: Item, second: Item) -> bool:
    return any(one is first and other is second for one, other in pairwise(items))


def _keep_one_role(moved: tuple[Pair, ...], *, is_first: bool) -> bool:
    """Whether all have the same preposition in both texts: a table in the kitchen, a chair in the hall."""
    roles = {role for pair in moved for role in (pair.one.role, pair.other.role)}
    return len(roles) == 1 and (not is_first or roles == {"of"})


def _are_even(first: Pair, second: Pair) -> bool:
    """Whether two neighbours are things of one sort, so that it matters which comes first."""
    items = (first.one, first.other, second.one, second.other)
    return (
        all(item.is_name for item in items)
        or all(item.is_apart for item in items)
        or all(item.kind in ("number", "unit") for item in items)
    )


def _are_nouns(first: Pair, second: Pair) -> bool:
    """Whether two English neighbours may be a compound, another thing in the other order: cat food, food cat."""
    if second.one.is_apart != first.other.is_apart:  # change my password, password change
        return False
    return all(
        pair.one.kind in _THINGS
        and pair.one.surface == pair.other.surface
        and pair.one.surface.isascii()
        and not pair.one.is_name
        and not (len(pair.one.surface) > 4 and pair.one.surface.endswith(("ly", "ed", "ing")))
        for pair in (first, second)
    )


_THINGS: Final[frozenset[Kind]] = frozenset(("content", "light"))
