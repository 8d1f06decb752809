from __future__ import annotations

import pytest

from rtmem.agent.demo.arithmetic import ArithmeticRefusedError, evaluate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 2 * 10", "22"),
        ("(2 + 3) * 4.5", "22.5"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 3", "0.333333333333"),
        ("-7 // 2", "-4"),
        ("-1/8", "-0.125"),
        ("2^10", "1024"),
        ("6 × 7 ÷ 2", "21"),
        ("17 % 5", "2"),
        ("2**-2", "0.25"),
        ("(-1)**100000000001", "-1"),
        ("1e3 + 1", "1001"),
    ],
)
def test_evaluate_is_exact(expression: str, value: str) -> None:
    assert evaluate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "2 +",
        "1/0",
        "0**-1",
        "__import__('os')",
        "x + 1",
        "True + 1",
        "'a' * 3",
        "(1).bit_length()",
        "1,000 + 1",
        "2**0.5",
        "9**9**9",
        "2**2**2**2**2**2",
        "1e999999999",
        "9" * 201,
        "(" * 190,
    ],
)
def test_evaluate_refuses_what_is_not_small_arithmetic(expression: str) -> None:
    with pytest.raises(ArithmeticRefusedError):
        evaluate(expression)
