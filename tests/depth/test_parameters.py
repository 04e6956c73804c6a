"""Values of parameters in statements whose CTEs several places read."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support.ctes import with_ctes
from support.sessions import session

ROWS = np.array([0.5, -1.0, 2.0])
SLOPE = 2 * np.tanh(ROWS) * (1 - np.tanh(ROWS) ** 2)


@pytest.fixture
def ctx() -> SessionContext:
    return session({"w": {"i": [0, 1, 2], "val": ROWS}})


def statement(depth: int, first: str, select: str = "grad((SELECT l FROM loss), val) AS d") -> str:
    """CTEs of which each reads the one before twice."""
    chain = {"c0": f"SELECT i, {first} AS val FROM w"}
    for n in range(depth):
        chain[f"c{n + 1}"] = f"SELECT a.i, (a.val + b.val) / 2 AS val FROM c{n} a JOIN c{n} b ON a.i = b.i"
    chain["loss"] = f"SELECT SUM(val * val) AS l FROM c{depth}"
    return with_ctes(f"SELECT {select} FROM w ORDER BY i", chain)


def test_planning_is_linear(ctx: SessionContext) -> None:
    begun = time.process_time()
    for factor in (1.0, -3.0):
        found = ctx.sql(statement(30, "tanh(val) * $factor"), param_values={"factor": factor}).to_pydict()["d"]
        np.testing.assert_allclose(found, SLOPE * factor**2, rtol=1e-12)
    # Written out, it would have 2^30 nodes.
    assert time.process_time() - begun < 60


@pytest.mark.parametrize("value", [3, 3.0, pa.scalar(3, pa.int16()), pa.scalar(3.0, pa.float32())], ids=str)
def test_values_of_other_types(ctx: SessionContext, value: Any) -> None:
    found = ctx.sql(statement(5, "tanh(val) * $factor"), param_values={"factor": value}).to_pydict()["d"]
    np.testing.assert_allclose(found, 9 * SLOPE, rtol=1e-12)


def test_a_value_that_is_null(ctx: SessionContext) -> None:
    found = ctx.sql(statement(5, "tanh(val) * $factor"), param_values={"factor": None}).to_pydict()
    assert found == {"d": [None] * 3}


def test_several_values_at_several_levels(ctx: SessionContext) -> None:
    sql = statement(5, "tanh(val) * $a", "$b * grad($a * (SELECT l FROM loss), val) AS d")
    found = ctx.sql(sql, param_values={"a": 2.0, "b": 5.0}).to_pydict()["d"]
    np.testing.assert_allclose(found, 40 * SLOPE, rtol=1e-12)


@pytest.mark.parametrize("values", [{}, {"other": 1.0}], ids=str)
def test_a_value_that_is_missing(ctx: SessionContext, values: dict[str, float]) -> None:
    with pytest.raises(Exception, match=r"[Pp]laceholder"):
        ctx.sql(statement(5, "tanh(val) * $factor"), param_values=values).collect()


def test_a_value_that_fits_no_number(ctx: SessionContext) -> None:
    with pytest.raises(Exception, match="Utf8"):
        ctx.sql(statement(5, "tanh(val) * $factor"), param_values={"factor": "three"}).collect()


def test_a_fraction_for_a_whole_number(ctx: SessionContext) -> None:
    """It is right, or refused: the CTE is planned for the type of the column."""
    sql = statement(5, "tanh(val) + i * $factor")
    values = np.tanh(ROWS) + 0.5 * np.arange(3)
    try:
        found = ctx.sql(sql, param_values={"factor": 0.5}).to_pydict()["d"]
    except Exception as error:
        if "CAST($factor AS Float64)" not in str(error):
            raise
    else:
        np.testing.assert_allclose(found, 2 * values * (1 - np.tanh(ROWS) ** 2), rtol=1e-12)


@pytest.mark.parametrize("depth", [1, 5])
def test_rows_of_the_statement_itself_are_refused_or_right(depth: int) -> None:
    """DataFusion makes VALUES anew for each reader where it puts values in."""
    rows = "w AS (SELECT i, val FROM (VALUES (0, 0.5), (1, -1.0), (2, 2.0)) AS rows(i, val))"
    sql = statement(depth, "tanh(val) * $factor").replace("WITH ", f"WITH {rows}, ")
    try:
        found = session().sql(sql, param_values={"factor": 2.0}).to_pydict()["d"]
    except xql_ffi.UnsupportedRelationError as error:
        if "Keep the rows in a table" not in str(error):
            raise
    else:
        np.testing.assert_allclose(found, 4 * SLOPE, rtol=1e-12)
