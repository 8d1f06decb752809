"""What the lexical guard knows of one word: its class, its stem, the groups of synonyms it is in, what opposes it.

The lists are read once in a process, which takes 50 ms: when the first text is compared, or before (`prepare`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import ModuleType
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from rtmem.operations import guard_english, guard_russian
from rtmem.operations.text_query import stem

# Words and not an Enum: these are read dozens of times for a text, and a member of an Enum takes 0.1 us in Python 3.11.
Kind = Literal[
    "function",  # says nothing here
    "filler",  # may be there or not
    "light",  # may be there or not, but not in another's place
    "pronoun",  # I, you: only its place among the others counts
    "content",
    "join",  # and, or, versus: what stands on its sides may change places
    "marker",  # gives the next word a role
    "question",
    "number",
    "unit",
    "date",
    "negator",
    "exception",
    "code",
]
KINDS: Final[frozenset[Kind]] = frozenset(get_args(Kind))

_WORDS_MAX: Final = 32_768

AUXILIARY: Final = "auxiliary"
ARTICLE: Final = "article"
EMPHATIC: Final = "emphatic"
"""Russian says "никогда не": such a word denies only where no other does."""


class Word(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A word or phrase as it is compared. Two mean the same if they share a sense.

    It and what is made of it are structs, made in an eighth of the time that a frozen dataclass takes, and without gc:
    thousands are kept, none refers back, and the collector need not walk them.
    """

    kind: Kind
    surface: str
    stem: str
    senses: frozenset[str]
    name: str = ""  # the role of a marker, the class of a question, the dimension of a unit; or one of the next three
    value: float = 0.0  # of a number; the factor of a unit
    is_weak: bool = False  # a number that is as often a pronoun: "one"
    opposites: frozenset[str] = frozenset()  # senses of what says the contrary


Tails: TypeAlias = list[tuple[tuple[str, ...], Word]]
"""How phrases that begin alike go on, by their stems, the longest first; and the phrases."""


@dataclass(slots=True)
class Lexicon:
    words: dict[str, Word] = field(default_factory=dict)  # by lower-case surface: closed classes
    groups: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # stem -> groups of synonyms
    fillers: set[str] = field(default_factory=set)  # stems
    measures: dict[str, Word] = field(default_factory=dict)  # Russian units and dates by stem: they have many forms
    light: set[str] = field(default_factory=set)  # stems
    asked: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # class of a question -> senses
    not_misspelt: set[str] = field(default_factory=set)  # surfaces
    phrases: dict[str, dict[str, Tails]] = field(default_factory=dict)  # the first stem -> the second -> the rest
    opposites: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # sense -> senses

    def knows(self, surface: str, root: str) -> bool:
        """Whether a word, whose stem is `root`, is in any list."""
        return (
            surface in self.words
            or root in self.groups
            or root in self.opposites
            or root in self.fillers
            or root in self.light
            or root in self.measures
        )

    def word(self, surface: str) -> Word:
        """What is known of `surface`, which is in lower case and without ё."""
        known = self.words.get(surface)
        if known is not None:
            return known
        root = stem(surface)
        if root in self.measures:
            return self.measures[root]
        kind: Kind = "filler" if root in self.fillers else "light" if root in self.light else "content"
        groups = self.groups.get(root)
        if groups is None and root not in self.opposites and not surface.endswith(_DEGREES):
            return Word(kind, surface, root, frozenset((root,)))  # most words
        senses = {root, *(groups or ())}
        opposed = self._opposed(senses)
        for base, degree in _compared(surface):
            self._degree(base, degree, senses, opposed)
        return Word(kind, surface, root, frozenset(senses), opposites=frozenset(opposed))

    def _opposed(self, senses: Iterable[str]) -> set[str]:
        return set().union(*[self.opposites[sense] for sense in senses if sense in self.opposites])

    def _degree(self, base: str, degree: str, senses: set[str], opposed: set[str]) -> None:
        """Add what a word says that is "er" or "est" (the degree) of the adjective whose stem is `base`."""
        groups = self.groups.get(base, ())
        senses |= {f"{group}{degree}" for group in groups}
        senses.add(f"{base} {degree}")
        for other in self._opposed((base, *groups)):
            opposed |= {other, f"{other}{degree}" if " " in other else other, f"{other} {degree}"}


@lru_cache(maxsize=_WORDS_MAX)
def word_of(surface: str) -> Word:
    """`Lexicon.word`, remembered: one word for all pieces that have it, with a comma or a capital."""
    return lexicon().word(surface)


