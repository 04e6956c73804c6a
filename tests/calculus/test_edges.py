"""Derivatives where a careless formula is NaN or infinite on the way, by 0 times infinity or squares that overflow."""

import math
from collections.abc import Callable

import pyarrow as pa
import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of

EDGES = [
    # y / (y * y + x * x), with no division of a cotangent by squares that vanish.
    ("sin(atan2(0.0 * y, y))", -1e-160, 0.0),
    ("sin(atan2(y, 1e-150))", 1e-170, 1e150),
    ("sqrt(greatest(y, 0.0))", -1.0, 0.0),
    # Not 0 times infinity, though a factor stands between the choices.
    ("sqrt(greatest(greatest(y, 0) * 2, 0))", -1.0, 0.0),
    ("sqrt(greatest(greatest(y, 0) / -3, 0))", -1.0, 0.0),
    ("1 / greatest(tanh(greatest(0, y)), 0)", -1.0, 0.0),
    ("sqrt(CASE WHEN 2 * greatest(y, 0) >= 0 THEN 2 * greatest(y, 0) ELSE 0.0 END)", -1.0, 0.0),
    ("sqrt(greatest(exp(greatest(y, -5.0)) - 1, 0))", -1.0, 0.0),
    ("sqrt(greatest(y, 2 * greatest(y, 0)))", -2.0, 0.0),
    ("sqrt(greatest(y, exp(zero) * greatest(y, 0)))", -2.0, 0.0),
    ("sqrt(CASE WHEN exp(greatest(y, -5.0)) > 1 THEN exp(greatest(y, -5.0)) - 1 ELSE 0.0 END)", -1.0, 0.0),
    # Nor infinity times 0.
    ("greatest(sqrt(abs(greatest(y, 0))), 1.0)", 0.0, 0.0),
    ("greatest(cbrt(greatest(y, 0)), 1.0)", 0.0, 0.0),
    ("greatest(y, 0) / least(zero, 5.0)", -1.0, 0.0),
    ("greatest(y, 0) / sinh(zero)", -1.0, 0.0),
    ("greatest(y, 0) / (1 + (-exp(zero)))", -1.0, 0.0),
    ("greatest(y, 0) * 1e400", -1.0, 0.0),
    ("greatest(y, 0) / (minus + 1)", -1.0, 0.0),
    ("CASE WHEN y > 0 THEN ln(y) ELSE 0.0 END", 0.0, 0.0),
    ("power(y, 2)", 0.0, 0.0),
    # Not an error, though DataFusion refuses 0 to a negative power: 1 - y is 1 here, and y * y is 0.
    ("grad(power(power(y, 2), y), y)", 1e-300, math.nan),
    ("abs(y)", 0.0, 0.0),
    ("tanh(y)", 1e160, 0.0),
    ("exp(-y * y)", 1e160, 0.0),
    ("sqrt(1 + y * y)", 1e150, 1.0),
    # The sign of the infinity is that of 0.
    ("acosh(-y)", -1.0, -math.inf),
    # Not by a division by y.
    ("grad(grad(atan(y * 3), y), y)", 0.0, -54.0),
    ("grad(grad(atan(asin(tanh(y))), y), y)", 0.0, -3.0),
    # Not as the difference of 1 + y and 1 - y.
    ("grad(grad(asin(y * y), y), y)", 1e-5, 2e-14),
    # Not by the square of y, which has lost half of the digits.
    ("acosh(y)", 1 + 2**-40, (2**-40 * (2 + 2**-40)) ** -0.5),
    ("atanh(y)", 1 - 2**-30, 1 / (2**-30 * (2 - 2**-30))),
    ("asin(y)", 2**-30 - 1, (2**-30 * (2 - 2**-30)) ** -0.5),
    ("acos(y)", 1 - 2**-30, -((2**-30 * (2 - 2**-30)) ** -0.5)),
    # Not 0, though the square of y overflows.
    ("asinh(y) * 1e155", 1e160, 1e-5),
    ("asinh(y) * 1e155", -1e160, 1e-5),
    ("asinh(y) * 1e308", 1.5e308, 1 / 1.5),
    ("asinh(y)", 1e9, 1e-9),
    ("asinh(y) * 1e12", 1e11, 10.0),
    ("asinh(y)", math.inf, 0.0),
    ("asinh(y)", -0.0, 1.0),
    ("asinh(y)", math.nan, math.nan),
    ("acosh(y) * 1e155", 1e160, 1e-5),
    ("acosh(y) * 1e308", 1.5e308, 1 / 1.5),
    ("acosh(y)", math.inf, 0.0),
    # -x / sqrt(1 + x^2)^3, and the same with a minus.
    ("grad(asinh(y) * 1e24, y)", 1e12, -1.0),
    ("grad(asinh(y) * 1e240, y)", -1e120, 1.0),
    ("grad(asinh(y), y)", 0.0, 0.0),
    ("grad(acosh(y) * 1e200, y)", 1e100, -1.0),
    # Where the function is no number its derivative is none.
    ("acosh(y)", -2.0, math.nan),
    ("acosh(y)", 0.5, math.nan),
    ("asin(y)", 2.0, math.nan),
    ("power(y, 1.5)", -2.0, math.nan),
    ("power(y, 0.7)", -2.0, math.nan),
    # Numbers whose product is 0 or infinite without the other factors.
    ("(1e-200 * y) * (1e-200 * exp(y))", 700.0, 701e-200 * (1e-200 * math.exp(700))),
    ("(1e200 * y) * (1e200 * exp(y))", -700.0, -699e200 * (1e200 * math.exp(-700))),
    ("(1e-200 * y) / (1e200 * exp(-y))", 700.0, 701e-200 * (1e-200 * math.exp(700))),
    ("1e-200 * y * (1e-200 / exp(-y)) + 1e-200 * (1e-200 / exp(-y))", 700.0, 702e-200 * (1e-200 * math.exp(700))),
    # What is infinite is not close to 1.
    ("1e200 * sin(y) + 1e-200 * cos(y)", 2.0, 1e200 * math.cos(2)),
    # A difference times a sum is one of squares only if both are of the same.
    ("(y - 3) * (y + 2)", 0.75, 0.5),
    ("(exp(y) - 1) * (exp(y) + 2)", 0.75, (2 * math.exp(0.75) + 1) * math.exp(0.75)),
    # Exponents that are close are not the same.
    ("power(y, 1.5) / power(y, 1.5005)", 2.0, -0.0005 * 2**-1.0005),
    # The first on a tie, which -0 and 0 are not in DataFusion 54.
    ("greatest(y, 0.0)", 0.0, 1.0),
    ("greatest(y, 0.0)", -0.0, 0.0),
    ("greatest(0.0, y)", 0.0, 0.0),
    ("greatest(0.0, y)", math.nan, 1.0),
    ("least(y, 0.0)", math.nan, 0.0),
    ("least(0.0, y)", 0.0, 0.0),
    ("least(y, 0.0)", -math.inf, 1.0),
]


