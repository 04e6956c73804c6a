"""IGNORE NULLS, which some engines write behind the arguments of a function, some behind its call, some not at all."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import xql_ffi
from support.differences import central

X = [1.5, None, 0.5, None, -2.0]
CALLS = (
    "LAST_VALUE(x * x IGNORE NULLS) OVER (ORDER BY id)",
    "FIRST_VALUE(x * x IGNORE NULLS) OVER (ORDER BY id DESC)",
    "LAG(x * x, 1 IGNORE NULLS) OVER (ORDER BY id)",
    "LEAD(x * x, 2 IGNORE NULLS) OVER (ORDER BY id)",
    "NTH_VALUE(x * x, 2 IGNORE NULLS) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)",
    "LAST_VALUE(x * x RESPECT NULLS) OVER (ORDER BY id)",
)


@pytest.mark.parametrize("call", CALLS)
def test_by_rows_in_duckdb(call: str) -> None:
    connection = duckdb.connect(config={"threads": 1})
    connection.register("given", pa.table({"id": range(5), "x": pa.array(X, pa.float64())}))
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    loss = f"SELECT SUM(v * (id + 1)) AS l FROM (SELECT id, {call} AS v FROM t) AS q"
    found = xql_ffi.sql(connection, f"SELECT grad(({loss}), x) AS g FROM t ORDER BY id").fetchall()
    for row, (slope,) in enumerate(found):
        if X[row] is None:
            assert slope is None
            continue

        def moved(step: float, row: int = row) -> float:
            moved_table = f"(SELECT id, CASE WHEN id = {row} THEN x + {step!r} ELSE x END AS x FROM t) AS t"
            ((value,),) = connection.sql(loss.replace("FROM t)", f"FROM {moved_table})")).fetchall()
            return float(value)

        np.testing.assert_allclose(slope, central(moved), rtol=1e-7, atol=1e-9)


TABLES = {"t": pa.schema({"id": pa.int64(), "x": pa.float64()})}
SLOPE = "grad((SELECT SUM(x * x) FROM t), x) AS g"


@pytest.mark.parametrize(
    ("dialect", "given", "written"),
    [
        ("duckdb", "last_value(x IGNORE NULLS)", "last_value(rows_2.x IGNORE NULLS) OVER"),
        ("duckdb", "lag(x, 1, 0.5 IGNORE NULLS)", ", 1, 0.5e0 IGNORE NULLS) OVER"),
        ("duckdb", "nth_value(x, 2 RESPECT NULLS)", "nth_value(rows_2.x, 2) OVER"),
        ("bigquery", "last_value(x IGNORE NULLS)", "IGNORE NULLS) OVER"),
        ("spark", "last_value(x) IGNORE NULLS", ") IGNORE NULLS OVER"),
    ],
)
def test_beside_a_derivative(dialect: str, given: str, written: str) -> None:
    text = xql_ffi.expand_sql(f"SELECT id, {given} OVER (ORDER BY id) AS v, {SLOPE} FROM t", TABLES, dialect=dialect)
    assert written in " ".join(text.split())


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "polars"])
def test_refused_by_name(dialect: str) -> None:
    window = "last_value(x) IGNORE NULLS OVER (ORDER BY id ROWS UNBOUNDED PRECEDING)"
    with pytest.raises(xql_ffi.HostError, match="has no IGNORE NULLS"):
        xql_ffi.expand_sql(f"SELECT id, {window} AS v, {SLOPE} FROM t", TABLES, dialect=dialect)


def test_a_first_value_of_a_group() -> None:
    text = xql_ffi.expand_sql(
        "SELECT id, grad(first(x ORDER BY id) FILTER (WHERE x IS NOT NULL), x) AS g FROM t GROUP BY id, x",
        TABLES,
        dialect="duckdb",
    )
    assert "FILTER(WHERE" in text
