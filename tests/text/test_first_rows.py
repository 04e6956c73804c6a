"""The first rows of a recursive query have the types that DuckDB gives them, and derivatives are of what that gives."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import xql_ffi
from support.differences import central

RECURSION = """
    WITH RECURSIVE r AS (
        {first}
        UNION ALL
        SELECT step + 1, id, val * d FROM r CROSS JOIN par WHERE step < 2)"""
FIRST = "SELECT 0 AS step, id, {value} AS val FROM t"
LOSS = ", loss AS (SELECT SUM(val) AS l FROM r)"

# Decimals by themselves, of expressions of every kind.
DECIMALS = (
    *("0.2", "CASE WHEN id = 0 THEN 0.2 ELSE 0.3 END", "0.2 + id * 0.0", "coalesce(0.2, id)", "amt * 1.05"),
    *("abs(-0.5)", "sum(amt) OVER ()", "round(amt, 1)"),
)
FLOATS = ("x * 0.5", "amt / 2", "CAST(id * 0.5 AS DOUBLE)", "avg(amt) OVER ()", "power(id, 0.5)")


@pytest.fixture(scope="module")
def connection() -> Any:
    made = duckdb.connect(config={"threads": 1})
    made.execute("""
        CREATE TABLE t AS SELECT i AS id, i * 0.5::DOUBLE AS x, (i * 1.05)::DECIMAL(10, 2) AS amt FROM range(4) AS r(i);
        CREATE TABLE par AS SELECT 0.55::DOUBLE AS d""")
    return made


def _differences(connection: Any, query: str) -> float:
    """The derivative of a value by the only row of `par`."""

    def moved(step: float) -> Any:
        connection.execute(f"UPDATE par SET d = 0.55 + {step!r}")
        return connection.sql(query).fetchall()[0][0]

    try:
        return float(central(moved))
    finally:
        connection.execute("UPDATE par SET d = 0.55")


@pytest.mark.parametrize("value", DECIMALS)
def test_decimals_are_refused(value: str, connection: Any) -> None:
    """DuckDB rounds each step to the digits of the first rows, so that the value is a step function."""
    recursion = RECURSION.format(first=FIRST.format(value=value))
    ((kind,),) = connection.sql(f"{recursion} SELECT typeof(val) FROM r LIMIT 1").fetchall()
    assert kind.startswith("DECIMAL")
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"Decimal128.*CAST\(\.\.\. AS DOUBLE\)"):
        xql_ffi.expand_sql(f"{recursion}{LOSS} SELECT grad((SELECT l FROM loss), d) FROM par", connection)
    # What does not vary may stand beside a derivative, as what it is.
    beside = (
        f"{recursion} SELECT step, r.id, val, grad((SELECT SUM(x * x) FROM t), x) AS g FROM r JOIN t ON t.id = r.id"
    )
    found = sorted(xql_ffi.sql(connection, beside).fetchall())
    values = sorted(connection.sql(f"{recursion} SELECT step, id, val FROM r").fetchall())
    assert [row[:3] for row in found] == values
    assert [row[3] for row in found] == [float(row[1]) for row in values]


@pytest.mark.parametrize("value", FLOATS)
def test_floats_are_right(value: str, connection: Any) -> None:
    recursion = RECURSION.format(first=FIRST.format(value=value)) + LOSS
    ((found,),) = xql_ffi.sql(connection, f"{recursion} SELECT grad((SELECT l FROM loss), d) FROM par").fetchall()
    np.testing.assert_allclose(found, _differences(connection, f"{recursion} SELECT l FROM loss"), rtol=1e-7)


def test_an_integer_that_datafusion_takes_for_a_float(connection: Any) -> None:
    """DuckDB's `sign` gives an integer, to which each step is rounded, so that nothing varies: it is refused."""
    recursion = RECURSION.format(first=FIRST.format(value="sign(x)")) + LOSS
    assert _differences(connection, f"{recursion} SELECT l FROM loss") == 0
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"r: its column val is Int8.* each step is rounded"):
        xql_ffi.expand_sql(f"{recursion} SELECT grad((SELECT l FROM loss), d) FROM par", connection)