_DEGREES: Final = ("est", "er")


def _compared(surface: str) -> Iterator[tuple[str, str]]:
    """The stem of the adjective that an English comparative or superlative is made of, and "er" or "est"."""
    for degree in _DEGREES:
        if surface.endswith(degree) and len(surface) > len(degree) + 2 and surface.isascii():
            base = surface.removesuffix(degree)
            bases = {base, base + "e"}
            if base[-1] == "i":
                bases.add(base[:-1] + "y")
            if base[-1] == base[-2]:
                bases.add(base[:-1])
            for root in {stem(base) for base in bases}:
                yield root, degree


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ARTICLES: Final = words_of("a an the my your our its this that these those")
_AUXILIARIES: Final = words_of(
    "is are was were be been being am do does did have has had can could may might would should shall will must"
)
_EMPHATIC: Final = words_of(
    """
    never none nobody nothing neither nor hardly barely ни никогда никто ничего ничто никак никого нигде никакой никакие
    """
)
_JOINS: Final = {
    **dict.fromkeys(("and", "&", "и"), "and"),
    **dict.fromkeys(("or", "или", "либо"), "or"),
    **dict.fromkeys(("vs", "versus", "vs."), "versus"),
}
_RUSSIAN_ENDINGS: Final = words_of("ый ой ий ая яя ое ее ые ие ого его ому ему ым им ом ем ую юю ых их ыми ими ей")


@cache
def lexicon() -> Lexicon:
    found = Lexicon()
    for language in (guard_english, guard_russian):
        _closed_classes(found, language)
    for language in (guard_english, guard_russian):
        _open_classes(found, language)
    for followed in found.phrases.values():
        for phrases in followed.values():
            phrases[:] = [(tail, _with_opposites(found, word)) for tail, word in phrases]
            phrases.sort(key=lambda phrase: -len(phrase[0]))
    return found


def _with_opposites(found: Lexicon, word: Word) -> Word:
    opposites = [found.opposites[sense] for sense in word.senses if sense in found.opposites]
    return msgspec.structs.replace(word, opposites=frozenset().union(*opposites)) if opposites else word


def _closed_classes(found: Lexicon, language: ModuleType) -> None:
    lists = vars(language)
    for surface in lists["FUNCTION"].split():
        name = AUXILIARY if surface in _AUXILIARIES else ARTICLE if surface in _ARTICLES else ""
        found.words[surface] = _word("function", surface, name=name)
    for line in _lines(lists["PRONOUNS"]):
        name, *surfaces = line.split()
        for surface in (name, *surfaces):
            found.words[surface] = _word("pronoun", surface, senses=[f"pronoun {name}"])
    for surface, name in _JOINS.items():
        found.words[surface] = _word("join", surface, name=name)
    for surface in lists["NEGATORS"].split():
        found.words[surface] = _word("negator", surface, name=EMPHATIC if surface in _EMPHATIC else "")
    for line in _lines(lists["NUMBERS"]):
        value, *surfaces = line.split()
        for surface in surfaces:
            found.words[surface] = _number(surface, float(value), is_weak=surface in _WEAK)
    for line in _lines(lists["ORDINALS"]):
        value, *surfaces = line.split()
        for surface in _ordinals(surfaces):
            found.words[surface] = _number(surface, float(value))
    for line in _lines(lists["UNITS"]):
        head, _, surfaces_of = line.partition(":")
        dimension, factor = head.split()
        for surface in surfaces_of.split():
            unit = _word("unit", surface, name=dimension, value=float(factor), senses=[f"unit {dimension} {factor}"])
            found.words[surface] = unit
            _measure(found, unit)
    for line in _lines(lists["UNIT_PHRASES"]):
        head, _, names_of = line.partition(":")
        dimension, factor = head.split()
        for name in names_of.split(","):
            senses = [f"unit {dimension} {factor}"]
            _add(found, name.strip(), _word("unit", name.strip(), name=dimension, value=float(factor), senses=senses))
    for line in _lines(lists["DATES"]):
        name, *surfaces = line.split()
        for surface in (name, *surfaces):
            found.words[surface] = _word("date", surface, senses=[f"date {name.lower()}"])
            _measure(found, found.words[surface])


def _measure(found: Lexicon, word: Word) -> None:
    if len(word.stem) >= 4 and not word.stem.isascii():
        found.measures.setdefault(word.stem, word)


