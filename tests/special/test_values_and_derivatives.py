"""Special functions and their derivatives against mpmath, over their whole domains."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from special.oracle import SPECIAL, derivative
from xql_ffi._special import FUNCTIONS

INF, NAN = math.inf, math.nan


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    return xql_ffi.register(SessionContext(), functions=True)


def evaluated(
    ctx: SessionContext, points: tuple[tuple[float, ...], ...], *expressions: str
) -> list[list[float | None]]:
    """The values of expressions of ``x``, the last number of a point, and ``c``, the one before."""
    ctx.deregister_table("points")
    rows = {"row": range(len(points)), "c": [point[0] for point in points], "x": [point[-1] for point in points]}
    ctx.from_pydict({name: list(values) for name, values in rows.items()}, name="points")
    listed = ", ".join(f"{expression} AS e{number}" for number, expression in enumerate(expressions))
    return [
        column.to_pylist() for column in ctx.sql(f"SELECT {listed} FROM points ORDER BY row").to_arrow_table().columns
    ]


def test_all_are_compared() -> None:
    compared = {name.replace("(c, ", "(n, ") for name in SPECIAL}
    assert {name.replace("(x, y)", "(n, x)") for name in FUNCTIONS} == compared
    assert sum(len(special.points) for special in SPECIAL.values()) > 200


# Of values, and of derivatives.
RELATIVE = (1e-14, 2e-12)


def absolute(expected: float, order: int, point: tuple[float, ...]) -> float:
    """What is left of 0 where that is between greater numbers: by the last digits of these, or by the oracle."""
    if point[-1] in (0.0, 0.5):
        return 1e-30
    if abs(expected) < 1e-11:
        return 0.0
    # Between poles higher derivatives are sums of great numbers.
    return 1e-12 if order > 1 and point[-1] < 0 else 2e-15


@pytest.mark.parametrize("name", SPECIAL)
def test_against_40_digits(ctx: SessionContext, name: str) -> None:
    special = SPECIAL[name]
    expressions = [name]
    for _ in range(special.orders):
        expressions.append(f"grad({expressions[-1]}, x)")
    found = evaluated(ctx, special.points, *expressions)
    compared = 0
    for order, column in enumerate(found):
        for point, value in zip(special.points, column, strict=True):
            expected = derivative(name, order, point)
            assert value == pytest.approx(
                expected, rel=RELATIVE[min(order, 1)], abs=absolute(expected, order, point)
            ), f"{expressions[order]} at {point}"
            compared += 1
    assert compared == len(special.points) * (special.orders + 1)


# What is said of places without a number, or at the ends of domains: as in SciPy.
EDGES = {
    "log1p(x)": {-1.0: -INF, -2.0: NAN, INF: INF},
    "expm1(x)": {-INF: -1.0, INF: INF, 800.0: INF},
    "softplus(x)": {-INF: 0.0, INF: INF},
    "sigmoid(x)": {-INF: 0.0, INF: 1.0},
    "log_sigmoid(x)": {-INF: -INF, INF: 0.0},
    "logit(x)": {0.0: -INF, 1.0: INF, -0.5: NAN, 1.5: NAN},
    "erf(x)": {-INF: -1.0, INF: 1.0},
    "erfc(x)": {-INF: 2.0, INF: 0.0},
    "erfcx(x)": {-INF: INF, INF: 0.0, -30.0: INF},
    "erfinv(x)": {-1.0: -INF, 1.0: INF, 1.5: NAN, 0.0: 0.0},
    "erfcinv(x)": {0.0: INF, 2.0: -INF, -0.5: NAN, 2.5: NAN, 1.0: 0.0},
    "normal_pdf(x)": {-INF: 0.0, INF: 0.0, 1e200: 0.0},
    "normal_cdf(x)": {-INF: 0.0, INF: 1.0},
    "normal_quantile(x)": {0.0: -INF, 1.0: INF, -0.5: NAN, 1.5: NAN, 0.5: 0.0},
    "log_ndtr(x)": {-INF: -INF, INF: 0.0},
    "gamma(x)": {0.0: INF, -1.0: NAN, INF: INF, 180.0: INF},
    "lgamma(x)": {0.0: INF, -1.0: INF, INF: INF},
    "digamma(x)": {0.0: -INF, -1.0: NAN, INF: INF},
    "trigamma(x)": {0.0: INF, -1.0: INF, INF: 0.0},
    "logaddexp(0.0, x)": {-INF: 0.0, INF: INF},
    "logaddexp(x, x)": {-INF: -INF, INF: INF},
    "polygamma(2, x)": {-1.0: NAN, INF: 0.0},
    "polygamma(x, 1.0)": {0.5: NAN, -1.0: NAN},
    "ierfcx(1, x)": {-INF: INF, INF: 0.0},
    "ierfcx(x, 1.0)": {0.5: NAN, -1.0: NAN},
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(ctx: SessionContext, name: str) -> None:
    points = (*EDGES[name], NAN)
    (found,) = evaluated(ctx, tuple((point,) for point in points), name)
    expected = [*EDGES[name].values(), NAN]
    assert found == pytest.approx(expected, abs=0, rel=1e-15, nan_ok=True)


@pytest.mark.parametrize("signature", FUNCTIONS)
def test_names_of_one_function(ctx: SessionContext, signature: str) -> None:
    name, _, inputs = signature.replace("n, x", "2, x").replace("x, y", "x, 2 * x").partition("(")
    for other in FUNCTIONS[signature]:
        columns = evaluated(ctx, ((0.25,), (0.75,)), *(f"{f}({inputs}" for f in (name, other)))
        slopes = evaluated(ctx, ((0.25,), (0.75,)), *(f"grad({f}({inputs}, x)" for f in (name, other)))
        assert columns[0] == columns[1]
        assert slopes[0] == slopes[1]
        assert None not in slopes[0]


@pytest.mark.parametrize("signature", FUNCTIONS)
def test_null_and_other_types(ctx: SessionContext, signature: str) -> None:
    name = signature.partition("(")[0]
    first = {"(n,": "1, ", "(x,": "1.5, "}.get(signature[len(name) : len(name) + 3], "")
    typed = ("REAL", "DOUBLE", "BIGINT", "SMALLINT UNSIGNED", "DECIMAL(10, 2)")
    for source in typed:
        ctx.sql(
            f"CREATE OR REPLACE TABLE typed AS SELECT CAST(v AS {source}) AS x FROM (VALUES (1), (NULL)) AS t(v)"
        ).collect()
        made = ctx.sql(f"SELECT {name}({first}x) AS f, {name}({first}1.0) AS expected FROM typed").to_arrow_table()
        assert made.schema.field("f").type == pa.float64()
        value, expected = made["f"].to_pylist(), made["expected"][0].as_py()
        assert value == [expected, None]
    ctx.sql("CREATE OR REPLACE TABLE typed AS SELECT arrow_cast(1.0, 'Dictionary(Int32, Float64)') AS x").collect()
    assert ctx.sql(f"SELECT {name}({first}x) = {name}({first}1.0) AS same FROM typed").to_pydict()["same"] == [True]
    with pytest.raises(Exception, match=f"{name} takes numbers, not"):
        ctx.sql(f"SELECT {name}({first}'a')").collect()


def test_a_wrong_number_of_arguments(ctx: SessionContext) -> None:
    with pytest.raises(Exception, match="erf takes 1 argument, not 2"):
        ctx.sql("SELECT erf(1.0, 2.0)").collect()
