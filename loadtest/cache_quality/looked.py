"""What was seen of one set of pairs with one embedder, and what any threshold makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from loadtest.cache_quality.sets import TOLD, PairSet
from rtmem.operations.calibration import Compared, Point, curve, wilson_low
from rtmem.operations.labelled_pairs import HARD, UNRELATED


@dataclass(frozen=True)
class Looked:
    """One set of pairs, one embedder."""

    embedder: str  # as in [embedding] model
    pairs: PairSet
    compared: list[Compared]  # with the guard's refusals
    threshold: float  # of rtmem, by default
    redisvl: list[bool] = field(default_factory=list)  # what its class answered at its default
    redisvl_distance: float = 0.0
    rtmem: list[bool] = field(default_factory=list)  # what rtmem.cache answered; empty: was not asked

    @property
    def name(self) -> str:
        return f"{TOLD[self.pairs.part]} {self.pairs.name}, {self.embedder}"

    @cached_property
    def bare(self) -> list[Compared]:
        """As without the guard."""
        return [msgspec.structs.replace(each, refusal="") for each in self.compared]

    @cached_property
    def guarded_curve(self) -> list[Point]:
        return curve(self.compared)

    @cached_property
    def bare_curve(self) -> list[Point]:
        return curve(self.bare)

    def hits(self, threshold: float, *, guard: bool) -> list[bool]:
        """What a cache would answer, pair by pair."""
        return [each.hits(threshold) for each in (self.compared if guard else self.bare)]

    @property
    def disagreeing(self) -> int:
        """Pairs of which rtmem.cache said something else than distance and guard say."""
        expected = self.hits(self.threshold, guard=True)
        return sum(one != other for one, other in zip(self.rtmem, expected, strict=True))

    def rates(self, hits: Sequence[bool]) -> Rates:
        """What those hits amount to."""
        hard = [hit for each, hit in zip(self.compared, hits, strict=True) if each.kind in HARD]
        unrelated = [hit for each, hit in zip(self.compared, hits, strict=True) if each.kind == UNRELATED]
        right = [hit for each, hit in zip(self.compared, hits, strict=True) if each.same]
        wrong = [hit for each, hit in zip(self.compared, hits, strict=True) if not each.same]
        return Rates(
            hits=_share(right),
            false_hits=_share(wrong),
            false_hits_high=1 - wilson_low(len(wrong) - sum(wrong), len(wrong)),
            hard=_share(hard),
            hard_high=1 - wilson_low(len(hard) - sum(hard), len(hard)) if hard else _share(hard),
            unrelated=_share(unrelated),
            precision=sum(right) / (sum(right) + sum(wrong)) if any(right) or any(wrong) else 1.0,
        )

    def threshold_at(self, hit_rate: float, *, guard: bool) -> float | None:
        """The nearest threshold with at least this hit rate; None: the guard refuses too many."""
        points = self.guarded_curve if guard else self.bare_curve
        return next((point.threshold for point in points if point.hit_rate >= hit_rate), None)


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the pairs of a kind that hit; `_high`: at most that much, with 95 % confidence."""

    hits: float  # of the paraphrases
    false_hits: float  # of all others
    false_hits_high: float
    hard: float
    hard_high: float
    unrelated: float
    precision: float

    @property
    def facts(self) -> dict[str, float]:
        """As columns of a table; kinds that a set has not are left out."""
        named = {
            "hits": self.hits,
            "false hits": self.false_hits,
            "false, at most": self.false_hits_high,
            "hard": self.hard,
            "hard, at most": self.hard_high,
            "unrelated": self.unrelated,
            "precision": self.precision,
        }
        return {name: share for name, share in named.items() if share == share}


def _share(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits) if hits else float("nan")
