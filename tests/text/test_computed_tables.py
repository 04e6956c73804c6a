"""Tables of DuckDB whose columns are computed: derivatives look into them as into views, or they are refused."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import xql_ffi


@pytest.fixture
def connection() -> Any:
    made = duckdb.connect(config={"threads": 1})
    made.execute("""
        CREATE TABLE t AS SELECT i AS id, i * 0.5::DOUBLE AS x FROM range(4) AS r(i);
        CREATE MACRO squares(a) AS TABLE SELECT id, x, x * x * a AS y FROM t;
        CREATE MACRO named(x, factor) AS TABLE SELECT t.x AS x, t.x * factor + x AS y FROM t;
        CREATE MACRO within(a) AS TABLE SELECT x, y FROM squares(a);
        CREATE MACRO several(a, b := 2) AS TABLE SELECT x, x * a * b AS y FROM t;
        CREATE MACRO some_rows(n) AS TABLE WITH q AS (SELECT x, exp(x) AS y FROM t ORDER BY id) SELECT * FROM q LIMIT n;
        CREATE VIEW through AS SELECT x, y FROM squares(3);
        CREATE VIEW all_of_it AS SELECT * FROM squares(3);
        CREATE VIEW asked AS SELECT * FROM query('SELECT x, x * x AS y FROM t');
        CREATE TABLE g (
            id INTEGER, X DOUBLE, y DOUBLE GENERATED ALWAYS AS (x * x), z DOUBLE GENERATED ALWAYS AS (x + y));
        INSERT INTO g VALUES (1, 3.0), (2, 0.5);
        CREATE SCHEMA s;
        CREATE TABLE s.t AS SELECT 9.0::DOUBLE AS x, 0 AS id;
        CREATE VIEW s.v AS SELECT x, x * x AS y FROM t;
        CREATE TABLE s.g (x DOUBLE, y DOUBLE GENERATED ALWAYS AS (2 * x)); INSERT INTO s.g VALUES (7.0);
        ATTACH ':memory:' AS other;
        CREATE TABLE other.t2 AS SELECT 1.5::DOUBLE AS x;
        CREATE VIEW other.v AS SELECT x, x * x AS y FROM t2;
        CREATE TABLE t2 AS SELECT 's' AS x""")
    return made


RIGHT = {
    # A table macro is a view with parameters.
    "SELECT x, grad(y, x) FROM squares(3)": lambda x: 6 * x,
    "SELECT x, grad(y, x) FROM squares(a := 3)": lambda x: 6 * x,
    "SELECT x, grad(y, x) FROM main.squares(3) AS q": lambda x: 6 * x,
    "SELECT x, grad((SELECT SUM(y) FROM squares(3)), x) FROM t": lambda x: 6 * x,
    "SELECT q.x, grad(q.x * q.y, q.x) FROM squares(2) AS q JOIN t USING (id)": lambda x: 6 * x * x,
    "SELECT x, grad(y * y, x) FROM named(5, 2)": lambda x: 4 * (2 * x + 5),
    "SELECT x, grad(y, x) FROM within(2)": lambda x: 4 * x,
    "SELECT x, grad(y, x) FROM several(1, b := 3)": lambda x: 3 + 0 * x,
    "SELECT x, grad(y, x) FROM some_rows(4)": lambda x: 2.718281828459045**x,
    "SELECT x, grad(y, x) FROM through": lambda x: 6 * x,
    "SELECT x, grad(y, x) FROM all_of_it": lambda x: 6 * x,
    # So is a table with columns that the database computes.
    "SELECT x, grad(y, x) FROM g": lambda x: 2 * x,
    "SELECT x, grad(z, x) FROM g": lambda x: 1 + 2 * x,
    "SELECT x, grad((SELECT SUM(y * z) FROM g), x) FROM g": lambda x: 3 * x**2 + 4 * x**3,
    "SELECT q.x, grad(q.y, q.x) FROM s.g AS q": lambda x: 2 + 0 * x,
    # A view reads the tables of its own schema and database first.
    "SELECT x, grad(y, x) FROM s.v": lambda x: 2 * x,
    "SELECT x, grad(y, x) FROM other.v": lambda x: 2 * x,
    "SELECT x, grad(x * x, x) FROM other.t2": lambda x: 2 * x,
    "SELECT x, grad(other.t2.x * t2.x, t2.x) FROM other.t2": lambda x: 2 * x,
    "SELECT x, grad((SELECT SUM(x * x) FROM other.t2), x) FROM other.t2": lambda x: 2 * x,
}


@pytest.mark.parametrize("statement", RIGHT)
def test_right(statement: str, connection: Any) -> None:
    text = xql_ffi.expand_sql(statement, connection)
    found = connection.sql(text).fetchall()
    head, _, source = statement.rpartition(" FROM ")
    assert len(found) == connection.sql(f"SELECT count(*) FROM {source}").fetchall()[0][0] > 0, head
    for x, slope in found:
        assert slope == pytest.approx(RIGHT[statement](x)), text
    assert xql_ffi.expand_sql(text, connection) == text


REFUSED = {
    "SELECT grad(y, x) FROM several(1)": r"several\(1\) in FROM is a table macro that leaves out a parameter",
    "SELECT grad(y, x) FROM query('SELECT x, x * x AS y FROM t')": r"query\(.*\) in FROM computes its rows",
    "SELECT grad(x, x) FROM query_table('t')": r"query_table\('t'\) in FROM computes its rows",
    "SELECT grad(y, x) FROM asked": r"asked: query\(.*\) in FROM computes its rows",
    "WITH t AS (SELECT 5e0 AS x, 1 AS id) SELECT grad(y, x) FROM squares(3), t": r"reads t, which is a common table",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_refused(statement: str, connection: Any) -> None:
    with pytest.raises(xql_ffi.HostError, match=REFUSED[statement]):
        xql_ffi.expand_sql(statement, connection)


def test_what_is_computed_may_stand_beside(connection: Any) -> None:
    found = xql_ffi.sql(connection, "SELECT *, grad((SELECT SUM(x * x) FROM t), x) AS g FROM g JOIN t USING (id, x)")
    assert found.columns == ["id", "X", "y", "z", "g"]
    connection.execute(xql_ffi.expand_sql("UPDATE g SET x = x - 0.1 * grad(x * x, x)", connection))
    assert connection.sql("SELECT round(x, 9) FROM g ORDER BY id").fetchall() == [(2.4,), (0.4,)]
