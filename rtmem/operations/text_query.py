"""Text of people -> words that are stored and words that are asked for. No character of it is ever query syntax.

Words are stemmed here and not at the server, because one index holds several languages and RediSearch stems by one
language a document; because the server's query parser has crashed on plain words (two of its default stop words at the
head of a group of three); and because what is stored is then what is asked for, whatever either side is upgraded to.
Two outputs: `stemmed` for the TEXT field (declare it NOSTEM, in an index with STOPWORDS 0), and `query` for FT.SEARCH.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import regex
from Stemmer import Stemmer

from rtmem.operations.words import IRREGULAR, STOP_WORDS

WORD_CHARACTERS_MAX: Final = 40
"""The rest of a longer word is dropped on both sides: a megabyte of `a` is a word too."""

# A run of letters, marks and digits, apostrophes inside; a character of a script without spaces stands alone.
_ALONE: Final = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_RUN: Final = rf"(?!{_ALONE})[\p{{L}}\p{{N}}](?:(?!{_ALONE})[\p{{L}}\p{{M}}\p{{N}}])*"
_ASCII_WORD: Final = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")  # the same for most English texts, in a fifth of the time
_WORD: Final = regex.compile(rf"{_ALONE}|{_RUN}(?:'{_RUN})*")
_APOSTROPHES: Final = regex.compile("[\u2018\u2019\u02bc\uff07`´]")
# Accents, but not the breve: й is a letter of its own, while ё is written е as often as not.
_ACCENTS: Final = regex.compile("[\u0300-\u0305\u0307-\u036f]")


class _Stemmers(threading.local):
    """Each thread's own, made when it first needs them: a stemmer keeps the word it is at in itself."""

    def __init__(self) -> None:
        # Without caches of their own: `stem` has one, and theirs takes as long as the stemming of a new word.
        self.english: Callable[[str], str] = Stemmer("english", 0).stemWord
        self.russian: Callable[[str], str] = Stemmer("russian", 0).stemWord


_stemmers: Final = _Stemmers()

_WEIGHT: Final = 1_000_000
"""Of what the words score against what the filters score: a filter by tag has a BM25 too, high for a rare tag and a
short document. Without it R@10 on LoCoMo falls from .66 to .65, and further the more tenants there are."""


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A query for FT.SEARCH with DIALECT 2, VERBATIM and SCORER BM25STD, and the words it names as PARAMS."""

    query: str
    params: tuple[tuple[str, str], ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The stems it asks for, without repeats."""
        return tuple(word for _, word in self.params)

    def bm25(self, score: float) -> float:
        """The sum of the words' BM25, from the score that the server gave."""
        return score / (_WEIGHT * _repeats(self.params))


def stemmed(text: str) -> str:
    """The stems of all words of `text`, in order, separated by spaces: what the TEXT field holds."""
    return " ".join(stem(word) for word in _words(text))


def stems(text: str, words_max: int) -> list[str]:
    """What to ask for: at most `words_max` different stems of `text`, those that say nothing left out.

    If all of them say nothing ("who am I"), they are what is asked for. Of a long message the end counts: that is where
    its question is.
    """
    words = _words(text)
    telling = [word for word in words if word not in STOP_WORDS] or words
    found = dict.fromkeys(stem(word) for word in reversed(telling))
    return list(found)[:words_max][::-1]


def query(text: str, scope: str, *, field: str = "s", words_max: int = 32) -> TextQuery | None:
    """A query for documents in `scope` that share a word with `text`, ranked by BM25; None if `text` has no word.

    Args:
        scope: a filter that is already safe, such as `@ns:{$ns}`, with the value in PARAMS; never empty.
        field: the TEXT field that holds `stemmed` texts.

    The first group decides what matches; the second, of optional words, what it is worth: each adds its own BM25, where
    RediSearch scores a plain `(a|b|c)` by its one best child (R@10 on LoCoMo .55 against .66 of this form). Words
    travel as PARAMS, which the parser does not look into.
    """
    if not scope:
        raise ValueError("a text query without a scope would search everybody's documents")
    words = stems(text, words_max)
    if not words:
        return None
    params = tuple((f"w{number}", word) for number, word in enumerate(words))
    group = "|".join(f"${name}" for name, _ in params)
    # RediSearch drops the weight of a group of one, so one word stands there twice.
    optional = " ".join(f"~@{field}:${name}" for name, _ in params * _repeats(params))
    return TextQuery(f"({scope}) @{field}:({group}) ({optional})=>{{$weight:{_WEIGHT}}}", params)


def _repeats(params: tuple[tuple[str, str], ...]) -> int:
    return 2 if len(params) == 1 else 1


def _words(text: str) -> list[str]:
    """Words in lower case, without accents, in the compatibility form of Unicode."""
    if text.isascii():
        found = _ASCII_WORD.findall(text.lower().replace("`", "'"))
    else:
        text = _APOSTROPHES.sub("'", unicodedata.normalize("NFKC", text).casefold())
        found = _WORD.findall(unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text))))
    return [word if len(word) <= WORD_CHARACTERS_MAX and "'" not in word else _plain(word) for word in found]


def _plain(word: str) -> str:
    word = word.removesuffix("'s")[:WORD_CHARACTERS_MAX]
    return word if word in STOP_WORDS else word.replace("'", "")


@lru_cache(maxsize=32_768)  # a tenth of the time, and people use the same few thousand words
def stem(word: str) -> str:
    """The stem of a word in the stored form; of a script that we have no stemmer for, the word itself."""
    word = word.replace("'", "")
    word = IRREGULAR.get(word, word)
    if word.isascii():
        return _stemmers.english(word)
    # The block is enough: a Russian stem of a Ukrainian word is as good a name for it as any.
    return _stemmers.russian(word) if "\u0400" <= word[0] <= "\u04ff" else word
