"""Statements in DuckDB's language."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import xql_ffi

WRITTEN = {
    "layout and comments": (
        "-- grad(x, x)\nfrom  t select GRAD ( x*x /* of */ , -- by\n\tX )\tas d /* grad(x, x) */;\n",
        "-- grad(x, x)\nfrom  t select 2.0 * x\tas d /* grad(x, x) */;\n",
    ),
    "parentheses": (
        "SELECT 1 - grad(x * x + x, x) AS a, grad(x * x, x) / 2 AS b, 3 / grad(x * x, x) AS c, -grad(x * x, x) AS d, "
        "grad(x * x, x)::FLOAT AS e, grad(x * x, x) // 1 AS f FROM t",
        "SELECT 1 - (1.0 + 2.0 * x) AS a, 2.0 * x / 2 AS b, 3 / (2.0 * x) AS c, -(2.0 * x) AS d, "
        "(2.0 * x)::FLOAT AS e, (2.0 * x) // 1 AS f FROM t",
    ),
    "names in any case": (
        'SELECT grad(T.X * t."Val", "T"."x") AS d FROM T',
        'SELECT t."Val" AS d FROM T',
    ),
    "a decimal is written as a float": ("SELECT grad(x, x) AS d FROM t", "SELECT 1e0 AS d FROM t"),
    "a quotient of integers": ("SELECT grad(x * (n / 2), x) AS d FROM t", "SELECT CAST(n AS DOUBLE) / 2.0 AS d FROM t"),
    "a quotient that is one": ("SELECT grad(x * (n // 2), x) AS d FROM t", "SELECT CAST(n // 2 AS DOUBLE) AS d FROM t"),
    "digits": ("SELECT grad(x * trunc(x, 2), x) AS d FROM t", "SELECT trunc(x, 2) AS d FROM t"),
    "a power": ("SELECT grad(n * x ** 2, x) AS d FROM t", "SELECT CAST(n AS DOUBLE) * (2.0 * x) AS d FROM t"),
    "a string and a column": (
        "SELECT 'grad(x * x, x)' AS s, \"grad\", grad(grad * grad, grad) AS d FROM t",
        "SELECT 'grad(x * x, x)' AS s, \"grad\", 2.0 * grad AS d FROM t",
    ),
    "letters of several bytes": (
        "SELECT 'ü∂€' AS s, /* 𝛁 */ grad(x * x, x) AS d, 'ß' FROM t",
        "SELECT 'ü∂€' AS s, /* 𝛁 */ 2.0 * x AS d, 'ß' FROM t",
    ),
    "a name": ("SELECT *, grad(x * x, x) FROM t", 'SELECT *, 2.0 * x AS "grad(t.x * t.x,t.x)" FROM t'),
    "insert": (
        "INSERT INTO u BY NAME SELECT grad(x * x, x) AS x FROM t RETURNING x",
        "INSERT INTO u BY NAME SELECT 2.0 * x AS x FROM t RETURNING x",
    ),
    "update": ("UPDATE u SET x = x - grad(x * x, x) WHERE n = 1", "UPDATE u SET x = x - 2.0 * x WHERE n = 1"),
    "explain": ("EXPLAIN ANALYZE SELECT grad(x * x, x) AS d FROM t", "EXPLAIN ANALYZE SELECT 2.0 * x AS d FROM t"),
    "a table": (
        "CREATE OR REPLACE TABLE z AS SELECT stop_gradient(x) * 2 AS s, grad(x * x, x) AS d FROM t",
        "CREATE OR REPLACE TABLE z AS SELECT (x) * 2 AS s, 2.0 * x AS d FROM t",
    ),
    "a script": (
        "SET threads = 1;\nSELECT grad(x * x, x) AS d FROM t; -- next\nSELECT 1 ; SELECT grad(x, x) AS d FROM t;;",
        "SET threads = 1;\nSELECT 2.0 * x AS d FROM t; -- next\nSELECT 1 ; SELECT 1e0 AS d FROM t;;",
    ),
}


@pytest.fixture
def connection() -> Any:
    made = duckdb.connect()
    made.execute(
        'CREATE TABLE t (x DOUBLE NOT NULL, "Val" DOUBLE NOT NULL, n INTEGER NOT NULL, "grad" DOUBLE NOT NULL)'
    )
    made.execute("INSERT INTO t VALUES (3, 0.5, 7, 2)")
    made.execute("CREATE TABLE u (x DOUBLE NOT NULL, n INTEGER)")
    return made


@pytest.mark.parametrize("name", WRITTEN)
def test_all_else_as_written(name: str, connection: Any) -> None:
    statement, wanted = WRITTEN[name]
    text = xql_ffi.expand_sql(statement, connection)
    assert text == wanted
    assert xql_ffi.expand_sql(text, connection) == text
    connection.execute(text)


def test_what_is_read_twice_is_computed_once(connection: Any) -> None:
    statement = "SELECT grad((SELECT SUM(x * x) FROM t), x) AS d FROM t"
    text = xql_ffi.expand_sql(statement, connection)
    assert text.startswith('WITH "rows" AS MATERIALIZED (')
    assert xql_ffi.sql(connection, statement).fetchall() == [(6.0,)]


def test_a_session(connection: Any) -> None:
    connection.execute("CREATE SCHEMA sea; CREATE TABLE sea.fish (x DOUBLE); INSERT INTO sea.fish VALUES (2)")
    connection.execute("CREATE TEMP VIEW v AS SELECT X, X * X AS y FROM t; CREATE VIEW w(a, b) AS FROM v")
    for statement, value in {
        "SELECT grad(y * y, x) AS d FROM v": 108.0,
        "SELECT grad(b * b, a) AS d FROM w": 108.0,
        "FROM sea.fish SELECT grad(x * x, x)": 4.0,
        "FROM memory.sea.fish AS f SELECT grad(f.x * f.x, f.x)": 4.0,
        "SELECT grad(x * x, x) FROM memory.main.t": 6.0,
    }.items():
        found = xql_ffi.sql(connection, statement)
        assert type(found) is type(connection.sql("SELECT 1"))
        assert found.fetchall() == [(value,)]


def test_parameters_of_the_connection(connection: Any) -> None:
    found = xql_ffi.sql(connection, "SELECT x + ?, grad(x * x, x) FROM t", params=[4.0])
    assert found.fetchall() == [(7.0, 6.0)]


def test_files_and_table_functions(connection: Any, tmp_path: Path) -> None:
    file = tmp_path / "sea.data.parquet"
    connection.execute(f"COPY (SELECT 3.0::DOUBLE AS X, 2 AS n, 'a' AS s) TO '{file}'")
    for statement, value in {
        f"SELECT grad(x * x / n, x) AS d FROM '{file}'": 3.0,
        f"SELECT grad(sea.x * sea.X, sea.x) AS d FROM '{file}'": 6.0,
        f"SELECT grad(z, x) AS d FROM (SELECT x, x * x AS z FROM read_parquet('{file}', union_by_name = true))": 6.0,
        f"SELECT grad((SELECT SUM(x * x) FROM '{file}'), x) AS d FROM '{file}'": 6.0,
        f"SELECT grad(t.x * f.x, f.x) AS d FROM t, '{file}' AS f": 3.0,
        "SELECT grad(x * range, x) AS d FROM range(3, 4), t": 3.0,
    }.items():
        text = xql_ffi.expand_sql(statement, connection)
        assert xql_ffi.expand_sql(text, connection) == text
        assert connection.sql(text).fetchall() == [(value,)]
    with pytest.raises(ValueError, match=r"which columns nothing\(3\) in FROM has: Catalog Error"):
        xql_ffi.expand_sql("SELECT grad(x, x) FROM nothing(3)", connection)


def test_a_first_value_that_is_a_decimal_is_no_variable(connection: Any) -> None:
    """DuckDB would round each step to its one digit."""
    statement = """
        WITH RECURSIVE newton AS (
            SELECT 0 AS step, {} AS z
            UNION ALL
            SELECT step + 1, z - (z * z - 2) / grad(z * z - 2, z) FROM newton WHERE step < 6)
        SELECT z FROM newton WHERE step = 6"""
    with pytest.raises(xql_ffi.VariableError, match=r"Decimal128\(2, 1\)"):
        xql_ffi.expand_sql(statement.format("1.0"), connection)
    found = xql_ffi.sql(connection, statement.format("CAST(1.0 AS DOUBLE)")).fetchall()
    assert abs(found[0][0] - 2**0.5) < 1e-12


def test_functions_of_the_session(connection: Any) -> None:
    connection.execute("CREATE MACRO twice(a) AS 2 * a")
    assert xql_ffi.expand_sql("SELECT grad(x * twice(n), x) AS d FROM t", connection).endswith(
        "twice(n) AS DOUBLE) AS d FROM t"
    )
    with pytest.raises(ValueError, match="no derivative is known for the function twice"):
        xql_ffi.expand_sql("SELECT grad(twice(x), x) AS d FROM t", connection)
    with pytest.raises(ValueError, match="cannot plan missing"):
        xql_ffi.expand_sql("SELECT grad(x * missing(x), x) AS d FROM t", connection)
    rules = [xql_ffi.rule("twice(a)", "2")]
    assert xql_ffi.sql(connection, "SELECT grad(twice(x), x) AS d FROM t", rules=rules).fetchall() == [(2.0,)]


@pytest.mark.parametrize("name", ["x", "log(x)"])
def test_values_at_the_edge(name: str, connection: Any) -> None:
    """NaN stays NaN where DuckDB has another opinion of its sign."""
    connection.execute("UPDATE t SET x = 'NaN'")
    found = xql_ffi.sql(connection, f"SELECT grad(abs({name}), x) AS d FROM t").fetchall()
    assert str(found) == "[(nan,)]"


def test_an_expression() -> None:
    columns = pa.schema([pa.field("X", pa.float64(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    assert xql_ffi.differentiate_sql("x ** 2 * (n // 2)", "x", columns, dialect="duckdb") == (
        "CAST(n // 2 AS DOUBLE) * (2.0 * x)"
    )
    for expression in ("x, x), grad(x", "x) FROM inputs --", "x;"):
        with pytest.raises(ValueError, match=r"not one expression|cannot be read|not a single statement"):
            xql_ffi.differentiate_sql(expression, "x", columns, dialect="duckdb")


def test_a_view_that_computes_from_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    connection = duckdb.connect()
    connection.sql(f"COPY (SELECT 1e0 AS x) TO '{path}'")
    connection.sql(f"CREATE VIEW v AS SELECT x, x * x AS y FROM read_parquet('{path}')")
    with pytest.raises(ValueError, match=r"^v: this view computes its columns from a function .* make a view"):
        xql_ffi.sql(connection, "SELECT grad(y, x) AS d FROM v")


def test_the_words_of_a_column() -> None:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT 3 AS n, 2.0::DOUBLE AS x")
    slope = "grad((SELECT SUM(x * x) FROM t), x)"
    with pytest.raises(ValueError, match=r"alias\(x\) gives words of the statement"):
        xql_ffi.sql(connection, f"SELECT alias(x) AS v, {slope} AS g FROM t")
    # In the place of a call it stays as it is.
    beside = "SELECT alias(x) AS v, {} AS g FROM t"
    found = xql_ffi.sql(connection, beside.format("grad(x * ~n, x)")).fetchall()
    assert found == connection.execute(beside.format("CAST(-4 AS DOUBLE)")).fetchall()
