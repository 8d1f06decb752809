"""May the answer to one question be given to another? A second opinion on what an embedding holds to be the same.

No distance of vectors separates a changed number, a negation or two swapped names from a rewording: they are nearer to
the original than most rewordings are. This reads the words instead, in English and Russian; of other languages it knows
numbers, code, quotations and names. It refuses when in doubt, because a wrong answer is worse than a call of the model.

The parts: `guard_english` and `guard_russian` (word lists), `guard_lexicon` (what is known of a word), `guard_reading`
(a piece of text -> its words), `guard_tokens` (phrases and quantities), `guard_features` (what is compared of a text),
`guard_kinship` (two different words), `guard_frames` (my and your, must and may), `guard_whether` (yes or no),
`guard_pairs` (words both have), `guard_endings`, `guard_lists` and `guard_order` (who does it to whom).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec

from rtmem.operations.guard_features import Features, Item, features
from rtmem.operations.guard_frames import opposed
from rtmem.operations.guard_kinship import relation
from rtmem.operations.guard_lexicon import KINDS, Kind, lexicon
from rtmem.operations.guard_order import exchanged
from rtmem.operations.guard_tokens import plain
from rtmem.operations.guard_whether import asks_whether
from rtmem.operations.text_query import stemmed

TEXT_CHARACTERS_MAX: Final = 2_000
"""Longer texts pass only if they are the same but for case and spaces: nobody rewords a page by chance."""

_UNMATCHED_MAX: Final = 40
_SAID_CHARACTERS_MAX: Final = 80


class Refusal(msgspec.Struct, frozen=True):
    """Why an answer may not be given: the reason, and what differs, for people.

    Reasons: quoted, code, number, unit, date, negation, question (who, when, where ...), antonym, name, content
    (another word), order (roles exchanged), length (too long to be read).
    """

    reason: str
    asked: str
    cached: str


def compare(asked: str, cached: str) -> Refusal | None:
    """None if the texts may ask the same; else the first difference that forbids it. Symmetric in its decision.

    What is read of a text is remembered. The first call reads the word lists: see `prepare`.
    """
    if asked == cached:
        return None
    if len(asked) > TEXT_CHARACTERS_MAX or len(cached) > TEXT_CHARACTERS_MAX:
        return None if _folded(asked) == _folded(cached) else Refusal("length", _begin(asked), _begin(cached))
    if cached < asked:  # read in one order, so that the decision cannot depend on it
        refusal = _difference(features(cached), features(asked))
        return Refusal(refusal.reason, asked=refusal.cached, cached=refusal.asked) if refusal else None
    return _difference(features(asked), features(cached))


def _difference(a: Features, b: Features) -> Refusal | None:
    lost, gained = _unmatched(a, b), _unmatched(b, a)
    refusal = _quoted(a, b) or _judged_alone(lost, gained) or _numbers(a, b) or _question(a, b)
    if refusal:
        return refusal
    kin: set[tuple[Item, Item]] = set()
    refusal = _content(a, b, lost, gained, kin)
    if refusal:
        return refusal
    said = exchanged(a, b, frozenset(kin))
    if said:
        return Refusal("order", *said)
    if a.frames == b.frames:
        return None
    is_in_place = all(item.kind == "filler" for item in (*lost, *gained))
    said = opposed(a.frames, b.frames, {a.question, b.question}, is_in_place=is_in_place)
    return Refusal("antonym", *said) if said else None


def prepare() -> None:
    """Read the word lists now, 50 ms, and not while the first question waits."""
    lexicon()


def _unmatched(one: Features, other: Features) -> list[Item]:
    return [item for item in one.items if item.senses.isdisjoint(other.senses) and item.kind != "pronoun"]


def _quoted(a: Features, b: Features) -> Refusal | None:
    if not a.quoted and not b.quoted:
        return None
    folded = [side.text.casefold() for side in (a, b)]
    lost = [text for text in a.quoted if text.casefold() not in folded[1]]
    gained = [text for text in b.quoted if text.casefold() not in folded[0]]
    if lost and gained:  # a title may be declined
        lost, gained = _stemmed_apart(lost, gained), _stemmed_apart(gained, lost)
    return Refusal("quoted", ", ".join(lost), ", ".join(gained)) if lost or gained else None


def _stemmed_apart(some: list[str], others: list[str]) -> list[str]:
    known = {stemmed(text) for text in others} - {""}  # "!" and "?" have no stems, and are two
    return [text for text in some if stemmed(text) not in known]


# Kinds of which no item may be missing on either side, in the order in which they are told.
_ALONE: Final[tuple[tuple[Kind, str], ...]] = (
    ("code", "code"),
    ("unit", "unit"),
    ("date", "date"),
    ("exception", "negation"),
)


def _judged_alone(lost: list[Item], gained: list[Item]) -> Refusal | None:
    if not lost and not gained:
        return None
    kinds = {item.kind for item in (*lost, *gained)}
    for kind, reason in _ALONE:
        if kind in kinds:
            sides = [[item for item in side if item.kind == kind] for side in (lost, gained)]
            return Refusal(reason, _said(sides[0]), _said(sides[1]))
    return None


def _numbers(a: Features, b: Features) -> Refusal | None:
    """Other numbers, or one of them more often; "one" is as often a pronoun, and may be missing."""
    if a.numbers == b.numbers:
        return None
    sides = [_numbers_apart(a, b), _numbers_apart(b, a)]
    if all(item.word.is_weak for side in sides for item in side):
        return None
    return Refusal("number", _said(sides[0]), _said(sides[1]))


def _numbers_apart(one: Features, other: Features) -> list[Item]:
    apart = {number for number in set(one.numbers) if one.numbers.count(number) != other.numbers.count(number)}
    return [item for item in one.items if item.kind == "number" and item.stem in apart]


_NO_SENSES: Final[frozenset[str]] = frozenset()
_GENERAL: Final = frozenset(("what", "how"))
# They take for granted that it is so. "Can I" is commonly answered by "how".
_PRESUMING: Final = frozenset(("why", "when", "where", "whither", "whence"))


def _question(a: Features, b: Features) -> Refusal | None:
    """Another question word, unless a "what" asks for the same: what date, when; or whether it is so, and why."""
    if a.question == b.question or {a.question, b.question} <= _GENERAL:
        return None
    if not a.question or not b.question:
        whether, other = (b, a) if a.question else (a, b)
        if other.question in _PRESUMING and asks_whether(whether.text):
            answers = lexicon().asked.get(other.question, _NO_SENSES)
            return _apart_in_question(a, b) if answers.isdisjoint(whether.senses) else None  # is there a place to park
        return None
    asked = lexicon().asked
    for side, other in ((a, b), (b, a)):
        if side.question == "what" and not asked.get(other.question, _NO_SENSES).isdisjoint(side.senses):
            return None
    return _apart_in_question(a, b)


def _apart_in_question(a: Features, b: Features) -> Refusal:
    return Refusal("question", a.question or "whether", b.question or "whether")


def _content(
    a: Features, b: Features, lost: list[Item], gained: list[Item], kin: set[tuple[Item, Item]]
) -> Refusal | None:
    """Words that one text has and the other has not, nor a synonym, nor another form of it; those go into `kin`.

    Whether the texts deny the same is settled here too: "impossible" is "not possible".
    """
    left, right = _told(lost), _told(gained)
    if len(lost) > _UNMATCHED_MAX or len(gained) > _UNMATCHED_MAX:  # every word is compared with every other below
        return Refusal("content", _begin(_said(left)), _begin(_said(right)))
    denied = 0
    if any(" " in item.surface for item in (*left, *right)):
        lost, gained = _apart(lost, gained)
        gained, lost = _apart(gained, lost)
        left, right = _told(lost), _told(gained)
    for one in lost:
        for other in gained:
            related = relation(one.word, other.word)
            if related == "opposed":
                return Refusal("antonym", one.surface, other.surface)
            if related:
                denied += related == "denied"
                kin.add((one, other))
                _strike(left, one)
                _strike(right, other)
    if (a.negations + b.negations + denied) % 2:
        return Refusal("negation", _polarity(a), _polarity(b))
    if not left and not right:
        return None
    _strike_abbreviated(left, b, right)
    _strike_abbreviated(right, a, left)
    _strike_compounds(left, right)
    _strike_compounds(right, left)
    is_reworded = bool(left and right) and _is_reworded(a, b)
    if not left or not right or is_reworded:  # then a light word stands in for no other
        left, right = _heavy(left), _heavy(right)
    if not left and not right:
        return None
    if any(item.is_name for item in (*left, *right)):
        return Refusal("name", _said(left), _said(right))
    if is_reworded and left and right and len(left) + len(right) >= _REWORDED_MIN and _share_content(a, b):
        return None
    return Refusal("content", _said(left), _said(right))


_REWORDED_MIN: Final = 3
"""Where so many words differ, and not in one place, the distance of the embeddings decides: one word put in another's
place changes the question, a new sentence need not."""


_TOLD: Final[frozenset[Kind]] = frozenset(("content", "light"))


def _told(items: list[Item]) -> list[Item]:
    """Those that no other rule has judged."""
    return [item for item in items if item.kind in _TOLD]


def _heavy(items: list[Item]) -> list[Item]:
    return [item for item in items if item.kind == "content"]


def _is_reworded(a: Features, b: Features) -> bool:
    """Whether the texts differ in several places, or ask in another way: not one word was put in another's place."""
    if a.question != b.question:
        return True
    one, other = ([item for item in side.items if item.kind in _FRAMED] for side in (a, b))
    begin = 0
    while begin < min(len(one), len(other)) and _is_shared(one[begin], other[begin]):
        begin += 1
    one, other = one[begin:], other[begin:]
    while one and other and _is_shared(one[-1], other[-1]):
        one.pop()
        other.pop()
    return _share(one, b) or _share(other, a)


