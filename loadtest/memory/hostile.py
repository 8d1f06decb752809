"""Strings that people, models and attackers make up: syntax of queries, look-alikes, broken Unicode, and noise."""

from __future__ import annotations

import random
import unicodedata
from typing import Any, Final

PIECES: Final = (
    *("a", "A", " ", "  ", "*", "|", "{", "}", "(", ")", "[", "]", ":", ",", "-", "~", "%", "@", "$", "\\", '"', "'"),
    *("=>", "//", "/", "%2F", "\\}", "\\u007d", "@scope:{", "@scope:{*}", "-@mark:{side}", "$vector", "$now", "inf"),
    *("a) | (@scope:*", "*=>[KNN 10 @vector $v AS d]", "}|@scope:{", "ismissing(@scope)", "@eq:{", "[(0 +inf]", "nan"),
    *("\0", "\x1f", "\n", "\r\n", "\t", "\x7f", "\u202e", "\u200b", "\ufeff", "\ud800", "\udfff", "\U0010ffff"),
    *(
        "🧠",
        "👩‍👩‍👧",
        "ё",
        "е\u0308",
        "İ",
        "ı",
        "ﬁ",
        "ß",
        "中文",
        "ไทย",
        "the",
        "will|such|cat",
        "не",
        "None",
        "0",
        "-1",
    ),
    *("..", ".", "langgraph", "id", "owner", "$eq", "$gt", "EVAL", "FLUSHALL", "LIMIT", "PARAMS", "DIALECT", "x" * 300),
)
_NUMBERS: Final = (0, 1, -1, 2**53, -(2**53), 2**63 - 1, 2**64, 10**30, 0.1, -0.0, 1e308, float("inf"), float("nan"))
_OPERATORS: Final = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$regex", "$where")


class Hostile:
    """Makes them, the same ones for the same seed."""

    def __init__(self, seed: str) -> None:
        self._random: Final = random.Random(seed)

    def text(self) -> str:
        """Up to some hundred characters; seldom thousands, or none."""
        source = self._random
        made = "".join(self._piece() for _ in range(source.choice((0, 1, 1, 2, 2, 3, 5, 12))))
        return made * 50 if source.random() < 0.01 else made

    def _piece(self) -> str:
        source = self._random
        if source.random() < 0.7:
            return source.choice(PIECES)
        highest = source.choice((0x7F, 0xFF, 0x7FF, 0xFFFF, 0x10FFFF))
        return "".join(chr(source.randrange(highest + 1)) for _ in range(source.randrange(1, 6)))

    def label(self) -> str:
        """Of a namespace: what LangGraph lets through, most of the time."""
        made = self.text()
        return made if self._random.random() < 0.1 else made.replace(".", "_") or "_"

    def namespace(self) -> tuple[str, ...]:
        """Of one to four labels."""
        return tuple(self.label() for _ in range(self._random.randrange(1, 5)))

    def scalar(self) -> Any:
        """Whatever JSON has, and what it has not."""
        source = self._random
        return source.choice((self.text(), self.text(), source.choice(_NUMBERS), True, False, None))

    def filter(self) -> dict[str, Any]:
        """Of a search: fields and operators, known and unknown."""
        source = self._random
        return {self.text(): self._condition() for _ in range(source.randrange(1, 4))}

    def _condition(self) -> Any:
        source = self._random
        if source.random() < 0.5:
            return self.scalar()
        operators = [source.choice(_OPERATORS) for _ in range(source.randrange(1, 3))]
        return {each: [self.scalar(), self.scalar()] if each == "$in" else self.scalar() for each in operators}

    def twins(self) -> tuple[str, str]:
        """Two names that are not the same, and that somebody might take for the same."""
        source = self._random
        name = source.choice(("ann", "Ann Lee", "a:b", "é", "ann@example.com", self.text()[:40]))
        others = (
            name.swapcase(),
            name + " ",
            " " + name,
            name + ":",
            name + "\0",
            name + "🧠",
            name.replace(":", "%3A"),
            unicodedata.normalize("NFD", name),
            unicodedata.normalize("NFKC", name),
            name + "*",
            name + "}",
            name + "/",
            "*",
            "",
        )
        return name, source.choice([other for other in others if other != name])
