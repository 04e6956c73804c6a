"""Recursive queries beside the variable, which do not depend on it: a series of dates, a bill of materials."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import xql_ffi
from support.differences import central

TABLES: dict[str, dict[str, list[Any]]] = {
    "p": {"id": [0, 1, 2, 3], "day": [0, 1, 2, 0], "val": [0.5, -1.0, 2.0, 1.5]},
    "bom": {"parent": ["a", "b", "a"], "child": ["b", "c", "c"], "qty": [2.0, 1.5, 0.5]},
    "price": {"id": [0, 1, 2], "part": ["a", "b", "c"], "val": [1.0, 2.0, 3.0]},
}
SCHEMAS = {name: pa.table(columns).schema for name, columns in TABLES.items()}

PARTS = """
    WITH RECURSIVE parts AS (
        SELECT parent, child, qty FROM bom
        UNION ALL
        SELECT parts.parent, bom.child, parts.qty * bom.qty FROM parts JOIN bom ON bom.parent = parts.child)"""
TIMES = "WITH RECURSIVE s AS (SELECT CAST(0 AS DOUBLE PRECISION) AS t UNION ALL SELECT t + 0.5 FROM s WHERE t < 2)"
CASES = {
    "numbers": (
        "p",
        "WITH RECURSIVE days AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM days WHERE i < 3)",
        "SELECT SUM(p.val * p.val * days.i) AS l FROM days JOIN p ON p.day = days.i",
    ),
    "materials": (
        "price",
        PARTS,
        "SELECT SUM(parts.qty * price.val * price.val) AS l FROM parts JOIN price ON price.part = parts.child",
    ),
    "groups of materials": (
        "price",
        f"""{PARTS}, needed AS (
            SELECT parent, SUM(parts.qty * price.val) AS c
            FROM parts JOIN price ON price.part = parts.child GROUP BY parent)""",
        "SELECT SUM(c * c) AS l FROM needed",
    ),
    "groups by a float": (
        "p",
        f"{TIMES}, v AS (SELECT s.t, SUM(p.val * s.t) AS v FROM s JOIN p ON p.day >= s.t GROUP BY s.t)",
        "SELECT SUM(v * v) AS l FROM v",
    ),
    "a greatest of floats": ("p", TIMES, "SELECT MAX(p.val * s.t) AS l FROM s JOIN p ON p.day >= s.t"),
    "rows that vanish": (
        "price",
        "WITH RECURSIVE h AS (SELECT child, 8 AS n FROM bom UNION ALL SELECT child, n - 3 FROM h WHERE n > 1)",
        "SELECT SUM(power(price.val * h.n, 2)) AS l FROM h JOIN price ON price.part = h.child",
    ),
}
DATES = (
    "p",
    """WITH RECURSIVE days AS (
        SELECT 0 AS i, DATE '2020-01-01' AS d UNION ALL SELECT i + 1, d + 1 FROM days WHERE i < 3)""",
    """SELECT SUM(p.val * p.val * days.i) AS l
       FROM days JOIN p ON DATE '2020-01-01' + CAST(p.day AS INTEGER) = days.d""",
)


@pytest.mark.parametrize("name", [*CASES, "dates"])
def test_against_differences(name: str) -> None:
    table, recursion, loss = {**CASES, "dates": DATES}[name]
    connection = duckdb.connect(config={"threads": 1})
    for given, columns in TABLES.items():
        connection.register("given", pa.table(columns))
        connection.execute(f"CREATE TABLE {given} AS SELECT * FROM given")
    text = f"{recursion}, loss AS ({loss}) SELECT id, grad((SELECT l FROM loss), val) FROM {table} ORDER BY id"
    found = xql_ffi.sql(connection, text).fetchall()
    assert [row for row, _ in found] == TABLES[table]["id"]
    for row, slope in found:

        def moved(step: float, row: int = row) -> float:
            connection.execute(f"UPDATE {table} SET val = {TABLES[table]['val'][row] + step!r} WHERE id = {row}")
            return float(connection.sql(f"{recursion} {loss}").fetchall()[0][0])

        np.testing.assert_allclose(slope, central(moved), rtol=1e-7, atol=1e-9)
        moved(0)


@pytest.mark.parametrize("dialect", ["datafusion", "postgres", "sqlite"])
@pytest.mark.parametrize("name", CASES)
def test_for_other_hosts(name: str, dialect: str) -> None:
    table, recursion, loss = CASES[name]
    text = f"{recursion}, loss AS ({loss}) SELECT id, grad((SELECT l FROM loss), val) AS g FROM {table}"
    if (name, dialect) == ("a greatest of floats", "sqlite"):
        pytest.skip("SQLite has no first value of a group in an order")
    assert "grad(" not in xql_ffi.expand_sql(text, SCHEMAS, dialect=dialect)


def test_what_sums_up_is_refused() -> None:
    """The sum may have another last digit where the recursive query is computed again."""
    text = """
        WITH RECURSIVE s AS (
            SELECT 0 AS i, CAST(1 AS DOUBLE) AS t UNION ALL SELECT i + 1, SUM(t * 0.5) FROM s WHERE i < 3 GROUP BY i),
          loss AS (SELECT MAX(p.val * s.t) AS l FROM s JOIN p ON p.day = s.i)
        SELECT id, grad((SELECT l FROM loss), val) AS g FROM p"""
    with pytest.raises(ValueError, match="by the value of a sum"):
        xql_ffi.expand_sql(text, SCHEMAS, dialect="duckdb")
