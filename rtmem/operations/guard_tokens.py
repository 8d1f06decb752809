"""A text -> its words in order, phrases and quantities put together: what `guard_features` reads the roles from."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from msgspec.structs import replace

from rtmem.operations.guard_lexicon import AUXILIARY, Kind, Lexicon, Tails, Word, lexicon
from rtmem.operations.guard_reading import NUMBER, PARTICLE, PARTICLES, Piece, Token, piece

_TRANSLATED: Final = str.maketrans(
    {
        **dict.fromkeys("‘’ʼ´＇", "'"),
        **dict.fromkeys("‐‑‒–—−", "-"),
        **dict.fromkeys("\u00a0\u2009\u202f", " "),
        **dict.fromkeys("\u200b\u200c\u200d\u200e\u200f\ufeff\u00ad\x00"),
    }
)
# 1 000 000. The space stands first because the search is for it then, and not for what is before it at every place.
_GROUPED_BY_SPACE: Final = re.compile(r" (?<=\d )(?=\d{3}(?:\D|$))")

_PARTICLE_DISTANCE_MAX: Final = 6
_GOVERNED: Final[frozenset[Kind]] = frozenset(
    ("content", "light", "filler", "number", "unit", "date", "code", "pronoun", "question")
)
_TEMPERATURES: Final = frozenset(("celsius", "fahrenheit", "kelvin"))
_TRANSLATABLE: Final = re.compile(f"[{''.join(map(chr, _TRANSLATED))}]")


def plain(text: str) -> str:
    """The text with one kind of apostrophe, dash and space, and nothing invisible."""
    if text.isascii() and "\x00" not in text:
        return text
    if _TRANSLATABLE.search(text):
        text = text.translate(_TRANSLATED)
    if text.isascii() or unicodedata.is_normalized("NFKC", text):
        return text
    return unicodedata.normalize("NFKC", text).translate(_TRANSLATED)


def pieces_of(text: str) -> list[Piece]:
    """What stands between the spaces of a `plain` text."""
    return [piece(raw) for raw in _GROUPED_BY_SPACE.sub("", text).split()]


def tokens(pieces: list[Piece], traits: frozenset[str]) -> list[Token]:
    """The words of a text in pieces. traits: of all of them."""
    known = lexicon()
    found = _words(pieces, known)
    if PARTICLE in traits:
        _gather(found, known)
    found = _phrases(found, known)
    return _quantities(found) if NUMBER in traits else found


def _words(pieces: list[Piece], known: Lexicon) -> list[Token]:
    result: list[Token] = []
    begins = True
    is_loud: bool | None = None
    for found in pieces:
        if not found.tokens:
            if result and found.pauses:
                result[-1] = replace(result[-1], pauses=True)
            begins = begins or found.ends_sentence
        elif begins:
            result += found.tokens
            if result[-1].word.surface == "May":  # "May I ..."
                result[-1] = replace(result[-1], word=known.words["may"])
            begins = found.ends_sentence
        else:
            if found.is_capital and is_loud is None:  # not asked before, for few texts have such a piece
                is_loud = _is_loud(pieces)
            result += found.tokens if is_loud else found.names
            begins = found.ends_sentence
    return result


def _is_loud(pieces: list[Piece]) -> bool:
    """Whether the text is a title or a shout, where capitals name nothing."""
    capitals = len([found for found in pieces if found.is_capital])
    count = len([found for found in pieces if found.tokens])
    if capitals < 2:
        return capitals == count == 1
    return (count > 2 and capitals > 0.7 * count) or len([found for found in pieces if found.is_upper]) == count


def _gather(found: list[Token], known: Lexicon) -> None:
    """Put the particles of phrasal verbs next to them: turn the light off -> turn off the light."""
    for at, token in enumerate(found):
        particle = token.word
        if particle.surface not in PARTICLES or _governs(found, at):
            continue
        for verb in range(at - 1, max(at - 1 - _PARTICLE_DISTANCE_MAX, -1), -1):
            followed = known.phrases.get(found[verb].word.stem)
            if followed and any(not tail for tail, _ in followed.get(particle.stem, ())):
                found.insert(verb + 1, found.pop(at))
                break
        else:
            if particle.kind == "marker":  # volume up
                senses = frozenset((f"particle {particle.stem}",))
                found[at] = replace(token, word=Word("content", particle.surface, particle.stem, senses))


def _governs(found: list[Token], at: int) -> bool:
    """Whether the preposition at `at` has something to govern after it."""
    if found[at].pauses or at + 1 == len(found):
        return False
    after = found[at + 1].word
    return after.kind in _GOVERNED or (after.kind == "function" and after.name != AUXILIARY)


def _phrases(found: list[Token], known: Lexicon) -> list[Token]:
    """Each phrase that the lexicon knows as one token, the longest first."""
    result = []
    at, end = 0, len(found)
    while at < end:
        token = found[at]
        at += 1
        followed = known.phrases.get(token.word.stem)
        if followed is not None and at < end and (tails := followed.get(found[at].word.stem)):
            token, at = _phrase(found, at - 1, tails)
        result.append(token)
    return result


def _phrase(found: list[Token], at: int, tails: Tails) -> tuple[Token, int]:
    """The token at `at`, or the phrase that begins with it and the next, and where the rest begins."""
    token = found[at]
    third = found[at + 2].word.stem if at + 2 < len(found) else ""
    for tail, phrase in tails:
        end = at + 2 + len(tail)
        if not tail or (tail[0] == third and tail == tuple([other.word.stem for other in found[at + 2 : end]])):
            last = found[end - 1]
            question = ""
            if token.word.kind == "question":
                question = "many" if phrase.kind == "light" else "what"
            return Token(phrase, token.is_name, last.pauses, last.is_possessive, question), end
    return token, at + 1


def _quantities(found: list[Token]) -> list[Token]:
    """Each number with all its words and its unit as one token: two hundred and five kilograms."""
    result = []
    at = 0
    while at < len(found):
        if found[at].word.kind != "number":
            result.append(found[at])
            at += 1
            continue
        start = at
        value, at = _value(found, at)
        surface = " ".join(token.word.surface for token in found[start:at])
        is_weak = at == start + 1 and found[start].word.is_weak
        key = f"number {value:.9g}"
        if value < 1 and at + 1 < len(found) and found[at].word.surface in ("a", "an", "of"):
            at += found[at + 1].word.kind == "unit"  # half an hour
        if at < len(found) and found[at].word.kind == "unit":
            at = _temperature(found, at)
            unit = found[at].word
            at += 1
            if is_weak:  # one pound is a pound
                result.append(found[at - 1])
                continue
            # 2019 году is 2019, not so many months.
            if not (1000 <= value <= 2100 and (unit.surface == "г" or (unit.name == "month" and unit.value == 12))):
                key = f"quantity {unit.name} {value * unit.value:.9g}"
                surface = f"{surface} {unit.surface}"
        number = Word("number", surface, key, frozenset((key,)), value=value, is_weak=is_weak)
        result.append(Token(number, False, found[at - 1].pauses, found[at - 1].is_possessive))
    return result


def _value(found: list[Token], at: int) -> tuple[float, int]:
    """The value of the number that begins at `at`, and where it ends."""
    total, value = 0.0, found[at].word.value
    at += 1
    while at < len(found):
        word, last = found[at].word, found[at - 1].word
        following = found[at + 1].word if at + 1 < len(found) else None
        if word.kind == "number" and word.value >= 100 and word.surface.isalpha():
            value *= word.value
            if word.value >= 1000:
                total, value = total + value, 0.0
        elif word.kind == "number" and _continues(value, word, last):
            value += word.value
        elif word.surface == "and" and following is not None and value >= 100 and _continues(value, following, last):
            value += following.value
            at += 1
        elif word.surface in ("and", "с") and (half := _half(found, at + 1)):
            value += 0.5
            at = half - 1
        else:
            break
        at += 1
    return total + value, at


def _continues(value: float, word: Word, last: Word) -> bool:
    """Whether a number word goes on: twenty five, two hundred forty; not: five six."""
    if word.kind != "number" or not (last.surface.isalpha() and word.surface.isalpha()) or word.value < 1:
        return False
    if value % 100 == 0:
        return word.value < 100
    return value % 100 >= 20 and value % 10 == 0 and word.value < 10


def _half(found: list[Token], at: int) -> int:
    """Where "(a) half" that begins at `at` ends; 0 if it does not."""
    if at < len(found) and found[at].word.surface == "a":
        at += 1
    return at + 1 if at < len(found) and found[at].word.surface in ("half", "половиной") else 0


def _temperature(found: list[Token], at: int) -> int:
    """Where the unit stands: 20 degrees Celsius, 20 градусов по Цельсию."""
    if found[at].word.name == "degree":
        for skipped in (1, 2):
            if at + skipped < len(found) and found[at + skipped].word.name in _TEMPERATURES:
                return at + skipped
    return at
