"""Labelled pairs: our own, half of which no rule or threshold has ever seen, and public ones by path."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from rtmem.operations.labelled_pairs import LabelledPair, read_pairs

Language: TypeAlias = Literal["en", "ru"]
Part: TypeAlias = Literal["dev", "held_out", "public"]

TOLD: Final[dict[Part, str]] = {"held_out": "held out", "dev": "dev", "public": "public"}
LANGUAGES: Final[tuple[Language, ...]] = ("en", "ru")
_OWN: Final = Path(__file__).parent / "pairs"


class PairSet(NamedTuple):
    """A file of pairs, or what was drawn of it."""

    name: str  # "en" and "ru" for our own, the file's name for others
    part: Part
    pairs: list[LabelledPair]


def own(language: Language, part: Literal["dev", "held_out"], most: int, seed: int) -> PairSet:
    """Our own; `most` 0: all of them."""
    return _drawn(_OWN / language / f"{part}.csv", language, part, most, seed)


def public(path: Path, most: int, seed: int) -> PairSet:
    """One that somebody else has labelled. Raises InvalidRequestError, OSError."""
    return _drawn(path, path.name, "public", most, seed)


def _drawn(path: Path, name: str, part: Part, most: int, seed: int) -> PairSet:
    pairs = read_pairs(path.read_text("utf-8"), str(path)).pairs
    if most and len(pairs) > most:
        pairs = random.Random(seed).sample(pairs, most)
    return PairSet(name, part, pairs)
