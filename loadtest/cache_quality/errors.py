"""The dev pairs that go wrong, with their texts, for whoever works on rules. Held-out ones are never shown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from loadtest.cache_quality.looked import Looked


def show_dev(looked: Sequence[Looked], console: Console) -> None:
    """False hits, and paraphrases that only the guard refuses, by kind and reason."""
    for each in looked:
        if each.pairs.part != "dev":
            continue
        for pair, compared in zip(each.pairs.pairs, each.compared, strict=True):
            near = compared.distance <= each.threshold
            if near and (compared.refusal if compared.same else not compared.refusal):
                what = f"refused: {compared.refusal}" if compared.refusal else "false hit"
                told = f"{each.name}, {pair.kind}, {what}, {compared.distance:.3f}: {pair.first!r} / {pair.second!r}"
                console.print(escape(told), highlight=False, soft_wrap=True)
