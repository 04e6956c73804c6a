"""What DuckDB has of SQL and DataFusion has not: it stays as it is beside a derivative, or is refused by its name."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

import xql_ffi

SLOPE = "grad((SELECT SUM(x * x) FROM t), t.x)"


@pytest.fixture(scope="module")
def connection() -> Any:
    made = duckdb.connect(config={"threads": 1})
    made.execute("""
        CREATE TABLE t AS SELECT i AS id, i % 2 AS k, i * 2 AS ts, i * 0.5::DOUBLE AS x FROM range(4) AS r(i);
        CREATE TABLE u AS SELECT i % 2 AS k, i AS ts, i * 0.25::DOUBLE AS y FROM range(8) AS r(i);
        CREATE VIEW w AS SELECT id, x FROM t;
        CREATE MACRO m(a) AS TABLE SELECT id, x * a AS y FROM t;
        CREATE VIEW of_m AS SELECT * FROM m(3)""")
    return made


# `{local}` is a derivative that takes the place of its call; by `{far}` the query is written anew.
ASOF = "t ASOF JOIN u ON t.k = u.k AND t.ts >= u.ts"
KEPT = {
    "as of": f"SELECT id, u.y, {{local}} AS g FROM {ASOF} ORDER BY id",
    "as of, to the left": f"SELECT id, u.y, {{local}} AS g FROM {ASOF.replace('JOIN', 'LEFT JOIN')} ORDER BY id",
    "as of, in a query": """
        SELECT t.id, q.y, {far} AS g
        FROM t JOIN (SELECT a.ts, b.y FROM u AS a ASOF JOIN u AS b ON a.k = b.k AND a.ts > b.ts) AS q USING (ts)
        ORDER BY id""",
    "as of, by name": """
        WITH q AS (SELECT a.ts, b.y FROM u AS a ASOF JOIN u AS b ON a.k = b.k AND a.ts > b.ts)
        SELECT t.id, q.y, {far} AS g FROM t JOIN q USING (ts) ORDER BY id""",
    "by place": "SELECT id, y, {local} AS g FROM t POSITIONAL JOIN u ORDER BY id, y",
    "a pivot": "SELECT id, p.*, {local} AS g FROM t, (PIVOT u ON k USING sum(y) GROUP BY ts) AS p ORDER BY id, ts",
    "a pivot, far": "SELECT id, p.*, {far} AS g FROM t, (PIVOT u ON k USING sum(y) GROUP BY ts) AS p ORDER BY id, p.ts",
    "a pivot of SQL": """
        SELECT id, p.a_s, {far} AS g FROM t JOIN u PIVOT (sum(y) AS s FOR k IN (0 AS a, 1 AS b)) AS p USING (ts)
        ORDER BY id""",
    "an unpivot": "SELECT id, p.v, {far} AS g FROM t, (UNPIVOT u ON y INTO NAME n VALUE v) AS p ORDER BY id, v",
    "a sample": "SELECT id, {local} AS g FROM t USING SAMPLE 100% ORDER BY id",
    "a sample of a table": "SELECT id, {local} AS g FROM t TABLESAMPLE RESERVOIR(100%) ORDER BY id",
    "a sample, far": """
        SELECT id, q.n, {far} AS g FROM t, (SELECT count(*) AS n FROM u USING SAMPLE 100%) AS q ORDER BY id""",
    "a limit": "SELECT id, {local} AS g FROM t ORDER BY id LIMIT 50%",
    "a limit, far": "SELECT id, {far} AS g FROM t ORDER BY id LIMIT 50%",
    "an order": "SELECT id, {local} AS g FROM t ORDER BY ALL",
    "an order, far": "SELECT id, {far} AS g FROM t ORDER BY ALL DESC",
    "columns": "SELECT COLUMNS(* EXCLUDE (k, ts)), {far} AS g FROM t ORDER BY id",
    "columns by their names": "SELECT COLUMNS('i.*'), {local} AS g FROM t ORDER BY id",
    "columns in an expression": "SELECT COLUMNS(* EXCLUDE (k)) + 1, {local} AS g FROM t ORDER BY ALL",
    "columns in a condition": "SELECT id, {local} AS g FROM t WHERE COLUMNS(* EXCLUDE (k)) > 0 ORDER BY id",
    "columns by other names": "SELECT * RENAME (ts AS time), {local} AS g FROM t ORDER BY id",
    "a list": "SELECT [i + 1 FOR i IN [id, k] IF i > 0] AS l, {local} AS g FROM t ORDER BY id",
    # Names of items.
    "a name": "SELECT x * 2 AS a, a + 1 AS b, b * a AS c, {far} AS g FROM t ORDER BY id",
    "a name, locally": "SELECT x * 2 AS a, a + 1 AS b, {local} AS g FROM t ORDER BY id",
    "a name of a column": "SELECT id * 2 AS ts, ts + 1 AS b, {far} AS g FROM t ORDER BY id",
    "a name in a condition": "SELECT id, x * 2 AS a, {far} AS g FROM t WHERE a > 0.5 ORDER BY id",
    "a name of an aggregate": """
        SELECT k AS a, sum(x) AS s, s * 2 AS d, sum({far}) AS g FROM t GROUP BY a HAVING s > 0 ORDER BY a""",
    "a name in a window": "SELECT id, x * 2 AS a, sum(a) OVER (PARTITION BY k) AS s, {far} AS g FROM t ORDER BY id",
    "a name of decimals": "SELECT id, 0.1 + 0.2 AS a, a = 0.3 AS same, {far} AS g FROM t ORDER BY id",
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str, connection: Any) -> None:
    """All that stands beside a derivative has the values, types and names that it has without."""
    statement = KEPT[name]
    text = xql_ffi.expand_sql(statement.format(local="grad(t.x * t.x, t.x)", far=SLOPE), connection)
    found = connection.sql(text)
    without = connection.sql(statement.format(local="2 * t.x", far="2 * t.x"))
    assert list(zip(found.columns, found.types, strict=True)) == list(zip(without.columns, without.types, strict=True))
    wanted = without.fetchall()
    assert found.fetchall() == wanted != [], text


def test_a_derivative_of_a_name(connection: Any) -> None:
    statement = "SELECT x, x * 2 AS a, grad(a * a, x) AS g, g + 1 AS h FROM t WHERE a > 0.5 ORDER BY id"
    assert xql_ffi.sql(connection, statement).fetchall() == [(x, 2 * x, 8 * x, 8 * x + 1) for x in (0.5, 1.0, 1.5)]


REFUSED = {
    f"SELECT u.y, {SLOPE} AS g FROM {ASOF}": "ASOF JOIN",
    f"SELECT u.y, {SLOPE} AS g FROM t POSITIONAL JOIN u": "POSITIONAL JOIN",
    f"SELECT {SLOPE} AS g FROM t USING SAMPLE 2 ROWS": "TABLESAMPLE",
    f"SELECT COLUMNS('i.*'), {SLOPE} AS g FROM t": "COLUMNS",
    f"SELECT p.*, {SLOPE} AS g FROM t, (PIVOT t ON k USING sum(x)) AS p": r"\(PIVOT t .* reads t, which the derivative",
    f"SELECT p.*, {SLOPE} AS g FROM t, (PIVOT w ON id USING sum(x)) AS p": r"\(PIVOT w .* reads t, which",
    f"SELECT p.n, {SLOPE} AS g FROM t, (SELECT count(*) AS n FROM of_m USING SAMPLE 2) AS p": "reads t, which",
    f"SELECT p.n, {SLOPE} AS g FROM t, (SELECT count(*) AS n FROM m(2) USING SAMPLE 2) AS p": "reads t, which",
    "SELECT grad((SELECT SUM(x * x) FROM t USING SAMPLE 50%), x) FROM t": "TABLESAMPLE",
    "SELECT grad(y, x) FROM (SELECT x, x * x AS y FROM t LIMIT 50%) AS q": "x may be a column of .*LIMIT 50",
    "SELECT grad(z * v, z) FROM (SELECT x AS z, y AS v FROM (SELECT x, x * x AS y FROM t LIMIT 50%) AS q)": "z may be",
    "SELECT grad(p.x * p.b, p.x) FROM t PIVOT (sum(x) AS s FOR k IN (0 AS a, 1 AS b) GROUP BY x) AS p": r"p\.x may be",
    "SELECT grad(#4 * #4, #4) FROM t": r"a column by its number \(#1\)",
    "WITH RECURSIVE r(a, b) USING KEY (a) AS (SELECT 1, 2e0 UNION SELECT a, b + 1 FROM r WHERE b < 5) "
    "SELECT grad(b * b, b) FROM r": "USING KEY",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_refused_by_name(statement: str, connection: Any) -> None:
    with pytest.raises(xql_ffi.HostError, match=REFUSED[statement]):
        xql_ffi.expand_sql(statement, connection)


WRONG = (
    "SELECT grad(x * x, x) FROM nowhere",
    "SELECT grad(z * x, x) FROM t",
    "SELECT grad(x * x x) FROM t",
    "SELECT x.y, grad(x * x, x) FROM t",
    "SELECT max(grad(x * x, x), 2) FROM t",
    "SELECT [grad(x * x, x) FOR q IN [1]] FROM t",
    "SELECT grad(x * missing(x), x) FROM t",
    "SELECT grad(x * $1, x) FROM t",
    "SELECT grad(y, x) FROM t NATURAL JOIN (SELECT 1.0 AS x)",
    "SELECT g FROM (SELECT grad(x * x, x) AS g FROM t) NATURAL JOIN (SELECT 1e0 AS g)",
)


@pytest.mark.parametrize("statement", WRONG)
def test_what_cannot_be_read_has_a_type(statement: str, connection: Any) -> None:
    with pytest.raises(xql_ffi.DifferentiationError):
        xql_ffi.expand_sql(statement, connection)