_WEAK: Final = words_of("one один одна одно одного одной одному одним одном одну раз")
_THIRD: Final = words_of("третий третья третье третьи третьего третьей третьем третью третьих")


def _ordinals(surfaces: Iterable[str]) -> Iterator[str]:
    for surface in surfaces:
        if surface.isascii():
            yield surface
        else:
            yield from (surface + ending for ending in _RUSSIAN_ENDINGS)
            if surface == "трет":
                yield from _THIRD


def _open_classes(found: Lexicon, language: ModuleType) -> None:
    lists = vars(language)
    found.fillers |= {stem(surface) for surface in lists["FILLERS"].split()}
    found.not_misspelt |= words_of(lists["NOT_MISSPELT"])
    found.light |= {stem(surface) for surface in lists["LIGHT"].split()}
    for line in _lines(lists["DEMONYMS"]):
        for name in line.split():
            found.groups[stem(name)].add(f"people {line.split()[0]}")
    for number, line in enumerate(_lines(lists["SYNONYMS"])):
        _group(found, line, f"{language.__name__} {number}")
    for line in _lines(lists["ANTONYMS"]):
        left, right = (_senses(found, side) for side in line.split(" / "))
        for sense in left:
            found.opposites[sense] |= right
        for sense in right:
            found.opposites[sense] |= left
    for line in _lines(lists["ASKED"]):
        question, _, names_of = line.partition(":")
        found.asked[question] |= _senses(found, names_of)
    for line in _lines(lists["MARKERS"]):
        names = [name.strip() for name in line.split(",")]
        for name in names:
            _add(found, name, _word("marker", name, name=names[0]))
    for line in _lines(lists["EXCEPTIONS"]):
        names = [name.strip() for name in line.split(",")]
        for name in names:
            _add(found, name, _word("exception", name, senses=[f"except {names[0]}"]))
    for line in _lines(lists["QUESTIONS"]):
        head, _, names_of = line.partition(":")
        for name in names_of.split(","):
            _add(found, name.strip(), _word("question", name.strip(), name=head))
    for line in _lines(lists["POLITE"]):
        for name in line.split(","):
            _add(found, name.strip(), _word("function", name.strip()))


def _group(found: Lexicon, line: str, group: str) -> None:
    for name in (name.strip() for name in line.split(",")):
        if " " in name:
            # "How much is" asks for a price without naming it.
            kind: Kind = "light" if name.startswith(("how much ", "сколько сто")) else "content"
            _add(found, name, _word(kind, name, senses=[group]))
        else:
            found.groups[stem(name)].add(group)


def _senses(found: Lexicon, side: str) -> set[str]:
    """The senses that a side of a line of antonyms stands for."""
    senses: set[str] = set()
    for name in (name.strip() for name in side.split(",")):
        if " " in name:
            senses |= _phrase(found, name).senses
        else:
            senses |= {stem(name), *found.groups.get(stem(name), ())}
    return senses


def _phrase(found: Lexicon, name: str) -> Word:
    """The phrase `name`, which is known from now on."""
    first, second, *rest = (_root(found, part) for part in name.split())
    for tail, word in found.phrases.get(first, {}).get(second, ()):
        if tail == tuple(rest):
            return word
    word = _word("content", name, senses=[f"phrase {name}"])
    _add(found, name, word)
    return word


def _add(found: Lexicon, name: str, word: Word) -> None:
    parts = name.split()
    if len(parts) == 1:
        found.words[name] = word
        return
    first, second, *rest = (_root(found, part) for part in parts)
    phrases = found.phrases.setdefault(first, {}).setdefault(second, [])
    for known in [phrase for phrase in phrases if phrase[0] == tuple(rest)]:
        if known[1].kind != word.kind or word.kind != "content":
            return  # the first class that a phrase is given stands
        phrases.remove(known)
        word = _word("content", name, senses=known[1].senses | word.senses)
    phrases.append((tuple(rest), word))


def _root(found: Lexicon, surface: str) -> str:
    known = found.words.get(surface)
    return known.stem if known is not None and known.kind == "number" else stem(surface)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def _word(kind: Kind, surface: str, *, name: str = "", value: float = 0.0, senses: Iterable[str] = ()) -> Word:
    return Word(kind, surface, stem(surface) if " " not in surface else surface, frozenset(senses), name, value)


def _number(surface: str, value: float, *, is_weak: bool = False) -> Word:
    return Word("number", surface, f"{value:g}", frozenset((f"number {value:g}",)), "", value, is_weak)
