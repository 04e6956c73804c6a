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
    ("CASE WHEN y > 0 THEN ln(y) ELSE 0.0 END", 0.0, 0.0),
    ("power(y, 2)", 0.0, 0.0),
    # Not an error, though DataFusion refuses 0 to a negative power: 1 - y is 1 here, and y * y is 0.
    ("grad(power(power(y, 2), y), y)", 1e-300, math.nan),
    ("abs(y)", 0.0, 0.0),
    ("tanh(y)", 1e160, 0.0),
    ("exp(-y * y)", 1e160, 0.0),
    ("sqrt(1 + y * y)", 1e150, 1.0),
    # Not by the square of y, which has lost half of the digits.
    # The sign of the infinity is that of 0.
    ("acosh(-y)", -1.0, -math.inf),
    # Not by a division by y.
    ("grad(grad(atan(y * 3), y), y)", 0.0, -54.0),
    ("grad(grad(atan(asin(tanh(y))), y), y)", 0.0, -3.0),
    # Not as the difference of 1 + y and 1 - y.
    ("grad(grad(asin(y * y), y), y)", 1e-5, 2e-14),
    ("acosh(y)", 1 + 2**-40, (2**-40 * (2 + 2**-40)) ** -0.5),
]


@pytest.mark.parametrize(("formula", "y", "expected"), EDGES)
def test_edge(register: Callable[[SessionContext], SessionContext], formula: str, y: float, expected: float) -> None:
    ctx = register(SessionContext())
    ctx.register_record_batches("t", [[pa.RecordBatch.from_pydict({"y": [y]})]])
    found = query(ctx, f"SELECT grad({formula}, y) AS d FROM t")
    assert_same_rows(rows_of(found), [(expected,)])
