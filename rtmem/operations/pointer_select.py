"""Asking a JSON value with JMESPath, within a bound of time and of what comes out.

JMESPath rather than JSONPath: it can also reshape and count (`{names: [].name}`, `length(@)`, `max_by(...)`), which
keeps answers short, models know it from the AWS command line, its library is kept by AWS, and all of its evaluation
passes through one method, which is where the bound is put.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final

import jmespath
import jmespath.exceptions
import jmespath.functions
import jmespath.parser
import jmespath.visitor
import orjson

from rtmem.errors import QueryError, QueryLimitError

EXPRESSION_CHARACTERS_MAX: Final = 1_000
_VISITS_PER_LOOK: Final = 16
_COSTLY_VISITS: Final = frozenset(("function_expression", "flatten", "slice"))  # each may walk through a whole list
_ORDERED: Final = (int, float, str)
ANSWER_CHARACTERS_MAX: Final = 1_000_000
_ELEMENTS_MAX: Final = 1_000_000  # of any one list on the way; a product of lists would fill the memory
# Of what these functions get: they look at every element before anybody can look at the clock. A sort does not even
# give the GIL up: 100,000 texts take it 40 ms.
_ARGUMENTS_MAX: Final = {
    **dict.fromkeys(("avg", "join", "max", "max_by", "merge", "min", "min_by", "sum"), 500_000),
    **dict.fromkeys(("sort", "sort_by"), 100_000),
}


class _BoundedFunctions(jmespath.functions.Functions):  # type: ignore[misc]
    """The functions whose work is not bounded by the length of one list: they look into, or multiply, what they get."""

    def call_function(self, function_name: str, resolved_args: list[Any]) -> Any:
        elements_max = _ARGUMENTS_MAX.get(function_name, sys.maxsize)
        if sum(len(argument) for argument in resolved_args if type(argument) in (list, dict)) > elements_max:
            raise QueryLimitError(
                f"{function_name}() would work through more than {elements_max:,} elements: filter them earlier"
            )
        return super().call_function(function_name, resolved_args)

    @jmespath.functions.signature({"types": []})  # type: ignore[untyped-decorator]
    def _func_to_string(self, value: Any) -> str:
        return value if type(value) is str else as_text(value)

    @jmespath.functions.signature({"types": ["array", "string"]}, {"types": []})  # type: ignore[untyped-decorator]
    def _func_contains(self, subject: Any, search: Any) -> bool:
        check_size(search)
        if type(subject) is list and type(search) in (list, dict):
            check_size(subject)
        return search in subject

    @jmespath.functions.signature({"types": ["string"]}, {"types": ["array-string"]})  # type: ignore[untyped-decorator]
    def _func_join(self, separator: str, texts: list[str]) -> str:
        if sum(map(len, texts)) + len(separator) * len(texts) > ANSWER_CHARACTERS_MAX:
            raise _too_much("joins")
        return separator.join(texts)


class _Bounded(jmespath.visitor.TreeInterpreter):  # type: ignore[misc]
    """Evaluates until its time is over. Each visit works through one list at most, and lists are bounded."""

    def __init__(self, compute_ms_max: int) -> None:
        super().__init__(jmespath.Options(custom_functions=_BoundedFunctions()))
        # Time at work: on a busy machine the same question has the same answer.
        self._deadline = time.thread_time() + compute_ms_max / 1000
        self._visits = 0
        self._compute_ms_max = compute_ms_max

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._visits += 1
        looks = self._visits % _VISITS_PER_LOOK == 0 or node["type"] in _COSTLY_VISITS
        if looks and time.thread_time() > self._deadline:
            raise QueryLimitError(
                f"the expression takes over {self._compute_ms_max} ms on this value: ask for less of it, or look at a "
                "part with slice"
            )
        return super().visit(node, *args, **kwargs)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if type(base) is not list:
            return None
        if sum(len(element) if type(element) is list else 1 for element in base) > _ELEMENTS_MAX:
            raise _too_much("flattens")
        return [part for element in base for part in (element if type(element) is list else (element,))]

    def visit_comparator(self, node: Any, value: Any) -> Any:
        left, right = (self.visit(child, value) for child in node["children"])
        compare = self.COMPARATOR_FUNC[node["value"]]
        if node["value"] in ("eq", "ne"):
            check_size(left)
            check_size(right)
            return compare(left, right)
        return compare(left, right) if type(left) in _ORDERED and type(right) in _ORDERED else None


def _too_much(what: str) -> QueryLimitError:
    return QueryLimitError(f"the expression {what} more than an answer may have: filter it earlier")


def check_size(value: Any) -> None:
    """Raise QueryLimitError for a value that is, written out, longer than an answer may be.

    Expressions such as `[@, @] | [@, @]` make few lists that mean exponentially much: it must be known before anything
    looks at all of it.
    """
    if type(value) not in (list, dict):
        return
    left, waiting = ANSWER_CHARACTERS_MAX, [value]
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if kind is str:
            left -= len(part)
        elif kind is list:
            left -= 2 * len(part)
            waiting += part
        elif kind is dict:
            left -= 4 * len(part) + sum(map(len, map(str, part)))  # a key may be a number
            waiting += part.values()
        left -= 1
        if left < 0:
            raise _too_much("makes")


def compile_expression(expression: str) -> Any:
    """An expression that can be evaluated. Raises QueryError."""
    if type(expression) is not str or not expression.strip():
        raise QueryError('select needs a JMESPath expression such as "results[0:5].title"')
    if len(expression) > EXPRESSION_CHARACTERS_MAX:
        raise QueryError(
            f"the expression has {len(expression)} characters, at most {EXPRESSION_CHARACTERS_MAX} are allowed"
        )
    try:
        return jmespath.parser.Parser().parse(expression).parsed
    except (jmespath.exceptions.JMESPathError, ValueError) as exc:
        raise QueryError(f"no JMESPath expression: {_told(exc)}") from exc
    except RecursionError as exc:
        raise QueryError("the expression is nested too deep") from exc


def evaluate(parsed: Any, value: Any, compute_ms_max: int) -> Any:
    """What `parsed` selects of `value`. Raises QueryError; QueryLimitError after `compute_ms_max`."""
    try:
        return _Bounded(compute_ms_max).visit(parsed, value)
    except QueryError:
        raise
    except jmespath.exceptions.JMESPathTypeError as exc:
        # Its own text would print the whole value.
        raise QueryError(
            f"{exc.function_name}() takes {' or '.join(exc.expected_types)}, and got {exc.actual_type}"
        ) from None
    except (jmespath.exceptions.JMESPathError, TypeError, ValueError, ArithmeticError) as exc:
        raise QueryError(f"the expression does not fit this value: {_told(exc)}") from None
    except RecursionError as exc:
        raise QueryError("the expression or the value is nested too deep") from exc


def _told(exc: Exception) -> str:
    return str(exc).partition("\n")[0][:300]


def as_text(value: Any) -> str:
    """What was selected, as JSON. Raises QueryError for what JSON cannot say, QueryLimitError for too much of it."""
    check_size(value)
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise QueryError(f"the expression selects something that is no JSON ({exc}): select a field of it") from exc
