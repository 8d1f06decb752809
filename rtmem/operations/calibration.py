"""From labelled pairs to a threshold: how often a distance would have hit rightly and wrongly, and how sure that is.

A pair hits at a threshold if its distance is not greater and the guard lets it pass. Rates are of the pairs there are:
the hit rate of the paraphrases, the rate of false hits of all others. Precision mixes both, and so depends on how many
there are of each: a file should have near misses and paraphrases about as often as the questions of its users do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rtmem.errors import CalibrationError
from rtmem.operations.labelled_pairs import PARAPHRASE

CONFIDENCE: Final = 0.95
"""Of the bounds: so often the truth is on their right side (one-sided Wilson intervals)."""

_Z: Final = 1.6448536269514722  # the normal distribution's quantile of CONFIDENCE

_EVERYTHING: Final = 2.0  # no distance is greater
_DIGITS: Final = 4  # of a threshold, as it is printed and set


class Compared(msgspec.Struct, frozen=True):
    """A labelled pair and what a cache would look at."""

    kind: str
    distance: float  # cosine distance of the two vectors: 0 is the same
    refusal: str = ""  # why the guard refuses it; empty: it does not

    @property
    def same(self) -> bool:
        """One answer serves both texts."""
        return self.kind == PARAPHRASE

    def hits(self, threshold: float) -> bool:
        """A cache with this threshold would answer the second with what is stored for the first."""
        return not self.refusal and self.distance <= threshold


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """What one threshold does."""

    threshold: float
    hits: int  # of `same` paraphrases
    false_hits: int  # of `different` others
    same: int
    different: int

    @property
    def hit_rate(self) -> float:
        return self.hits / self.same if self.same else 0.0

    @property
    def false_hit_rate(self) -> float:
        return self.false_hits / self.different if self.different else 0.0

    @property
    def precision(self) -> float:
        """Of what hits, the share that is right; 1 if nothing does."""
        return self.hits / (self.hits + self.false_hits) if self.hits + self.false_hits else 1.0

    @property
    def precision_low(self) -> float:
        """What the precision is at least, with CONFIDENCE."""
        return wilson_low(self.hits, self.hits + self.false_hits)

    @property
    def false_hit_rate_high(self) -> float:
        """What the rate of false hits is at most, with CONFIDENCE."""
        return 1 - wilson_low(self.different - self.false_hits, self.different)


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of a threshold: a precision, or a rate of false hits. Exactly one of the two."""

    precision: float | None = None
    false_hit_rate: float | None = None
    sure: bool = False  # the bound must reach it, not only what was counted

    def reached(self, point: Point) -> bool:
        """`point` is good enough."""
        if self.precision is not None:
            return (point.precision_low if self.sure else point.precision) >= self.precision
        assert self.false_hit_rate is not None, "a goal without a number"
        return (point.false_hit_rate_high if self.sure else point.false_hit_rate) <= self.false_hit_rate

    @property
    def words(self) -> str:
        """For people."""
        what = f"a precision of {self.precision:g}" if self.precision is not None else ""
        what = what or f"at most {self.false_hit_rate:g} false hits"
        return f"{what}, surely" if self.sure else what

    @property
    def counted_min(self) -> int:
        """So many hits (of a rate: others) it takes to tell. With fewer a single false hit would already miss the goal,
        and none would say nothing; for `sure`, even none would leave the bound below it."""
        wrong = 1 - self.precision if self.precision is not None else self.false_hit_rate
        if not wrong:
            raise CalibrationError(f"{self.words}: no number of pairs can show that: ask for less than perfection")
        if self.sure:
            return math.ceil(_Z**2 * (1 - wrong) / wrong - 1e-9)
        return math.ceil(1 / wrong - 1e-9)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The threshold with the most hits among those that reach a goal."""

    threshold: float  # between the last pair that hits and the first that does not
    point: Point
    is_sure: bool  # the bound reaches the goal, too


def wilson_low(successes: int, count: int) -> float:
    """What the share behind `successes` of `count` is at least, with CONFIDENCE: the lower end of Wilson's interval.

    Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, JASA 22 (1927).
    """
    assert 0 <= successes <= count, f"{successes} of {count}"
    if not count:
        return 0.0
    share = successes / count
    centre = share + _Z * _Z / (2 * count)
    spread = _Z * math.sqrt(share * (1 - share) / count + _Z * _Z / (4 * count * count))
    return max(0.0, (centre - spread) / (1 + _Z * _Z / count))


def point_at(compared: Iterable[Compared], threshold: float) -> Point:
    """What `threshold` does with these pairs."""
    counts = Counter((each.same, each.hits(threshold)) for each in compared)
    return Point(
        threshold=threshold,
        hits=counts[True, True],
        false_hits=counts[False, True],
        same=counts[True, True] + counts[True, False],
        different=counts[False, True] + counts[False, False],
    )


def curve(compared: Sequence[Compared]) -> list[Point]:
    """What every threshold does that differs from the one before, the smallest first.

    Empty if the guard lets no pair pass.
    """
    same = sum(each.same for each in compared)
    passed = sorted((each.distance, each.same) for each in compared if not each.refusal)
    points = []
    hits = false_hits = 0
    for place, (distance, is_same) in enumerate(passed):
        hits += is_same
        false_hits += not is_same
        if place + 1 < len(passed) and passed[place + 1][0] == distance:
            continue  # pairs at one distance hit together
        counts = {"same": same, "different": len(compared) - same}
        points.append(Point(threshold=distance, hits=hits, false_hits=false_hits, **counts))
    return points


def choose(compared: Sequence[Compared], goal: Goal) -> Choice:
    """The threshold with the most hits that reaches `goal` on these pairs.

    Raises:
        CalibrationError: there are too few pairs to tell, or no threshold is good enough; says how many it takes, or
            what the best one reaches.
    """
    points = curve(compared)
    same = sum(each.same for each in compared)
    different = len(compared) - same
    if not same or not different:
        raise CalibrationError(
            f"{same:,} paraphrases and {different:,} others: a threshold takes both, some hundreds of each",
            same=same,
            different=different,
        )
    counted_min = goal.counted_min
    able = [place for place, point in enumerate(points) if _counted(point, goal) >= counted_min]
    # Of those with the most hits the nearest: what is farther only adds false ones.
    last = max(
        (place for place in able if goal.reached(points[place])), key=lambda at: (points[at].hits, -at), default=None
    )
    if last is None:
        raise _none_is_good([points[place] for place in able], goal, point_at(compared, _EVERYTHING))
    following = points[last + 1].threshold if last + 1 < len(points) else None
    return Choice(
        threshold=_between(points[last].threshold, following),
        point=points[last],
        is_sure=msgspec.structs.replace(goal, sure=True).reached(points[last]),
    )


def _counted(point: Point, goal: Goal) -> int:
    return point.hits + point.false_hits if goal.precision is not None else point.different


def _between(last: float, following: float | None) -> float:
    """Halfway to the next pair, so that the last digit of a distance decides nothing, in few digits if that can be."""
    if following is None:
        return math.ceil(last * 10**_DIGITS) / 10**_DIGITS
    middle = (last + following) / 2
    short = round(middle, _DIGITS)
    return short if last <= short < following else middle


def _none_is_good(able: Sequence[Point], goal: Goal, last: Point) -> CalibrationError:
    """Among those that are `able` to tell; `last` is where everything hits that the guard lets pass."""
    counted_min, there = goal.counted_min, _counted(last, goal)
    what = "hits" if goal.precision is not None else "pairs that are no paraphrases"
    if not able:
        return CalibrationError(
            f"{goal.words} takes at least {counted_min:,} {what} to tell, and there are {there:,} here "
            f"({last.same:,} paraphrases, {last.different:,} others): label more pairs, or ask for less",
            counted_min=counted_min,
            counted=there,
        )
    best = max(able, key=lambda point: point.precision if goal.precision is not None else -point.false_hit_rate)
    reached = (
        f"precision {best.precision:.3f} (at least {best.precision_low:.3f})"
        if goal.precision is not None
        else f"{best.false_hit_rate:.3f} false hits (at most {best.false_hit_rate_high:.3f})"
    )
    return CalibrationError(
        f"no threshold reaches {goal.words}: the best of those with at least {counted_min:,} {what} is "
        f"{best.threshold:.4f} with {reached}: ask for less, switch the guard on, or use another embedder",
        best=best.threshold,
    )


class KindRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a threshold does with the pairs of one kind."""

    kind: str
    pairs: int
    near: int  # not farther than the threshold: they hit without the guard
    hits: int

    @property
    def rate(self) -> float:
        return self.hits / self.pairs


def by_kind(compared: Sequence[Compared], threshold: float, kinds: Sequence[str]) -> list[KindRow]:
    """One row for each kind that there is, in the order of `kinds`."""
    rows = []
    for kind in kinds:
        those = [each for each in compared if each.kind == kind]
        if those:
            near = sum(each.distance <= threshold for each in those)
            hits = sum(each.hits(threshold) for each in those)
            rows.append(KindRow(kind=kind, pairs=len(those), near=near, hits=hits))
    return rows


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """How often the guard gave a reason, among the pairs that are near enough to hit without it."""

    reason: str
    rightly: int  # of pairs that have another answer
    wrongly: int  # of paraphrases


def refusals(compared: Sequence[Compared], threshold: float) -> list[Reason]:
    """All reasons, the most frequent first."""
    counts = Counter((each.refusal, each.same) for each in compared if each.refusal and each.distance <= threshold)
    rows = [
        Reason(reason=reason, rightly=counts[reason, False], wrongly=counts[reason, True])
        for reason in {reason for reason, _ in counts}
    ]
    return sorted(rows, key=lambda row: (-row.rightly - row.wrongly, row.reason))
