"""Pairs that go wrong, with their texts: of dev for whoever works on rules, of public sets for whoever judges labels.

Held-out ones are never shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape

from loadtest.cache_quality.looked import Looked
from loadtest.cache_quality.sets import Part

SHOWN: Final[tuple[Part, ...]] = ("dev", "public")


def show_errors(looked: Sequence[Looked], part: Part, console: Console) -> None:
    """False hits, and paraphrases that only the guard refuses, by kind and reason."""
    for each in looked:
        if each.pairs.part != part:
            continue
        for pair, compared in zip(each.pairs.pairs, each.compared, strict=True):
            near = compared.distance <= each.threshold
            if near and (compared.refusal if compared.same else not compared.refusal):
                what = f"refused: {compared.refusal}" if compared.refusal else "false hit"
                told = f"{each.name}, {pair.kind}, {what}, {compared.distance:.3f}: {pair.first!r} / {pair.second!r}"
                console.print(escape(told), highlight=False, soft_wrap=True)
