"""A value beside its own derivative, which is the first thing that people write."""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import xql_ffi

TABLES = {
    "t": pa.table(
        {
            "k": pa.array([1, 1, 2, 2, 2], pa.int64()),
            "x": pa.array([0.5, 0.5, 2.0, 2.0, -1.0]),
            "y": pa.array([1.0, 3.0, -2.0, 0.5, 4.0]),
        }
    )
}
SCHEMAS = {name: table.schema for name, table in TABLES.items()}

# A value, what follows it, and the columns that it has with `{slope}`, whose value is known by hand as `{wanted}`.
VALUES = {
    "a sum": ("SUM(x * y)", "SUM(y)", "GROUP BY x"),
    "an average": ("AVG(x * y)", "AVG(y)", "GROUP BY x"),
    "a sum of squares": ("SUM(x * x * y)", "SUM(2 * x * y)", "GROUP BY x"),
    "a square of a sum": ("SUM(x * y) * SUM(x * y)", "2 * SUM(x * y) * SUM(y)", "GROUP BY x"),
    "a greatest": ("MAX(x * y)", "CASE WHEN x > 0 THEN MAX(y) ELSE MIN(y) END", "GROUP BY x"),
    "a sum with a condition": ("SUM(CASE WHEN y > 0 THEN x * y END)", "SUM(CASE WHEN y > 0 THEN y END)", "GROUP BY x"),
    "several groups": ("SUM(x * y + 0.1)", "SUM(y)", "GROUP BY k, x"),
    "a computed group": ("SUM(x * y)", "SUM(y)", "GROUP BY x, k + 1"),
    "a row": ("x * y + 1", "y", ""),
    "a window": ("SUM(x * y) OVER (PARTITION BY k)", None, ""),
    "an average in a window": ("AVG(x * x) OVER (PARTITION BY k)", None, ""),
}
WINDOWS = {
    "a window": {(1, 0.5, 1.0): 1.0, (1, 0.5, 3.0): 3.0, (2, 2.0, -2.0): -2.0, (2, 2.0, 0.5): 0.5, (2, -1.0, 4.0): 4.0},
    "an average in a window": {
        (1, 0.5, 1.0): 0.5,
        (1, 0.5, 3.0): 0.5,
        (2, 2.0, -2.0): 4 / 3,
        (2, 2.0, 0.5): 4 / 3,
        (2, -1.0, 4.0): -2 / 3,
    },
}
DUCKDBS = {
    "all groups": ("SUM(x * y)", "SUM(y)", "GROUP BY ALL"),
    "grouping sets": ("SUM(x * y)", "SUM(y)", "GROUP BY GROUPING SETS ((x), (k, x))"),
    "a rollup": ("AVG(x * y)", "AVG(y)", "GROUP BY x, ROLLUP (k)"),
    "other words": ("SUM(x * y + 0.10)", "SUM(y)", "GROUP BY x"),
}


def _duckdb() -> Any:
    made = duckdb.connect(config={"threads": 1})
    for name, table in TABLES.items():
        made.register("given", table)
        made.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    return made


def _rows(host: str, tables: Any, text: str) -> list[Any]:
    if host == "duckdb":
        found = tables.execute(text).fetchall()
    elif host == "sqlite":
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE TABLE t (k INTEGER, x REAL, y REAL)")
        rows = zip(*(column.to_pylist() for column in TABLES["t"].columns), strict=True)
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        found = connection.execute(text).fetchall()
    else:
        context = polars.SQLContext({name: polars.DataFrame(table) for name, table in TABLES.items()})
        found = context.execute(text, eager=True).rows()
    return sorted(map(tuple, found), key=str)


CASES = [(host, name) for host in ("duckdb", "sqlite", "polars") for name in VALUES]
CASES += [("duckdb", name) for name in DUCKDBS]


@pytest.mark.parametrize(("host", "name"), CASES)
def test_a_value_and_its_slope(host: str, name: str) -> None:
    value, slope, groups = {**VALUES, **DUCKDBS}[name]
    tables = _duckdb() if host == "duckdb" else SCHEMAS
    columns = "k, x, y, " if slope is None or not groups else "x, "
    statement = f"SELECT {columns}{value} AS v, {{slope}} AS g FROM t {groups}"
    given = statement.format(slope=f"grad({value}, x)")
    if (host, name) in LACKING:
        with pytest.raises(xql_ffi.HostError, match="has no first value"):
            xql_ffi.expand_sql(given, tables, dialect=host)
        return
    text = xql_ffi.expand_sql(given, tables, dialect=host)
    found = _rows(host, tables, text)
    wanted = _rows(host, tables, statement.format(slope=slope or "NULL"))
    assert [row[:-1] for row in found] == [row[:-1] for row in wanted], text
    slopes = [row[-1] for row in wanted] if slope else [WINDOWS[name][row[:3]] for row in found]
    assert [row[-1] for row in found] == pytest.approx(slopes), text


# The derivative of a greatest value needs the first row of a group in an order.
LACKING = {(host, "a greatest") for host in ("sqlite", "polars")}


@pytest.mark.parametrize("dialect", ["postgres", "spark", "bigquery"])
@pytest.mark.parametrize("name", ["a sum", "an average", "a window"])
def test_for_other_hosts(dialect: str, name: str) -> None:
    value, _, groups = VALUES[name]
    statement = f"SELECT x, {value} AS v, grad({value}, x) AS g FROM t {groups}"
    text = xql_ffi.expand_sql(statement, SCHEMAS, dialect=dialect)
    assert "grad" not in text
    assert xql_ffi.expand_sql(text, SCHEMAS, dialect=dialect) == text


def test_words_that_datafusion_reads_alike() -> None:
    connection = _duckdb()
    statement = (
        "SELECT SUM(x * y + 0.10) AS a, SUM(x * y + 0.1) AS b, grad(SUM(x * y + 0.1), x) AS g, x FROM t GROUP BY x"
    )
    found = xql_ffi.sql(connection, statement)
    without = connection.sql(statement.replace("grad(SUM(x * y + 0.1), x)", "SUM(y)"))
    assert found.columns == without.columns
    assert found.types == without.types
    assert sorted(found.fetchall()) == sorted(without.fetchall())