@pytest.mark.parametrize(("formula", "y", "expected"), EDGES)
def test_edge(register: Callable[[SessionContext], SessionContext], formula: str, y: float, expected: float) -> None:
    ctx = register(SessionContext())
    ctx.register_record_batches("t", [[pa.RecordBatch.from_pydict({"y": [y], "zero": [0.0], "minus": [-1.0]})]])
    found = query(ctx, f"SELECT grad({formula}, y) AS d FROM t")
    assert_same_rows(rows_of(found), [(expected,)])


def test_a_branch_without_the_variable(register: Callable[[SessionContext], SessionContext]) -> None:
    """It has the derivative 0 where it is a number, also times infinity."""
    ctx = register(SessionContext())
    ctx.from_pydict({"x": [0.0, 0.0, 4.0], "z": [0.0, None, None]}, name="t")
    found = query(ctx, "SELECT grad(sqrt(CASE WHEN x > 1 THEN x ELSE z END), x) AS d FROM t")
    assert_same_rows(rows_of(found), [(0.0,), (None,), (0.25,)])


def test_a_divisor_between_choices(register: Callable[[SessionContext], SessionContext]) -> None:
    """Where both are taken this is sqrt(x / 2), with the derivative 1 / (2 * sqrt(2 * x))."""
    ctx = register(SessionContext())
    ctx.from_pydict({"x": [2.0, -1.0], "z": [1.0, 1.0]}, name="t")
    found = query(ctx, "SELECT grad(sqrt(greatest(greatest(x, 0) / (1 + z * z), 0)), x) AS d FROM t")
    assert_same_rows(rows_of(found), [(0.25,), (0.0,)])


@pytest.mark.parametrize("read", ["p", "(SELECT *, {f} AS f FROM p) AS q"])
def test_a_branch_that_is_an_error_elsewhere(register: Callable[[SessionContext], SessionContext], read: str) -> None:
    """DataFusion refuses 0 to a negative power. What several derivatives share of a branch stays in the branch."""
    ctx = register(SessionContext())
    rows = {"x": [0.0, 2.0], "y": [-1.0, -1.0], "z": [2.0, 3.0]}
    ctx.register_record_batches("p", [[pa.RecordBatch.from_pydict(rows)]])
    f = "CASE WHEN x > 0 THEN sin(power(x, y)) * exp(power(x, y)) * cos(power(x, y)) ELSE z * z END"
    call = "f" if "{f}" in read else f
    calls = ", ".join(f"grad({call}, {variable})" for variable in "xyz")
    found = query(ctx, f"SELECT {call}, {calls} FROM {read.format(f=f)} ORDER BY x")
    # The power p is 1/2 in the second row, and what is computed of it is sin(2 * p) / 2 * exp(p).
    value, by_power = math.sin(1) / 2 * math.exp(0.5), (math.cos(1) + math.sin(1) / 2) * math.exp(0.5)
    second = (value, by_power * -0.25, by_power * 0.5 * math.log(2), 0.0)
    assert_same_rows(rows_of(found), [(4.0, 0.0, 0.0, 4.0), second])
