"""Comparison of query results."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Rows = Sequence[Sequence[object]]


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows of `table` as Python values."""
    columns = [column.to_pylist() for column in table.columns]
    return list(zip(*columns, strict=True)) if columns else []


def same_value(left: object, right: object, rel: float, abs_: float) -> bool:
    """Floats up to tolerance, with NaN equal to NaN; lists and structs element by element; all else exactly."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=rel, abs_tol=abs_)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same_value(a, b, rel, abs_) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[key], right[key], rel, abs_) for key in left)
    return type(left) is type(right) and left == right


def assert_same_rows(actual: Rows, expected: Rows, *, rel: float = 1e-12, abs_: float = 1e-14) -> None:
    """Asserts that both have the same rows in the same order, and shows the first that differ."""
    assert len(actual) == len(expected), f"{len(actual)} rows instead of {len(expected)}: {actual}"
    for number, (left, right) in enumerate(zip(actual, expected, strict=True)):
        same = len(left) == len(right) and all(same_value(a, b, rel, abs_) for a, b in zip(left, right, strict=True))
        assert same, f"row {number} is {tuple(left)} instead of {tuple(right)}"


def assert_close(actual: NDArray[np.float64], expected: Any, what: str, *, rtol: float = 1e-8) -> None:
    """Asserts equality up to rounding, relative to the largest of the values, NaN and infinities in the same places."""
    wanted = np.asarray(expected, dtype=np.float64)
    finite = np.abs(wanted[np.isfinite(wanted)])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=rtol * scale, err_msg=what)
