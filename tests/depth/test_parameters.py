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


def rows(ctx: SessionContext, sql: str) -> list[float]:
    """The first column."""
    found: list[float] = next(iter(ctx.sql(sql).to_pydict().values()), [])
    return found


@pytest.mark.parametrize("types", ["", "(DOUBLE, BIGINT)"])
def test_prepared(ctx: SessionContext, types: str) -> None:
    select = "$1 * grad((SELECT l FROM loss), val) + $2 AS d"
    ctx.sql(f"PREPARE p{types} AS {statement(30, 'tanh(val) * $1', select)}").collect()
    for factor, added in [(1.0, 0), (-3.0, 2)]:
        np.testing.assert_allclose(rows(ctx, f"EXECUTE p({factor}, {added})"), SLOPE * factor**3 + added, rtol=1e-12)
    assert rows(ctx, "EXECUTE p(NULL, 1)") == [None] * 3
    with pytest.raises(Exception, match="expects 2 parameters, but 1 provided"):
        ctx.sql("EXECUTE p(1.0)").collect()
    with pytest.raises(Exception, match="already exists"):
        ctx.sql(f"PREPARE p AS {statement(5, 'val')}").collect()
    ctx.sql("DEALLOCATE p").collect()
    with pytest.raises(Exception, match="does not exist"):
        ctx.sql("EXECUTE p(1.0, 1)").collect()


@pytest.mark.parametrize("types", ["(DOUBLE, DOUBLE)", "()"])
def test_types_of_other_parameters(ctx: SessionContext, types: str) -> None:
    with pytest.raises(Exception, match=r"specifies 2 data types but query has 1|ParserError"):
        ctx.sql(f"PREPARE p{types} AS {statement(5, 'tanh(val) * $1')}").collect()


def test_values_of_many_types(ctx: SessionContext) -> None:
    select = "grad((SELECT l FROM loss), val) AS d, $2 AS day, $3 AS word, $4 AS price, $5 AS moment, $6 AS says"
    types = "INT, DATE, VARCHAR, DECIMAL(10, 2), TIMESTAMP, BOOLEAN"
    ctx.sql(f'PREPARE "P Q"({types}) AS {statement(5, "tanh(val) * $1", select)}').collect()
    values = "3, '2020-02-29', 'it''s', 3.5, '2021-01-01T12:00:00', false"
    table = ctx.sql(f'EXECUTE "P Q"({values})').to_arrow_table()
    np.testing.assert_allclose(table["d"].to_pylist(), 9 * SLOPE, rtol=1e-12)
    cast = "CAST('2020-02-29' AS DATE), 'it''s', CAST(3.5 AS DECIMAL(10, 2)), CAST('2021-01-01T12:00:00' AS TIMESTAMP)"
    (expected,) = ctx.sql(f"SELECT {cast}, false").to_arrow_table().to_pylist()
    assert list(table.to_pylist()[0].values())[1:] == list(expected.values())


def test_prepared_without_parameters(ctx: SessionContext) -> None:
    ctx.sql(f"PREPARE p AS {statement(5, 'tanh(val)')}").collect()
    ctx.sql("CREATE TABLE other (i BIGINT)").collect()
    np.testing.assert_allclose(rows(ctx, "EXECUTE p"), SLOPE, rtol=1e-12)


def test_rows_that_a_prepared_statement_inserts(ctx: SessionContext) -> None:
    ctx.sql("CREATE TABLE kept (d DOUBLE)").collect()
    ctx.sql(f"PREPARE p(DOUBLE) AS INSERT INTO kept {statement(5, 'tanh(val) * $1')}").collect()
    for factor in (1.0, 2.0):
        ctx.sql(f"EXECUTE p({factor})").collect()
    np.testing.assert_allclose(rows(ctx, "SELECT d FROM kept"), [*SLOPE, *4 * SLOPE], rtol=1e-12)


def test_an_insert_without_a_derivative_is_that_of_datafusion(ctx: SessionContext) -> None:
    """DataFusion 55 forgets what has been prepared where the session stops to keep lists of files."""
    ctx.sql("CREATE TABLE kept (d DOUBLE)").collect()
    ctx.sql("PREPARE first AS SELECT 7 AS n").collect()
    ctx.sql("PREPARE second(DOUBLE) AS INSERT INTO kept SELECT val * $1 FROM w").collect()
    ctx.sql("EXECUTE second(2.0)").collect()
    assert rows(ctx, "EXECUTE first") == [7]
    np.testing.assert_allclose(rows(ctx, "SELECT d FROM kept"), 2 * ROWS)


def test_values_of_a_condition_and_a_limit(ctx: SessionContext) -> None:
    sql = statement(5, "tanh(val)").replace("FROM w ORDER", "FROM w WHERE i >= $1 ORDER") + " LIMIT $2"
    ctx.sql(f"PREPARE p(BIGINT, BIGINT) AS {sql}").collect()
    np.testing.assert_allclose(rows(ctx, "EXECUTE p(1, 1)"), SLOPE[1:2], rtol=1e-12)
    np.testing.assert_allclose(rows(ctx, "EXECUTE p(0, 5)"), SLOPE, rtol=1e-12)
