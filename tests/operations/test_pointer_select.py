from __future__ import annotations

import jmespath
import pytest

from rtmem.errors import QueryError, QueryLimitError
from rtmem.operations.pointer_select import as_text, check_size, compile_expression, evaluate

DATA = {"people": [{"name": "Ann", "age": 30, "tags": ["a", "b"]}, {"name": "Bob", "age": 40, "tags": []}], "n": 2}


@pytest.mark.parametrize(
    "expression",
    [
        *("people[].name", "people[?age > `30`].name", "people[?name == 'Ann'] | [0].tags", "length(people)", "n"),
        *(
            "people[*].{who: name, first: tags[0]}",
            "people[].tags[]",
            "max_by(people, &age).name",
            "keys(@)",
            "people[::-1]",
        ),
        *("sort_by(people, &name)[].age", "join(',', people[].name)", "contains(people[0].tags, 'a')", "to_string(n)"),
        *("people[?tags == ['a', 'b']].name", "people[?age != `30`]", "not_null(nothing, n)", "people[?!tags]", "*[0]"),
        *(
            "people[?age >= `30` && age < `40`].name",
            "map(&age, people)",
            "people[?name < age]",
            "people[0] == people[1]",
        ),
    ],
)
def test_bounded_evaluation_answers_what_jmespath_answers(expression: str) -> None:
    try:
        expected = jmespath.search(expression, DATA)
    except TypeError:
        with pytest.raises(QueryError):
            evaluate(compile_expression(expression), DATA, 1_000)
    else:
        assert evaluate(compile_expression(expression), DATA, 1_000) == expected


def test_no_time_at_all_is_a_limit() -> None:
    with pytest.raises(QueryLimitError, match="takes over 0 ms"):
        evaluate(compile_expression("[].[@][].[@][]"), list(range(1_000)), 0)


def test_every_function_looks_at_the_clock_first() -> None:
    for expression in ("sort(@)", "@[::2]", "[]"):
        with pytest.raises(QueryLimitError, match="takes over 0 ms"):
            evaluate(compile_expression(expression), [3, 1, 2], 0)


@pytest.mark.parametrize("function", ["sort(@)", "sort_by(@, &@)", "max(@)", "sum(@)", "join(',', @)", "avg(@)"])
def test_a_function_that_walks_through_a_list_is_given_no_longer_one_than_it_has_time_for(function: str) -> None:
    with pytest.raises(QueryLimitError, match="would work through more than"):
        evaluate(compile_expression(function), [1] * 500_001, 10_000)
    with pytest.raises(QueryLimitError, match="would work through more than"):
        evaluate(compile_expression(f"merge({', '.join(['@'] * 100)})"), dict.fromkeys(map(str, range(6_000))), 10_000)
    assert evaluate(compile_expression("length(@)"), [1] * 500_001, 10_000) == 500_001


def test_few_lists_that_mean_much_are_counted_as_written_out() -> None:
    value: list[object] = ["x"]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(QueryLimitError):
        check_size(value)
    with pytest.raises(QueryLimitError):
        as_text(value)
    check_size([["x"] * 1_000] * 100)