PLACES = {
    "several branches": f"({FIRST.format(value='x')} UNION ALL SELECT 0, id, 0.5 + id FROM t)",
    "a column of another query": "SELECT 0 AS step, id, val FROM (SELECT id, id * 0.5 AS val FROM t) AS q",
    "rows that are written down": "SELECT a AS step, b AS id, c AS val FROM (VALUES (0, 1, abs(-0.5))) AS q(a, b, c)",
}


@pytest.mark.parametrize("name", PLACES)
def test_wherever_it_is_computed(name: str, connection: Any) -> None:
    recursion = RECURSION.format(first=PLACES[name]).replace("r AS", "r(step, id, val) AS", 1)
    ((kind,),) = connection.sql(f"{recursion} SELECT any_value(typeof(val)) FROM r").fetchall()
    text = f"{recursion}{LOSS} SELECT grad((SELECT l FROM loss), d) FROM par"
    if kind == "DOUBLE":
        ((found,),) = xql_ffi.sql(connection, text).fetchall()
        np.testing.assert_allclose(found, _differences(connection, f"{recursion}{LOSS} SELECT l FROM loss"), rtol=1e-7)
        return
    with pytest.raises(xql_ffi.UnsupportedRelationError, match="Decimal128"):
        xql_ffi.expand_sql(text, connection)


def test_a_star_that_hides_it_is_refused(connection: Any) -> None:
    first = "SELECT * FROM (SELECT 0 AS step, id, id * 0.5 AS val FROM t) AS q"
    with pytest.raises(
        xql_ffi.HostError, match=r"column 3 of the first rows of r is DECIMAL\(21,1\).*write the columns"
    ):
        xql_ffi.expand_sql(
            f"{RECURSION.format(first=first)}{LOSS} SELECT grad((SELECT l FROM loss), d) FROM par", connection
        )


def test_in_a_view(connection: Any) -> None:
    recursion = RECURSION.format(first=FIRST.format(value="id * 0.5"))
    connection.execute(f"CREATE OR REPLACE VIEW steps AS {recursion} SELECT * FROM r")
    with pytest.raises(xql_ffi.UnsupportedRelationError, match="Decimal128"):
        xql_ffi.expand_sql("SELECT grad((SELECT SUM(val) FROM steps), d) FROM par", connection)


SCHEMAS = {
    "t": pa.schema({"id": pa.int64(), "x": pa.float64(), "amt": pa.decimal128(10, 2)}),
    "par": pa.schema({"d": pa.float64()}),
}


@pytest.mark.parametrize(
    ("dialect", "value"),
    [
        *[("duckdb", value) for value in ("CASE WHEN id = 0 THEN 0.2 ELSE 0.3 END", "id * 0.5", "amt * 1.05")],
        *[("postgres", "coalesce(0.2, id)"), ("spark", "id * 0.5")],
    ],
)
def test_without_a_connection(dialect: str, value: str) -> None:
    text = f"{RECURSION.format(first=FIRST.format(value=value))}{LOSS} SELECT grad((SELECT l FROM loss), d) FROM par"
    with pytest.raises(xql_ffi.UnsupportedRelationError, match="Decimal128"):
        xql_ffi.expand_sql(text, SCHEMAS, dialect=dialect)


@pytest.mark.parametrize("value", ["amt / 2", "exp(0.5 * id)"])
def test_floats_without_a_connection(value: str) -> None:
    text = f"{RECURSION.format(first=FIRST.format(value=value))}{LOSS} SELECT grad((SELECT l FROM loss), d) FROM par"
    assert "RECURSIVE" in xql_ffi.expand_sql(text, SCHEMAS, dialect="duckdb")
