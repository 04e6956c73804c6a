"""Random numbers in statements as text: of DataFusion, and of DuckDB, where they are macros."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from xql_ffi import random

T = {"t": pa.schema({"k": pa.int64(), "x": pa.float64()})}
STATEMENT = "SELECT grad(x * x * random_normal(7, k), x) AS d FROM t"
POINTS = np.random.default_rng(5).integers(-(2**63), 2**63 - 1, (5, 300), endpoint=True)


@pytest.fixture
def connection() -> duckdb.DuckDBPyConnection:
    made = duckdb.connect()
    random.create_macros(made)
    names = ("seed", "a", "b", "c", "d")
    rows = pa.table({name: pa.array(values) for name, values in zip(names, POINTS, strict=True)})
    made.register("points", rows)
    made.execute("CREATE TABLE t AS SELECT unnest([1, 2, NULL]) AS k, unnest([0.5, 1.5, 2.5])::DOUBLE AS x")
    return made


@pytest.mark.parametrize("keys", [1, 2, 3, 4])
def test_macros_have_the_same_numbers(connection: duckdb.DuckDBPyConnection, keys: int) -> None:
    called = ", ".join(("seed", "a", "b", "c", "d")[: keys + 1])
    found = connection.sql(
        f"SELECT random_uniform({called}) AS u, random_normal({called}) AS n FROM points"
    ).fetchnumpy()
    np.testing.assert_array_equal(found["u"], random.uniform(*POINTS[: keys + 1]))
    np.testing.assert_allclose(found["n"], random.normal(*POINTS[: keys + 1]), rtol=0, atol=1e-14)


def test_macros_of_other_types_and_null(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT random_uniform(1, 3::UTINYINT), random_uniform(1, NULL), random_uniform(NULL, 1, 2)"
    assert connection.sql(sql).fetchall() == [(float(random.uniform(1, 3)), None, None)]
    random.create_macros(connection)
    with pytest.raises(Exception, match="out of range"):
        connection.sql("SELECT random_uniform(1, 9223372036854775808)").fetchall()


def test_of_datafusion() -> None:
    text = xql_ffi.expand_sql(STATEMENT, T, functions=True)
    assert text == "SELECT 2.0 * x * random_normal(7, k) AS d FROM t"
    ctx = xql_ffi.register(SessionContext(), functions=True)
    ctx.from_pydict({"k": [1, 2], "x": [0.5, 1.5]}, name="t")
    expected = 2 * random.normal(7, [1, 2]) * [0.5, 1.5]
    np.testing.assert_allclose(ctx.sql(text).to_pydict()["d"], expected, rtol=1e-14)


def test_of_duckdb(connection: duckdb.DuckDBPyConnection) -> None:
    found = xql_ffi.sql(connection, STATEMENT).fetchall()
    expected = 2 * random.normal(7, [1, 2]) * [0.5, 1.5]
    np.testing.assert_allclose([d for (d,) in found[:2]], expected, rtol=1e-14)
    assert found[2] == (None,)
    sql = """
        WITH noisy AS (SELECT x * random_normal(7, k) AS y, x FROM t WHERE random_uniform(8, k) < 2)
        SELECT SUM(jvp(y, x, 1.0)) AS d FROM noisy
    """
    assert xql_ffi.sql(connection, sql).fetchall() == [(pytest.approx(random.normal(7, [1, 2]).sum(), rel=1e-13),)]


def test_of_duckdb_without_macros() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 1 AS k, 2.0::DOUBLE AS x")
    with pytest.raises(
        xql_ffi.MissingRuleError, match=r"no function random_normal\(seed, key, \.\.\.\).*create_macros"
    ):
        xql_ffi.sql(connection, STATEMENT)


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "spark", "polars"])
def test_hosts_of_which_nothing_is_known(dialect: str) -> None:
    with pytest.raises(xql_ffi.HostError, match=f"{dialect} has no function random_normal"):
        xql_ffi.expand_sql(STATEMENT, T, dialect=dialect)


def test_by_row_on_duckdb(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TABLE w AS SELECT i AS k, 0.5 + 0.3 * i::DOUBLE AS val FROM range(6) AS t(i)")
    sql = """
        WITH loss AS (SELECT AVG(power(val - 1 + 0.3 * random_normal(9, k), 4)) AS l FROM w)
        SELECT grad((SELECT l FROM loss), val) AS g FROM w ORDER BY k
    """
    w = 0.5 + 0.3 * np.arange(6.0)
    expected = 4 * (w - 1 + 0.3 * random.normal(9, np.arange(6))) ** 3 / 6
    np.testing.assert_allclose([g for (g,) in xql_ffi.sql(connection, sql).fetchall()], expected, rtol=1e-12)