def _share(items: list[Item], other: Features) -> bool:
    return any(not item.senses.isdisjoint(other.senses) for item in items)


def _share_content(a: Features, b: Features) -> bool:
    return _share([item for item in a.items if item.kind == "content"], b)


_FRAMED: Final = KINDS - {"filler", "pronoun"}


def _is_shared(one: Item, other: Item) -> bool:
    return not one.senses.isdisjoint(other.senses)


def _strike(items: list[Item], item: Item) -> None:
    if item in items:
        items.remove(item)


def _strike_abbreviated(left: list[Item], other: Features, right: list[Item]) -> None:
    """Strike an abbreviation, and the words of the other text that it stands for."""
    short = [item for item in left if 2 <= len(item.surface) <= _ABBREVIATION_MAX]
    if not short:
        return
    words = [word for word in other.items if word.kind in _SPELLED]
    letters = "".join([word.surface[0] for word in words])
    for item in short:
        at = letters.find(item.surface)
        if at >= 0:
            left.remove(item)
            for word in words[at : at + len(item.surface)]:
                _strike(right, word)


_ABBREVIATION_MAX: Final = 6
_SPELLED: Final[frozenset[Kind]] = frozenset(("content", "light", "filler"))


def _apart(some: list[Item], others: list[Item]) -> tuple[list[Item], list[Item]]:
    """Both without the phrases of one whose words stand apart in the other: change password, change my password."""
    for item in [item for item in some if " " in item.surface and item.kind == "content"]:
        known = [word for word in map(lexicon().word, item.surface.split()) if word.kind in _SPELLED]
        words = [other for other in others if any(other.stem == word.stem for word in known)]
        if len(known) > 1 and [other.stem for other in words] == [word.stem for word in known]:
            some = [other for other in some if other is not item]
            others = [other for other in others if other not in words]
    return some, others


def _strike_compounds(left: list[Item], right: list[Item]) -> None:
    """Strike a word that the other text writes as two."""
    if len(right) < 2:
        return
    for item in list(left):
        for one, two in pairwise(right):
            if item.surface == one.surface + two.surface:
                left.remove(item)
                right.remove(one)
                right.remove(two)
                break


def _polarity(side: Features) -> str:
    return "denied" if side.negations % 2 else "not denied"


def _said(items: Iterable[Item]) -> str:
    return ", ".join(item.surface for item in items)


def _folded(text: str) -> str:
    return " ".join(plain(text).casefold().split())


def _begin(text: str) -> str:
    return text[:_SAID_CHARACTERS_MAX]
