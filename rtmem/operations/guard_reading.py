"""One piece of text between spaces -> the words, numbers and code in it. Remembered: texts share their pieces."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from rtmem.operations.guard_frames import word_frames
from rtmem.operations.guard_lexicon import Word, lexicon, word_of, words_of
from rtmem.operations.text_query import stem

# Adverbs that may stand apart from their verb (turn the light off), and prepositions that may govern nothing.
PARTICLES: Final = words_of("on off up down in out away over back за против лет")

PIECE_CHARACTERS_MAX: Final = 64
"""A longer piece is no word: it is compared as it is."""

_PIECES_MAX: Final = 32_768

_OPENING: Final = "([{<\"'«“„‘¿¡*_`"
_CLOSING: Final = ".,;:!?…)]}>\"'»”’*_`"
_SENTENCE_END: Final = frozenset(".?!…")
_PAUSE: Final = frozenset(".,;:?!…)")

_DIGITS: Final = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?"
_ORDINAL_END: Final = "st|nd|rd|th|й|я|е|х|го|му|м|ый|ая|ое|ого|ой|ых|s"
_AMOUNT: Final = re.compile(rf"([+-]?)([$€£₽¥₹#№]?)({_DIGITS})(?:-?({_ORDINAL_END}))?$")
_AMOUNT_UNIT: Final = re.compile(rf"([+-]?(?:{_DIGITS}))-?([^\W\d_]{{1,12}}\.?|[%$€£₽¥₹°]|°[cf])$")
_RANGE: Final = re.compile(r"(\d+(?:[.,]\d+)?)-(\d+(?:[.,]\d+)?)([^\W\d]{0,5}|%)$")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?(am|pm)?$")
_ISO_DATE: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})$")
_DOTTED_DATE: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})$")
_FRACTION: Final = re.compile(r"(\d+)/(\d+)$")
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_WORD: Final = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*$")
_ROMAN: Final = re.compile(r"(?=[ivx]{2})x{0,3}(?:ix|iv|v?i{0,3})$")
# What no plain word looks like: paths, addresses, flags, identifiers, calls, versions.
_CODE: Final = re.compile(
    r"--?[A-Za-zА-яЁё]|\w+://|www\.|~?\.{0,2}/\w|[A-Za-z]:\\|[.@$#]\w|\w+@\w"
    r"|.*(?:[\w)][_=<>{}\[\]\\|^~]|::|->|\(\)|\+\+$|[^\W\d_]#$)"
    r"|[A-Za-z_]\w*\.\w|\d+(?:\.\d+){2,}|v\d|[a-z]+[A-Z]|(?=.*\d)(?=.*[^\W\d_])[\w.-]+$|\w+/\w"
)
_CAMEL: Final = re.compile("[a-z]+[A-Z]")
# Of these, case tells nothing: 4Shared, Node.js, MP3.
_BRAND: Final = re.compile(r"[^\W_]+(?:[.-][^\W_]+)*$")
_INITIALS: Final = re.compile(r"[A-Za-z]{1,2}(?:\.[A-Za-z])+$")
_GLUE: Final = re.compile("[.,;:?!()]+")
_OPERATOR: Final = frozenset("+-*/=<>≤≥≠^%&|~×÷±√∞!")
_DOUBLED: Final = frozenset(("&&", "||"))  # of the marks that people also write between words, no dash and no line
_MONTHS: Final = (
    *("january", "february", "march", "april", "May", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_NEGATIVE: Final = re.compile(r"(.+)n't$")
_SHORTENED: Final = {"wo": "will", "ca": "can", "sha": "shall"}
_TAIL: Final = re.compile(r"'(?:s|m|re|ve|ll|d)$")


class Token(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A word or phrase where it stands in a text."""

    word: Word
    is_name: bool = False  # a capital letter that no sentence begins with
    pauses: bool = False  # punctuation follows
    is_possessive: bool = False  # with 's
    question: str = ""  # what a phrase asks that begins with a question word: "how big", what


