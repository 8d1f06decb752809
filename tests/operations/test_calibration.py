"""A threshold follows from pairs, says how sure it is, and is refused where there are too few."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtmem.errors import CalibrationError
from rtmem.operations.calibration import (
    Compared,
    Goal,
    Reason,
    by_kind,
    choose,
    curve,
    point_at,
    refusals,
    wilson_low,
)


def pairs(kind: str, *distances: float, refusal: str = "") -> list[Compared]:
    return [Compared(kind, distance, refusal) for distance in distances]


def many(same: int, different: int, *, overlap: int = 0) -> list[Compared]:
    """Paraphrases from .001 to .2, others from .3 on, but for `overlap` of them between the paraphrases."""
    found = pairs("paraphrase", *(0.2 * (place + 1) / same for place in range(same)))
    found += pairs("number", *(0.1 + place / 1000 for place in range(overlap)))
    return found + pairs("unrelated", *(0.3 + place / 1000 for place in range(different - overlap)))


@pytest.mark.parametrize(("successes", "count"), [(10, 10), (95, 100), (268, 268), (1, 3), (700, 1000)])
def test_the_bound_is_wilsons(successes: int, count: int) -> None:
    low = wilson_low(successes, count)
    # The definition: so far below what was counted that the normal distribution leaves 5 % beyond.
    spread = 1.6448536 * math.sqrt(low * (1 - low) / count)
    assert successes / count - low == pytest.approx(spread, abs=1e-6)
    assert low == pytest.approx({10: 0.787, 95: 0.901, 268: 0.990, 1: 0.078, 700: 0.676}[successes], abs=6e-4)


def test_the_bound_of_nothing_is_nothing() -> None:
    assert wilson_low(0, 0) == wilson_low(0, 10) == 0


def test_the_bound_holds_as_often_as_it_says() -> None:
    source = random.Random(4)
    for truth in (0.5, 0.9, 0.97):
        held = sum(wilson_low(sum(source.random() < truth for _ in range(200)), 200) <= truth for _ in range(2000))
        # Discrete counts make it a little less than nominal here and there (Brown, Cai, DasGupta 2001).
        assert 0.91 <= held / 2000 <= 0.99


def test_a_curve_counts_what_each_threshold_would_do() -> None:
    compared = [
        *pairs("paraphrase", 0.1, 0.2, 0.4),
        *pairs("paraphrase", 0.05, refusal="number"),
        *pairs("name", 0.2),
        *pairs("unrelated", 0.9),
    ]
    points = curve(compared)
    assert [(point.threshold, point.hits, point.false_hits) for point in points] == [
        (0.1, 1, 0),
        (0.2, 2, 1),  # at one distance they hit together
        (0.4, 3, 1),
        (0.9, 3, 2),
    ]
    second = points[1]
    assert (second.hit_rate, second.false_hit_rate, second.precision) == (2 / 4, 1 / 2, 2 / 3)


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            Compared,
            st.sampled_from(["paraphrase", "name", "unrelated"]),
            st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.7]),
            st.sampled_from(["", "", "number"]),
        )
    )
)
def test_a_curve_agrees_with_counting_anew_at_each_of_its_thresholds(compared: list[Compared]) -> None:
    points = curve(compared)
    assert [point_at(compared, point.threshold) for point in points] == points
    assert [point.threshold for point in points] == sorted({each.distance for each in compared if not each.refusal})


def test_the_threshold_is_the_farthest_that_is_precise_enough() -> None:
    compared = many(200, 400, overlap=3)
    choice = choose(compared, Goal(precision=0.98))
    assert choice.point.hits == 200
    assert choice.point.false_hits == 3
    assert 0.2 < choice.threshold < 0.3
    assert point_at(compared, choice.threshold).precision == choice.point.precision == 200 / 203
    assert not choice.is_sure
    nearer = choose(compared, Goal(precision=0.99))
    assert nearer.threshold == pytest.approx(0.1, abs=0.001)
    assert (nearer.point.hits, nearer.point.false_hits) == (100, 1)


def test_a_rate_of_false_hits_can_be_wanted_instead() -> None:
    compared = many(200, 400, overlap=8)
    choice = choose(compared, Goal(false_hit_rate=0.01))
    assert choice.point.false_hits == 4
    assert choice.point.false_hit_rate == 0.01
    assert choice.point.false_hit_rate_high > 0.01
    assert not choice.is_sure


def test_whoever_wants_to_be_sure_gets_the_threshold_whose_bound_is_good_enough() -> None:
    compared = many(400, 800, overlap=8)
    loose, strict = (choose(compared, Goal(precision=0.98, sure=sure)) for sure in (False, True))
    assert strict.threshold < loose.threshold
    assert strict.point.precision_low >= 0.98 > loose.point.precision_low
    assert (strict.is_sure, loose.is_sure) == (True, False)


def test_a_threshold_lies_between_two_pairs_so_that_rounding_decides_nothing() -> None:
    near = pairs("paraphrase", *[0.05] * 99, 0.123456) + pairs("name", *[0.123459] * 100)
    assert 0.123456 < choose(near, Goal(precision=0.99)).threshold < 0.123459
    far = pairs("paraphrase", *[0.05] * 99, 0.1234) + pairs("name", *[0.3] * 100)
    assert choose(far, Goal(precision=0.99)).threshold == 0.2117
    everything = pairs("paraphrase", *[0.05] * 100) + pairs("name", *[0.01] * 1, refusal="name")
    assert choose(everything, Goal(precision=0.99)).threshold == 0.05


@pytest.mark.parametrize(
    ("compared", "goal", "told"),
    [
        ([], Goal(precision=0.9), "0 paraphrases and 0 others: a threshold takes both"),
        (pairs("paraphrase", *[0.1] * 500), Goal(precision=0.9), "500 paraphrases and 0 others"),
        (
            [*pairs("paraphrase", *[0.1] * 200, refusal="name"), *pairs("name", *[0.1] * 200)],
            Goal(precision=0.999),
            "takes at least 1,000 hits to tell, and there are 200 here (200 paraphrases, 200 others)",
        ),
        (
            pairs("paraphrase", 0.1, refusal="name") + pairs("name", 0.1, refusal="name"),
            Goal(precision=0.9),
            "takes at least 10 hits to tell, and there are 0 here",
        ),
        (many(60, 400), Goal(precision=0.999), "takes at least 1,000 hits to tell, and there are 460 here"),
        (many(200, 40), Goal(false_hit_rate=0.01), "takes at least 100 pairs that are no paraphrases to tell"),
        (many(100, 100), Goal(precision=0.99, sure=True), "takes at least 268 hits to tell"),
        (many(200, 400), Goal(precision=1.0), "no number of pairs can show that"),
        (many(200, 400), Goal(false_hit_rate=0.0), "no number of pairs can show that"),
    ],
)
def test_too_few_pairs_are_refused_with_the_number_it_takes(compared: list[Compared], goal: Goal, told: str) -> None:
    with pytest.raises(CalibrationError) as caught:
        choose(compared, goal)
    assert told in str(caught.value)


def test_where_no_threshold_is_good_enough_the_best_one_is_told() -> None:
    mixed = pairs("paraphrase", *(place / 1000 for place in range(200)))
    mixed += pairs("name", *(place / 1000 for place in range(200)))
    with pytest.raises(
        CalibrationError, match=r"no threshold reaches a precision of 0\.95: the best .* precision 0\.5"
    ):
        choose(mixed, Goal(precision=0.95))
    with pytest.raises(CalibrationError, match=r"no threshold reaches at most 0\.01 false hits"):
        choose(pairs("name", *[0.0] * 200) + pairs("paraphrase", 0.1), Goal(false_hit_rate=0.01))


def test_kinds_and_reasons_are_told_apart() -> None:
    compared = [
        *pairs("paraphrase", 0.1, 0.9),
        *pairs("paraphrase", 0.1, refusal="name"),
        *pairs("number", 0.1, 0.1, refusal="number"),
        *pairs("number", 0.1),
        *pairs("name", 0.95, refusal="name"),
    ]
    rows = by_kind(compared, 0.5, ("paraphrase", "number", "name", "unrelated"))
    assert [(row.kind, row.pairs, row.near, row.hits) for row in rows] == [
        ("paraphrase", 3, 2, 1),
        ("number", 3, 3, 1),
        ("name", 1, 0, 0),
    ]
    # What is too far away is not refused by the guard.
    assert refusals(compared, 0.5) == [
        Reason(reason="number", rightly=2, wrongly=0),
        Reason(reason="name", rightly=0, wrongly=1),
    ]
