"""May the answer to one question be given to another? A second opinion on what an embedding holds to be the same.

No distance of vectors separates a changed number, a negation or two swapped names from a rewording: they are nearer to
the original than most rewordings are. This reads the words instead, in English and Russian; of other languages it knows
numbers, code, quotations and names. It refuses when in doubt, because a wrong answer is worse than a call of the model.

The parts: `guard_english` and `guard_russian` (word lists), `guard_lexicon` (what is known of a word), `guard_reading`
(a piece of text -> its words), `guard_tokens` (phrases and quantities), `guard_features` (what is compared of a text),
`guard_kinship` (two different words), `guard_frames` (my and your, must and may), `guard_pairs` (words both have),
`guard_endings` and `guard_order` (who does it to whom).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rtmem.operations.guard_features import Features, Item, features
from rtmem.operations.guard_frames import opposed
from rtmem.operations.guard_kinship import kinship
from rtmem.operations.guard_lexicon import Kind, Word, lexicon
from rtmem.operations.guard_order import exchanged
from rtmem.operations.guard_tokens import plain
from rtmem.operations.text_query import stemmed

TEXT_CHARACTERS_MAX: Final = 2_000
"""Longer texts pass only if they are the same but for case and spaces: nobody rewords a page by chance."""

_UNMATCHED_MAX: Final = 40
_SAID_CHARACTERS_MAX: Final = 80


@dataclass(frozen=True, slots=True)
class Refusal:
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
    said = opposed(a.frames, b.frames, is_polar=not a.question and not b.question)
    return Refusal("antonym", *said) if said else None


def prepare() -> None:
    """Read the word lists now, a quarter of a second, and not while the first question waits."""
    lexicon()


def _unmatched(one: Features, other: Features) -> list[Item]:
    return [item for item in one.items if item.word.senses.isdisjoint(other.senses) and item.kind is not Kind.PRONOUN]


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
    known = [stemmed(text) for text in others]
    return [text for text in some if not stemmed(text) or stemmed(text) not in known]


# Kinds of which no item may be missing on either side, in the order in which they are told.
_ALONE: Final = ((Kind.CODE, "code"), (Kind.UNIT, "unit"), (Kind.DATE, "date"), (Kind.EXCEPTION, "negation"))


def _judged_alone(lost: list[Item], gained: list[Item]) -> Refusal | None:
    kinds = {item.kind for item in (*lost, *gained)}
    for kind, reason in _ALONE:
        if kind in kinds:
            sides = [[item for item in side if item.kind is kind] for side in (lost, gained)]
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
    numbers = [item for item in one.items if item.kind is Kind.NUMBER]
    return [item for item in numbers if one.numbers.count(item.word.stem) != other.numbers.count(item.word.stem)]


_NO_SENSES: Final[frozenset[str]] = frozenset()
_GENERAL: Final = frozenset(("what", "how"))


def _question(a: Features, b: Features) -> Refusal | None:
    """Another question word, unless a "what" asks for the same: what date, when."""
    if a.question == b.question or not a.question or not b.question or {a.question, b.question} <= _GENERAL:
        return None
    asked = lexicon().asked
    for side, other in ((a, b), (b, a)):
        if side.question == "what" and not asked.get(other.question, _NO_SENSES).isdisjoint(side.senses):
            return None
    return Refusal("question", a.question, b.question)


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
            word, word2 = one.word, other.word
            related = kinship(word.surface, word.stem, word2.surface, word2.stem)
            if related == "opposed" or (related != "denied" and _are_opposed(word, word2)):
                return Refusal("antonym", word.surface, word2.surface)
            if related:
                denied += related == "denied"
                kin.add((one, other))
                _strike(left, one)
                _strike(right, other)
    if (a.negations + b.negations + denied) % 2:
        return Refusal("negation", _polarity(a), _polarity(b))
    _strike_abbreviated(left, b, right)
    _strike_abbreviated(right, a, left)
    _strike_compounds(left, right)
    _strike_compounds(right, left)
    is_reworded = _is_reworded(a, b)
    if not left or not right or is_reworded:  # then a light word stands in for no other
        left, right = _heavy(left), _heavy(right)
    if any(item.is_name for item in (*left, *right)):
        return Refusal("name", _said(left), _said(right))
    if not left and not right:
        return None
    if is_reworded and left and right and len(left) + len(right) >= _REWORDED_MIN and _share_content(a, b):
        return None
    return Refusal("content", _said(left), _said(right))


_REWORDED_MIN: Final = 3
"""Where so many words differ, and not in one place, the distance of the embeddings decides: one word put in another's
place changes the question, a new sentence need not."""


def _are_opposed(one: Word, other: Word) -> bool:
    return not one.opposites.isdisjoint(other.senses) or not other.opposites.isdisjoint(one.senses)


_TOLD: Final = frozenset((Kind.CONTENT, Kind.LIGHT))


def _told(items: list[Item]) -> list[Item]:
    """Those that no other rule has judged."""
    return [item for item in items if item.kind in _TOLD]


def _heavy(items: list[Item]) -> list[Item]:
    return [item for item in items if item.kind is Kind.CONTENT]


def _is_reworded(a: Features, b: Features) -> bool:
    """Whether the texts differ in several places, or ask in another way: not one word was put in another's place."""
    if a.question != b.question:
        return True
    one, other = ([item for item in side.items if item.kind in _FRAMED] for side in (a, b))
    begin = 0
    while begin < min(len(one), len(other)) and _is_shared(one[begin], other[begin]):
        begin += 1
    end = 0
    while end < min(len(one), len(other)) - begin and _is_shared(one[-1 - end], other[-1 - end]):
        end += 1
    return any(
        not item.word.senses.isdisjoint(side.senses)
        for items, side in ((one, b), (other, a))
        for item in items[begin : len(items) - end]
    )


def _share_content(a: Features, b: Features) -> bool:
    return any(item.kind is Kind.CONTENT and not item.word.senses.isdisjoint(b.senses) for item in a.items)


_FRAMED: Final = frozenset(Kind) - {Kind.FILLER, Kind.PRONOUN}


def _is_shared(one: Item, other: Item) -> bool:
    return not one.word.senses.isdisjoint(other.word.senses)


def _strike(items: list[Item], item: Item) -> None:
    if item in items:
        items.remove(item)


def _strike_abbreviated(left: list[Item], other: Features, right: list[Item]) -> None:
    """Strike an abbreviation, and the words of the other text that it stands for."""
    for item in list(left):
        letters = item.surface
        if not 2 <= len(letters) <= 6:
            continue
        words = [word for word in other.items if word.kind in _SPELLED]
        at = "".join([word.surface[0] for word in words]).find(letters)
        if at >= 0:
            left.remove(item)
            for word in words[at : at + len(letters)]:
                _strike(right, word)


_SPELLED: Final = frozenset((Kind.CONTENT, Kind.LIGHT, Kind.FILLER))


def _apart(some: list[Item], others: list[Item]) -> tuple[list[Item], list[Item]]:
    """Both without the phrases of one whose words stand apart in the other: change password, change my password."""
    for item in [item for item in some if " " in item.surface and item.kind is Kind.CONTENT]:
        known = [word for word in map(lexicon().word, item.surface.split()) if word.kind in _SPELLED]
        words = [other for other in others if any(other.word.stem == word.stem for word in known)]
        if len(known) > 1 and [other.word.stem for other in words] == [word.stem for word in known]:
            some = [other for other in some if other is not item]
            others = [other for other in others if other not in words]
    return some, others


def _strike_compounds(left: list[Item], right: list[Item]) -> None:
    """Strike a word that the other text writes as two."""
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
