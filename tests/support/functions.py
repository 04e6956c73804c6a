"""Scalar functions in Python."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from datafusion import ScalarUDF, udf


def scalar(
    name: str,
    function: Callable[..., object],
    *,
    takes: Sequence[pa.DataType] = (pa.float64(),),
    gives: pa.DataType | None = None,
    volatility: str = "immutable",
) -> ScalarUDF:
    """`function`, called for each row without NULLs; NULL for the others."""
    given = gives or pa.float64()

    def of_columns(*columns: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], given)

    return udf(of_columns, list(takes), given, volatility, name)
