"""The members of a list may stand in any order; what plays a role of its own may not, nor what comes first in time."""

from __future__ import annotations

import pytest

from rtmem.operations.lexical_guard import compare

ANY_ORDER = """
difference between Gothic art and Baroque art | difference between Baroque art and Gothic art
the difference between a hard disk and an ssd | the difference between an ssd and a hard disk
difference between Spain's law and Portugal's law | difference between Portugal's law and Spain's law
distance from Rome to Milan | distance from Milan to Rome
how does a viola differ from a violin | how does a violin differ from a viola
compare Python to Java | compare Java to Python
how does Spain compare to Portugal | how does Portugal compare to Spain
oat milk versus almond milk | almond milk versus oat milk
compare oat milk with almond milk | compare almond milk with oat milk
which is better, a gas stove or an electric stove | which is better, an electric stove or a gas stove
is Python or Java better for games | is Java or Python better for games
should I buy a flat or rent a house | should I rent a house or buy a flat
how to cook apples, pears and plums | how to cook plums, pears and apples
a recipe with red onion and white beans | a recipe with white beans and red onion
why do people put salt in water and pepper in oil | why do people put pepper in oil and salt in water
чем отличается скрипка от альта | чем отличается альт от скрипки
в чем разница между Java и Python | в чем разница между Python и Java
что лучше, чугунная сковорода или стальная кастрюля | что лучше, стальная кастрюля или чугунная сковорода
сравни овсяное молоко с миндальным | сравни миндальное молоко с овсяным
как сварить яблоки, груши и сливы | как сварить сливы, груши и яблоки
"""
ONE_ORDER = """
does Spain beat Portugal | does Portugal beat Spain
the flight from Rome to Milan | the flight from Milan to Rome
convert files to folders | convert folders to files
is Tom taller than Ann | is Ann taller than Tom
is Spain hot compared to Portugal | is Portugal hot compared to Spain
do you like Tom and Ann's dog | do you like Ann and Tom's dog
Tom's mother and Ann's father | Ann's mother and Tom's father
first add acid, then water | first add water, then acid
first paint the wall, sand the floor and fix the roof | first fix the roof, paint the wall and sand the floor
should I shower first and shave after | should I shave first and shower after
difference between hot air and cold water | difference between cold air and hot water
how to fry onions and boil beans | how to boil onions and fry beans
a fever and no cough | a cough and no fever
is it before lunch and dinner | is it after dinner and lunch
is Python or Java better than Rust | is Python or Rust better than Java
choose apples, pears and plums | choose apples, pears or plums
поезд из Тулы в Курск | поезд из Курска в Тулу
перевести рубли в доллары | перевести доллары в рубли
жарить лук и варить фасоль | варить лук и жарить фасоль
"""


def _pairs(lines: str) -> list[tuple[str, str]]:
    return [
        (one.strip(), other.strip()) for one, _, other in (line.partition("|") for line in lines.split("\n")) if one
    ]


@pytest.mark.parametrize(("asked", "cached"), _pairs(ANY_ORDER))
def test_two_that_are_named_as_equals_may_change_places(asked: str, cached: str) -> None:
    assert compare(asked, cached) is None
    assert compare(cached, asked) is None


@pytest.mark.parametrize(("asked", "cached"), _pairs(ONE_ORDER))
def test_what_plays_a_role_of_its_own_or_comes_first_in_time_may_not(asked: str, cached: str) -> None:
    for refusal in (compare(asked, cached), compare(cached, asked)):
        assert refusal is not None
        assert refusal.reason == "order"


def test_a_thousand_lists_in_one_text_are_read_as_one() -> None:
    assert compare("a " + "and b or c, d " * 140, "d " + "and c or b, a " * 140) is not None
