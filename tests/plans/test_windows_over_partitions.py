"""Derivatives of aggregates over whole partitions, of which one expression reads many windows.

DataFusion 54 plans an expression of six such windows without end, and takes all memory meanwhile.
"""

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext
from numpy.typing import NDArray

import xql_ffi
from support.compare import assert_close
from support.differences import central
from support.sessions import session

Column = NDArray[np.float64]

ROWS = 40
WINDOWS = {
    "partition": "PARTITION BY k",
    "ordered": "PARTITION BY k ORDER BY z ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
}
AGGREGATES = ["covar_samp", "corr", "regr_slope", "regr_intercept", "regr_r2", "regr_sxx", "regr_avgx"]
VALUE = "{}(sin(x * w), cos(y * w))"
FAR = "1000000000000000 FOLLOWING"


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    random = np.random.default_rng(7)
    columns = {name: random.uniform(0.2, 1.5, ROWS) for name in ("w", "x", "y", "z")}
    table = pa.table({"id": np.arange(ROWS), "k": np.arange(ROWS) % 4, **columns})
    made = session({"t": table}, config=SessionConfig().with_target_partitions(1))
    assert FAR in plan(made, "grad(corr(x * w, y) OVER (PARTITION BY k), w)"), "it would be planned without end"
    return made


def plan(ctx: SessionContext, value: str) -> str:
    return ctx.sql(f"SELECT {value} AS v FROM t").optimized_logical_plan().display_indent()


def column(ctx: SessionContext, value: str, table: str = "t") -> Column:
    """A column, beside the key of the partitions: without it DataFusion forgets the orderings."""
    found = ctx.sql(f"SELECT id, k, {value} AS v FROM {table} ORDER BY id").to_arrow_table()
    return np.asarray(found["v"], dtype=np.float64)


def moved(ctx: SessionContext, value: str, along: dict[str, str], rows: str) -> Column:
    """The difference quotient of a value where columns of some rows move along others."""
    others = ", ".join(name for name in ("id", "k", "w", "x", "y", "z") if name not in along)

    def at(step: float) -> Column:
        moves = [
            f"CASE WHEN {rows} THEN {name} + {step} * {by} ELSE {name} END AS {name}" for name, by in along.items()
        ]
        return column(ctx, value, f"(SELECT {others}, {', '.join(moves)} FROM t) AS t")

    return central(at)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", AGGREGATES)
def test_along_two_columns(ctx: SessionContext, name: str, window: str) -> None:
    value = f"{VALUE.format(name)} OVER ({WINDOWS[window]})"
    actual = column(ctx, f"jvp({value}, w, 0.7, x, z)")
    assert_close(actual, moved(ctx, value, {"w": "0.7", "x": "z"}, "TRUE"), value, rtol=1e-8)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", AGGREGATES)
def test_by_the_cell_of_a_row(ctx: SessionContext, name: str, window: str) -> None:
    value = f"{VALUE.format(name)} OVER ({WINDOWS[window]})"
    actual = column(ctx, f"grad({value}, w)")
    wanted = [moved(ctx, value, {"w": "1.0"}, f"id = {row}")[row] for row in range(0, ROWS, 7)]
    assert_close(actual[::7], wanted, value, rtol=1e-8)


def test_second_derivatives(ctx: SessionContext) -> None:
    value = f"{VALUE.format('corr')} OVER (PARTITION BY k)"
    first, by_cell = f"jvp({value}, w, 1.0)", f"grad({value}, w)"
    wanted = moved(ctx, first, {"w": "1.0"}, "TRUE")
    assert_close(column(ctx, f"jvp({first}, w, 1.0)"), wanted, first, rtol=1e-8)
    cells = [moved(ctx, by_cell, {"w": "1.0"}, f"id = {row}")[row] for row in range(0, ROWS, 7)]
    assert_close(column(ctx, f"grad({by_cell}, w)")[::7], cells, by_cell, rtol=1e-8)


def test_several_aggregates(ctx: SessionContext) -> None:
    """DataFusion orders rows by the counts that these are divided by, over any frame that begins with the partition."""
    names = [f"stddev(CASE WHEN x > {bound} THEN w * x END) OVER (PARTITION BY k)" for bound in (0.1, 0.3, 0.5)]
    actual = column(ctx, f"grad({' + '.join(names)}, w)")
    first, second, third = (column(ctx, f"grad({name}, w)") for name in names)
    assert_close(actual, first + second + third, "a sum")


def test_few_windows_stay_as_they_are(ctx: SessionContext) -> None:
    assert FAR not in plan(ctx, "grad(sum(x * w) OVER (PARTITION BY k), w)")
    assert FAR not in plan(ctx, "jvp(corr(x * w, y) OVER (), w, 1.0)")
    assert FAR not in plan(ctx, "corr(x * w, y) OVER (PARTITION BY k) + grad(w, w)")


def test_the_text_is_differentiated_like_the_statement(ctx: SessionContext) -> None:
    value = f"{VALUE.format('corr')} OVER (PARTITION BY k)"
    statement = f"SELECT id, k, w, grad({value}, w) AS v FROM t"
    text = xql_ffi.expand_sql(statement, ctx)
    assert FAR in text
    actual, wanted = (column(ctx, "grad(v, w)", f"({inner}) AS q") for inner in (text, statement))
    assert_close(actual, wanted, text, rtol=1e-9)
    for dialect in ("duckdb", "postgres", "spark"):
        assert FAR not in xql_ffi.expand_sql(statement, ctx, dialect=dialect)
