"""Derivatives of quantiles as text for DuckDB, which does not cut the way from one value to the next."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

import xql_ffi

X = np.array([3.0, 1.5, 7.25, 0.5, 2.5, 4.0, 9.0, 2.75])
G = np.array([1, 1, 1, 2, 2, 2, 2, 1])
QUANTILES = [
    ("median({0})", 0.5),
    ("quantile_cont({0}, 0.3)", 0.3),
    ("quantile_cont({0}, 1 - 0.1)", 0.9),
    ("percentile_cont(0.3) WITHIN GROUP (ORDER BY {0})", 0.3),
    ("percentile_cont(0.3) WITHIN GROUP (ORDER BY {0} DESC)", 0.7),
]


@pytest.fixture(scope="module")
def tables() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (id INT, g INT, x DOUBLE)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [[i, int(G[i]), X[i]] for i in range(len(X))])
    connection.execute("CREATE TABLE p AS SELECT 2.0::DOUBLE AS w")
    return connection


def shares(values: np.ndarray, p: float) -> np.ndarray:
    """The shares of values without ties in a quantile."""
    distance = np.abs(np.argsort(np.argsort(values)) - p * (len(values) - 1))
    return np.asarray(np.maximum(1 - distance, 0.0))


def column(tables: duckdb.DuckDBPyConnection, sql: str) -> list[float]:
    rows = tables.execute(xql_ffi.expand_sql(sql, tables, dialect="duckdb")).fetchall()
    return [row[-1] for row in rows]


@pytest.mark.parametrize(("quantile", "p"), QUANTILES)
def test_duckdb(tables: duckdb.DuckDBPyConnection, quantile: str, p: float) -> None:
    q = quantile.format("x")
    found = column(tables, f"SELECT id, grad((SELECT power({q}, 2) FROM t), x) AS d FROM t ORDER BY id")
    ((value,),) = tables.execute(f"SELECT {q} FROM t").fetchall()
    assert value == pytest.approx(shares(X, p) @ X, rel=1e-12)
    np.testing.assert_allclose(found, 2 * value * shares(X, p), rtol=1e-12)
    groups = f"SELECT {q} FILTER (WHERE id > 0) AS q FROM t GROUP BY g"
    found = column(tables, f"SELECT id, grad((SELECT SUM(q) FROM ({groups})), x) AS d FROM t ORDER BY id")
    expected = np.zeros(len(X))
    for group in (1, 2):
        rows = np.flatnonzero((group == G) & (np.arange(len(X)) > 0))
        expected[rows] = shares(X[rows], p)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    forward = f"SELECT grad({quantile.format('w * x')}, w) AS d FROM t CROSS JOIN p GROUP BY w"
    assert column(tables, forward) == pytest.approx([value], rel=1e-12)


def test_windows(tables: duckdb.DuckDBPyConnection) -> None:
    found = column(tables, "SELECT id, grad(median(x) OVER (PARTITION BY g), x) AS d FROM t ORDER BY id")
    expected = np.zeros(len(X))
    for group in (1, 2):
        expected[group == G] = shares(X[group == G], 0.5)
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("value", ["mode(x)", "quantile_disc(x, 0.3)", "approx_quantile(x, 0.3)"])
def test_refused(tables: duckdb.DuckDBPyConnection, value: str) -> None:
    with pytest.raises(xql_ffi.DifferentiationError, match=value.partition("(")[0]):
        xql_ffi.expand_sql(f"SELECT grad((SELECT {value} FROM t), x) FROM t", tables, dialect="duckdb")


def test_another_order(tables: duckdb.DuckDBPyConnection) -> None:
    """DuckDB takes the direction of the order, and DataFusion the values."""
    sql = "SELECT grad((SELECT quantile_cont(x, 0.3 ORDER BY id DESC) FROM t), x) FROM t"
    with pytest.raises(xql_ffi.HostError, match="order of its own values"):
        xql_ffi.expand_sql(sql, tables, dialect="duckdb")
