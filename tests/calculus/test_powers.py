"""Powers with a number as exponent, which derivatives write in other forms than `power`, at edges, to third order."""

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext
from numpy.typing import NDArray

from support.cases import query

EXPONENTS = [0.5, 1.5, 2.5, 7.5, -0.5, -1.5, 0.25, 0.7, 0.2857, 2 / 3, 0.002, 0.04, 0.14, 0.16, 0.94, 0.99, 1.4, 3.2]
WHOLE_EXPONENTS = [5, 6, 7, 11, 12, 16, 17, -3, -7]
# Ordinary values; and where the power, or what a form of it computes on the way, vanishes, is subnormal, or overflows.
POSITIVE = [0.3, 1.0, 2.0, 17.0, 1e-9, 1e9, 1e-30, 1e30, 1e-100, 1e100, 1e-160, 1e160, 1e-200, 1e200, 1e-300, 1e300]
EDGES = [5e-324, 1e-310, 2.3e-308, 1.7e308, math.inf, 0.0, -0.0]
OUTSIDE = [-1e-310, -0.5, -2.0, -1e200]
RELATIVE = 1e-12


def _derivative(x: float, exponent: float, order: int) -> float:
    """The derivative by its definition, in 50 digits."""
    factor = math.prod(exponent - k for k in range(order))
    if not factor or not math.isfinite(x) or x == 0:
        # A pole is approached from the right.
        return factor * float(np.power(np.float64(x if x else 0.0), exponent - order))
    if x < 0 and exponent != round(exponent):
        return math.nan
    with localcontext(Context(prec=50, Emin=-999_999, Emax=999_999)):
        return float(Decimal(factor) * Decimal(x) ** (Decimal(exponent) - order))


def _derivatives(x: NDArray[np.float64], exponent: float, order: int) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        return np.array([_derivative(float(value), exponent, order) for value in x])


def _found(
    ctx: SessionContext, data: pa.Array, exponent: float, order: int, *, nullable: bool = True
) -> pa.ChunkedArray:
    """The derivative in the engine."""
    call = f"power(x, {exponent!r})"
    for _ in range(order):
        call = f"grad({call}, x)"
    schema = pa.schema([pa.field("x", data.type, nullable)])
    ctx.deregister_table("p")
    ctx.register_record_batches("p", [[pa.RecordBatch.from_arrays([data], schema=schema)]])
    return query(ctx, f"SELECT CAST({call} AS DOUBLE) AS d FROM p")["d"]


def _wrong(found: NDArray[np.float64], expected: NDArray[np.float64], tiny: float) -> NDArray[np.bool_]:
    with np.errstate(all="ignore"):
        close = np.abs(found - expected) <= RELATIVE * np.abs(expected) + tiny
    # At a pole the sign of the infinity may be that of 0.
    same = (found == expected) | (np.isnan(found) & np.isnan(expected)) | (np.isinf(found) & np.isinf(expected))
    return np.asarray(~(same | (close & np.isfinite(expected))))


@pytest.fixture(scope="module")
def ctx(register: Callable[[SessionContext], SessionContext]) -> SessionContext:
    return register(SessionContext())


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("exponent", [*EXPONENTS, *WHOLE_EXPONENTS])
def test_at_edges(ctx: SessionContext, exponent: float, order: int) -> None:
    """Of single and double precision, with NULL and without."""
    anywhere = [*POSITIVE, *EDGES, *(OUTSIDE if exponent in WHOLE_EXPONENTS else [])]
    for dtype in (pa.float64(), pa.float32()):
        with np.errstate(all="ignore"):
            x = np.array(anywhere).astype(dtype.to_pandas_dtype()).astype(np.float64)
        expected = _derivatives(x, exponent, order)
        for nullable in (False, True):
            data = pa.array(x, dtype, mask=np.arange(len(x)) % 5 == 1 if nullable else None)
            found = _found(ctx, data, exponent, order, nullable=nullable)
            assert found.is_null().to_pylist() == data.is_null().to_pylist()
            compared = ~np.array(data.is_null())
            values = np.array(found.fill_null(0.5), dtype=float)
            # What is smaller than a normal number has fewer digits.
            wrong = compared & _wrong(values, expected, np.finfo(float).smallest_normal)
            assert not wrong.any(), [(x[i], values[i], expected[i]) for i in np.flatnonzero(wrong)]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("exponent", [0.5, 1.5, 2.5, 0.7, 2 / 3, 1.4, -0.5])
def test_outside_of_the_domain(ctx: SessionContext, exponent: float, order: int) -> None:
    """No number, as the function."""
    found = _found(ctx, pa.array([*OUTSIDE, math.nan], pa.float64()), exponent, order)
    assert all(math.isnan(value) for value in found.to_pylist()), found


def test_one_row_at_an_edge_leaves_the_others(ctx: SessionContext) -> None:
    """Rows of a batch in which only some are where a quotient is no number."""
    x = np.array([2.0, 0.0, math.inf, 3.0, math.nan, -1.0, 5.0])
    found = np.array(_found(ctx, pa.array(x), 0.7, 1))
    np.testing.assert_allclose(found, _derivatives(x, 0.7, 1), rtol=RELATIVE)
