"""Exact arithmetic on text that strangers typed: no eval, no names, no calls, every result bounded."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from fractions import Fraction
from math import inf
from typing import Final

EXPRESSION_CHARS_MAX: Final = 200
RESULT_BITS_MAX: Final = 4_096  # 9**9**9 must not keep a core busy
DECIMAL_PLACES: Final = 12

_SPELLINGS: Final = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "⇧"})

_OPERATORS: Final[dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: Fraction(a // b),
    ast.Mod: lambda a, b: a % b,
}


class ArithmeticRefusedError(ValueError):
    """The text is not arithmetic, or its result would be too large. The message may be shown to a user."""


def evaluate(expression: str) -> str:
    """The value of `expression`, exact where it has at most 12 decimal places, rounded to those otherwise.

    Raises:
        ArithmeticRefusedError: not arithmetic, division by zero, or too large.
    """
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise ArithmeticRefusedError(f"an expression may have {EXPRESSION_CHARS_MAX} characters at most")
    if re.search(r"\d,\d", expression):
        # "1,000" is a thousand to some readers and one to others.
        raise ArithmeticRefusedError("write decimals with a point and thousands without separators")
    source = expression.translate(_SPELLINGS).replace("⇧", "**").strip()
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ArithmeticRefusedError(f"{expression.strip()!r} is not arithmetic") from None
    return _format(_value(tree.body))


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return _bounded(Fraction(number))
        case ast.Constant(value=float() as number) if number < inf:
            return _bounded(Fraction(str(number)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left), _value(right))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            first, second = _value(left), _value(right)
            try:
                return _bounded(_OPERATORS[type(operator)](first, second))
            except ZeroDivisionError:
                raise ArithmeticRefusedError("division by zero has no result") from None
        case _:
            raise ArithmeticRefusedError("only numbers, + - * / // % ** and parentheses are understood")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ArithmeticRefusedError("only whole exponents are understood")
    if base == 0 and exponent < 0:
        raise ArithmeticRefusedError("division by zero has no result")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * abs(exponent.numerator) > RESULT_BITS_MAX:
        raise ArithmeticRefusedError("the result is too large")
    # A base of one bit (0, 1, -1) stays small, but Python would still walk a huge exponent's bits: keep the parity.
    whole = exponent.numerator if bits > 1 or base == 0 else exponent.numerator % 2
    return Fraction(base**whole)


def _bounded(number: Fraction) -> Fraction:
    if max(number.numerator.bit_length(), number.denominator.bit_length()) > RESULT_BITS_MAX:
        raise ArithmeticRefusedError("the result is too large")
    return number


def _format(number: Fraction) -> str:
    if number.denominator == 1:
        return str(number.numerator)
    # Scaling by hand keeps exact decimals exact; a float would turn 0.1 + 0.2 into 0.30000000000000004.
    scaled = round(abs(number) * 10**DECIMAL_PLACES)
    whole, rest = divmod(scaled, 10**DECIMAL_PLACES)
    digits = f"{rest:0{DECIMAL_PLACES}d}".rstrip("0")
    sign = "-" if number < 0 else ""
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"