class Piece(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What stands between two spaces."""

    tokens: tuple[Token, ...]
    names: tuple[Token, ...]  # the same, if its capital letter means something
    is_capital: bool
    is_upper: bool
    ends_sentence: bool
    pauses: bool
    traits: frozenset[str]
    """What few texts have, so that the others need not be looked through for it: NUMBER, PARTICLE, frames."""


NUMBER, PARTICLE = "number", "particle"
_NO_TRAITS: Final[frozenset[str]] = frozenset()  # one for all, since each empty set is a set of its own


@lru_cache(maxsize=_PIECES_MAX)
def piece(raw: str) -> Piece:
    """The words of what stands between two spaces of a text that went through `guard_tokens.plain`."""
    if len(raw) > PIECE_CHARACTERS_MAX:
        return _piece(raw, (_code(raw),))
    core = raw.lstrip(_OPENING)
    bare = core.rstrip(_CLOSING)
    if not bare or not (bare[0].isalnum() or any(map(str.isalnum, bare))):
        return _marks(raw)
    end = core[len(bare) :]
    if end.startswith(")") and bare.endswith("("):  # a call: print()
        bare, end = bare + ")", end[1:]
    words, is_possessive = _words(bare)
    return _piece(
        raw,
        words,
        is_capital=bare[0].isupper(),
        is_upper=len(bare) > 1 and bare.isupper(),
        is_possessive=is_possessive,
        ends_sentence=not _SENTENCE_END.isdisjoint(end),
        pauses=not _PAUSE.isdisjoint(end),
    )


def _piece(
    raw: str,
    words: tuple[Word, ...],
    *,
    is_capital: bool = False,
    is_upper: bool = False,
    is_possessive: bool = False,
    ends_sentence: bool = False,
    pauses: bool = False,
) -> Piece:
    last = len(words) - 1
    tokens = names = tuple([Token(word, False, pauses and at == last, is_possessive) for at, word in enumerate(words)])
    traits = word_frames(raw)
    if is_capital:
        names = tuple([msgspec.structs.replace(token, is_name=True) for token in tokens])
    for word in words:
        if word.kind == "number":
            traits.add(NUMBER)
        if word.surface in PARTICLES:
            traits.add(PARTICLE)
    kept = frozenset(traits) if traits else _NO_TRAITS
    return Piece(tokens, names, is_capital, is_upper, ends_sentence, pauses, kept)


def _marks(raw: str) -> Piece:
    """A piece without a letter or digit: a unit, an operator, an emoji, or only punctuation."""
    ends_sentence = not _SENTENCE_END.isdisjoint(raw)
    known = lexicon().words.get(raw.strip(_OPENING + _CLOSING))
    if known is not None and known.kind == "unit":  # 20 %
        return _piece(raw, (known,), ends_sentence=ends_sentence)
    said = "".join([mark for mark in raw if mark in _OPERATOR or (mark > "\u2190" and mark not in _CLOSING)])
    words = (_code(said),) if said.strip("-/|!*&") or said in _DOUBLED else ()
    return _piece(raw, words, ends_sentence=ends_sentence, pauses=True)


def _words(bare: str) -> tuple[tuple[Word, ...], bool]:
    surface = bare.lower().replace("ё", "е")
    known = lexicon().words.get(bare if bare in _CAPITALS else surface)
    if known is not None:
        return (_by_case(known, bare),), False
    if surface[0].isdigit() or surface[0] in "$€£₽¥₹+-#№%°":
        found = _quantity(surface)
        if found:
            return found, False
    if surface.isalpha() or _WORD.match(surface):
        if bare != surface and _CAMEL.match(bare):
            return (Word("code", bare, surface, frozenset((f"code {bare}", stem(surface)))),), False
        return _letters(surface, bare)
    if surface.isalnum() and not surface.isdigit() and surface in lexicon().groups:  # 2FA
        return (content(surface),), False
    if "-" in surface and all(_WORD.match(part) or part.isdigit() for part in surface.split("-")):
        return _hyphened(surface, bare), False
    if _CODE.match(bare):
        if "/" in bare and all(_WORD.match(part) for part in surface.split("/")):
            return tuple(word for part in surface.split("/") for word in _letters(part, part)[0]), False
        return _code_or_words(surface, bare), False
    return _several(_GLUE.split(surface), surface), False


def _code_or_words(surface: str, bare: str) -> tuple[Word, ...]:
    """What looks like code but may be two sentences with no space between, an abbreviation, or a brand."""
    if _INITIALS.match(bare):  # U.S., Ph.D.
        joined = bare.replace(".", "")
        return _words(joined)[0]
    before, _, after = bare.rpartition(".")
    if after[:1].isupper() and _begins_sentence(after.lower()) and _WORD.match(before):  # any longer.What
        return (*_letters(before.lower(), before)[0], word_of(after.lower()))
    if _BRAND.match(bare):
        return (Word("code", bare, surface, frozenset((f"code {surface}",))),)
    return (_code(bare),)


def _begins_sentence(surface: str) -> bool:
    """Whether a word so often begins one that it is no attribute: What, Can, Please; but not Is, As, Any."""
    word = lexicon().words.get(surface)
    if word is None:
        return False
    return word.kind in ("question", "pronoun") or (word.kind == "function" and len(surface) > 3 - (word.name != ""))


def _several(parts: list[str], surface: str) -> tuple[Word, ...]:
    """The words and currencies that something glues together: the price($), item(s), yes,no; else one word."""
    if len(parts) > 1:
        words = [word for part in parts if part for word in _part(part)]
        if words and all(word.kind != "code" for word in words):
            return tuple(words)
    return (Word("content", surface, surface, frozenset((surface,))),)


def _part(part: str) -> tuple[Word, ...]:
    if _WORD.match(part) and (len(part) > 1 or part == "s"):  # f(a,b) stays one
        return _letters(part, part)[0]
    known = lexicon().words.get(part)
    return (known,) if known is not None and known.kind == "unit" else (_code(part),)


def _letters(surface: str, bare: str) -> tuple[tuple[Word, ...], bool]:
    if "'" in surface:
        negative = _NEGATIVE.match(surface)
        if negative:
            verb = _SHORTENED.get(negative[1], negative[1])
            return (word_of(verb), lexicon().words["n't"]), False
        short = _TAIL.sub("", surface)
        if short != surface:
            return (word_of(short),), surface.endswith("'s")
    if bare.isupper() and len(bare) > 1 and _ROMAN.match(surface):
        return (_number(surface, float(_roman(surface))),), False
    if not surface.isascii() and (compound := _MEASURED.match(surface)):
        number = lexicon().words.get(compound[1])
        unit = lexicon().words[_MEASURES[compound[2]]]
        if number is not None and number.kind == "number":
            return (number, unit), False
    return (_by_case(word_of(surface), bare),), False


# трехлетний, двадцатилетие, пятидневный
_MEASURES: Final = {
    **{"лет": "лет", "дневн": "дней", "часов": "часов", "месячн": "месяцев", "недельн": "недель", "минутн": "минут"},
    **{"процентн": "процентов", "километров": "километров", "метров": "метров", "литров": "литров", "сут": "дней"},
}
_MEASURED: Final = re.compile(rf"(\w{{3,14}}?)({'|'.join(_MEASURES)})[а-я]{{0,4}}$")


def _by_case(word: Word, bare: str) -> Word:
    """The word with regard to capitals: `May` is a month, `may` is not; `IT` and `US` are no pronouns."""
    if len(bare) > 1 and bare.isupper() and bare.isascii() and word.kind == "function" and word.surface in _SHOUTED:
        return content(bare.lower())
    if word.kind == "unit" and len(bare) == 2 and bare.isupper() and word.stem in lexicon().groups:
        return content(word.surface)  # ML
    return word


_CAPITALS: Final = words_of("May Mon Wed Sat Sun")
_SHOUTED: Final = words_of("us it am who")


def _hyphened(surface: str, bare: str) -> tuple[Word, ...]:
    joined = surface.replace("-", "")
    groups = lexicon().groups
    for whole in (surface, joined):
        if stem(whole) in groups:
            return (word_of(whole),)
    parts = surface.split("-")
    words = tuple(word for part in parts if part for word in (_quantity(part) or _letters(part, part)[0]))
    if len(parts) == 2 and all(word.kind == "number" for word in words) and len(words) == 2:  # twenty-five
        return (_number(surface, words[0].value + words[1].value),)
    return words


def _quantity(surface: str) -> tuple[Word, ...]:
    """The words of a piece that begins with a digit, a sign or a currency; none if it is something else."""
    if match := _AMOUNT.match(surface):
        sign, mark, digits, _ = match.groups()
        number = _number(surface, _value(digits) * (-1 if sign == "-" else 1))
        return (number, lexicon().words[mark]) if mark and mark not in "#№" else (number,)
    if match := _ISO_DATE.match(surface):
        return _date(int(match[3]), int(match[2]), int(match[1]), surface)
    if match := _DOTTED_DATE.match(surface):
        return _date(int(match[1]), int(match[2]), int(match[3]), surface)
    if match := _CLOCK.match(surface):
        hours, minutes, seconds, half = match.groups()
        clock = Word("date", surface, surface, frozenset((f"clock {int(hours)}:{minutes}:{seconds or '00'}",)))
        return (clock, lexicon().words[half]) if half else (clock,)
    if match := _RANGE.match(surface):
        unit = lexicon().words.get(match[3])
        numbers = (_number(match[1], _value(match[1])), _number(match[2], _value(match[2])))
        return (*numbers, unit) if unit is not None and unit.kind == "unit" else numbers if not match[3] else ()
    if (match := _FRACTION.match(surface)) and int(match[2]):
        return (_number(surface, int(match[1]) / int(match[2])),)
    if match := _AMOUNT_UNIT.match(surface):
        unit = lexicon().words.get(match[2].rstrip("."))
        if unit is not None and unit.kind in ("unit", "number", "date"):
            return (_number(match[1], _value(match[1])), unit)
    return ()


def _date(day: int, month: int, year: int, surface: str) -> tuple[Word, ...]:
    if not 1 <= month <= 12:
        return (_code(surface),)
    name = lexicon().words[_MONTHS[month - 1]]
    return (_number(str(day), day), name, _number(str(year), year))


def _value(digits: str) -> float:
    if _GROUPED.match(digits):
        digits = digits.replace(",", "")
    return float(digits.replace(",", "."))


def _roman(surface: str) -> int:
    values = [{"i": 1, "v": 5, "x": 10}[letter] for letter in surface]
    return sum(-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))


def _number(surface: str, value: float) -> Word:
    return Word("number", surface, f"{value:.9g}", frozenset((f"number {value:.9g}",)), "", value)


def content(surface: str) -> Word:
    root = stem(surface)
    return Word("content", surface, root, frozenset((root, *lexicon().groups.get(root, ()))))


def _code(text: str) -> Word:
    return Word("code", text, text, frozenset((f"code {text}",)))
