"""What stands beside a derivative that sees through relations is what it is without: its value, type and name."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from text.beside import COLUMNS, COMMON, OWN


class Host:
    """A database with one table."""

    def __init__(self, dialect: str, tables: Any, run: Callable[[str], tuple[list[Any], list[Any]]]) -> None:
        self.dialect = dialect
        self.tables = tables
        # The columns with their types as far as there are any, and the rows.
        self.run = run


def _duckdb() -> Host:
    connection = duckdb.connect()
    connection.register("given", pa.table(COLUMNS))
    connection.execute("CREATE TABLE t AS SELECT id, n, x, CAST(d AS DECIMAL(6, 2)) AS d, s FROM given")
    connection.execute("CREATE VIEW half AS SELECT id, x, n / 2 AS h, 0.1 + 0.2 AS c, round(2.675, 2) AS r FROM t")

    def run(text: str) -> tuple[list[Any], list[Any]]:
        found = connection.sql(text)
        return list(zip(found.columns, map(str, found.types), strict=True)), found.fetchall()

    return Host("duckdb", connection, run)


def _sqlite() -> Host:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (id INTEGER, n INTEGER, x REAL, d REAL, s TEXT)")
    rows = zip(*(column.to_pylist() for column in COLUMNS.values()), strict=True)
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)

    def run(text: str) -> tuple[list[Any], list[Any]]:
        found = connection.execute(text)
        rows = found.fetchall()
        return [column[0] for column in found.description], [[(v, type(v)) for v in row] for row in rows]

    return Host("sqlite", {"t": pa.table(COLUMNS).schema}, run)


def _polars() -> Host:
    context = polars.SQLContext({"t": polars.DataFrame(pa.table(COLUMNS))})

    def run(text: str) -> tuple[list[Any], list[Any]]:
        found = context.execute(text, eager=True)
        return list(found.schema.items()), found.rows()

    return Host("polars", {"t": pa.table(COLUMNS).schema}, run)


def _datafusion() -> Host:
    context = SessionContext()
    texts = pa.array(["p", "q", None, "p"])
    kinds = {"k": texts.dictionary_encode(), "l": texts.cast(pa.large_string()), "v": texts.cast(pa.string_view())}
    context.from_arrow(pa.table({**COLUMNS, **kinds}), name="t")

    def run(text: str) -> tuple[list[Any], list[Any]]:
        found = context.sql(text).to_arrow_table()
        return [(field.name, field.type) for field in found.schema], found.to_pylist()

    return Host("datafusion", context, run)


HOSTS = {"duckdb": _duckdb(), "sqlite": _sqlite(), "polars": _polars(), "datafusion": _datafusion()}
CASES = [(name, value) for name in HOSTS for value in (*COMMON, *OWN.get(name, ()))]

# How a value stands in a query, with a derivative in the place of `{slope}`.
BY_ROW = "grad((SELECT SUM(x * x) FROM t), x)"
AHEAD = "grad(sq, x)"
PLACES = {
    "an item": ("SELECT id, {value} AS v, {slope} AS g FROM t ORDER BY id", BY_ROW),
    "above a square": (
        "SELECT id, {value} AS v, {slope} AS g FROM (SELECT *, x * x AS sq FROM t) AS t ORDER BY id",
        AHEAD,
    ),
    "beside a square": (
        "WITH q AS (SELECT id, x, x * x AS sq, {value} AS v FROM t) SELECT id, v, {slope} AS g FROM q ORDER BY id",
        AHEAD,
    ),
}

# What a host refuses by itself, or what xql-ffi refuses, with the words of the error.
REFUSED = {
    "sqlite": r"no function|Cannot infer common string type",
    "polars": r"no function|Polars",
    "duckdb": r"array_slice",
    "datafusion": r"^$",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("name", "value"), CASES)
def test_values_and_types(name: str, value: str, place: str) -> None:
    host = HOSTS[name]
    statement, slope = PLACES[place]
    without = statement.format(value=value, slope="NULL")
    try:
        columns, rows = host.run(without)
    except Exception:  # each host has a class of its own
        pytest.skip(f"{name} has no {value}")
    text, refused = _expanded(host, statement.format(value=value, slope=slope))
    if refused:
        assert re.search(REFUSED[name], refused), refused
        return
    found, beside = host.run(text)
    # All but the derivative, which is the last column.
    assert found[:-1] == columns[:-1], text
    assert [_shown(row)[:-1] for row in beside] == [_shown(row)[:-1] for row in rows], text


def _expanded(host: Host, statement: str) -> tuple[str, str]:
    """The text of a statement, or why there is none."""
    try:
        return xql_ffi.expand_sql(statement, host.tables, dialect=host.dialect), ""
    except ValueError as error:
        return "", str(error)


def _shown(row: Any) -> list[str]:
    """The values of a row, with NaN equal to itself."""
    return [repr(value) for value in (row.values() if isinstance(row, dict) else row)]


CONSTANTS = [
    (name, constant)
    for name in ("duckdb", "sqlite", "datafusion")
    for constant in ("1e0", "CAST(1 AS DOUBLE PRECISION)", "pi()", "id * 1e0", "0.5e0 + 0.5e0")
    if (name, constant) != ("sqlite", "pi()")
]


@pytest.mark.parametrize("others", [["2e0"], ["id * 1e0"], ["2e0", "3e0"], ["id * 1e0", "2e0"]])
@pytest.mark.parametrize(("name", "constant"), CONSTANTS)
def test_rows_that_a_union_computes_of_nothing(name: str, constant: str, others: list[str]) -> None:
    """The words of a constant have no parts, and stand in a relation that several places read."""
    hub = " UNION ALL ".join(
        [f"SELECT id, {constant} AS val FROM t", *(f"SELECT id, {value} FROM t" for value in others)]
    )
    query = f"WITH hub AS ({hub}) SELECT id, grad((SELECT SUM(2 * h.val) FROM hub AS h), hub.val) AS g FROM hub"
    text, refused = _expanded(HOSTS[name], query)
    assert not refused
    _, found = HOSTS[name].run(text)
    ((two,),) = map(_shown, HOSTS[name].run("SELECT CAST(2 AS DOUBLE PRECISION) AS g")[1])
    assert [_shown(row)[1] for row in found] == [two] * 4 * (1 + len(others))


UNNAMED = (
    "x + 1",
    "0.1 + 0.2 = 0.3",
    "x::INT",
    "CAST(2.5 AS INT)",
    "typeof(1.5)",
    "t.x",
    "CASE WHEN id > 2 THEN 1 END",
    "'a'",
)


@pytest.mark.parametrize("value", UNNAMED)
def test_names_without_as(value: str) -> None:
    host = HOSTS["duckdb"]
    # DataFusion takes no two columns of one name.
    for rest in ("id",) if value in ("t.x", "x::INT") else ("id", "*"):
        columns, rows = host.run(f"SELECT {rest}, {value}, NULL AS g, n % 2 FROM t ORDER BY id")
        text = xql_ffi.expand_sql(f"SELECT {rest}, {value}, {BY_ROW} AS g, n % 2 FROM t ORDER BY id", host.tables)
        found, beside = host.run(text)
        assert [column for column in found if column[0] != "g"] == [column for column in columns if column[0] != "g"]
        assert len(beside) == len(rows)


@pytest.mark.parametrize("dialect", ["sqlite", "polars", "postgres", "spark"])
def test_a_name_that_is_not_known_is_asked_for(dialect: str) -> None:
    tables = {"t": pa.table(COLUMNS).schema}
    with pytest.raises(ValueError, match=r"the column x \+ 1 has a name of \w+'s own.* write x \+ 1 AS"):
        xql_ffi.expand_sql(f"SELECT x + 1, {BY_ROW} AS g FROM t", tables, dialect=dialect)


# Conditions, groups, orders and parts of queries, all of which decide what rows there are.
STATEMENTS = {
    "a condition": "SELECT id, {slope} AS g FROM t WHERE CAST(x AS INT) = 3 OR 0.1 + 0.2 <> 0.3 ORDER BY id",
    "a condition of a join": """
        SELECT t.id, u.v, {slope} AS g
        FROM t JOIN (VALUES (0.3, 'a'), (2.5, 'b')) AS u(k, v) ON u.k = 0.1 + 0.2 OR u.k = t.x ORDER BY t.id, u.v""",
    "an order": "SELECT id, {slope} AS g FROM t ORDER BY CAST(x AS INT) % 3, n / 2 NULLS LAST, id",
    "a union": "SELECT 1 AS v, 0.5 AS w, {slope} AS g FROM t UNION ALL SELECT 2.5, 1, 0e0 ORDER BY v, w",
    "groups": "SELECT n % 2 = 0 AS even, sum(n) * 0.1 AS s, avg({slope}) AS g FROM t GROUP BY n % 2 = 0 ORDER BY s",
    "a group by its name": """
        SELECT x::INT % 2 AS k, count(*) + 0.5 AS c, sum({slope}) AS g FROM t GROUP BY k ORDER BY c, k""",
    "more of a group": """
        SELECT (n + 1) * 0.5 AS k, (n + 1) / 2 AS h, sum({slope}) AS g FROM t GROUP BY n + 1 ORDER BY k""",
    "a group in other words": """
        SELECT (x + 1) * 0.5 AS k, x::INT AS i, sum({slope}) AS g FROM t GROUP BY (X+1), CAST(t.x AS INT) ORDER BY k""",
    "sets of groups": """
        SELECT n % 2 AS k, grouping(n % 2) AS l, sum(d * 0.5) AS v, sum({slope}) AS g FROM t GROUP BY ROLLUP (n % 2)
        ORDER BY l, k, v""",
    "what is aggregated": """
        SELECT count(DISTINCT n % 2 + 0.5) AS c, string_agg(s || '!', ',' ORDER BY id) AS s,
            max(n) FILTER (WHERE d > 1.2) + 0.5 AS m, sum({slope}) AS g
        FROM t""",
    "windows": """
        SELECT id, {slope} AS g, sum(d * 0.5) OVER (
            PARTITION BY n % 2 ORDER BY CAST(x AS INT), id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS w
        FROM t QUALIFY row_number() OVER (ORDER BY x + 0.2) > 1 ORDER BY id""",
    "subqueries": """
        SELECT id, (SELECT max(d + 0.2) FROM t AS u WHERE u.n = t.n) AS m, id IN (SELECT n / 1 FROM t) AS i,
            {slope} AS g
        FROM t WHERE EXISTS (SELECT 1 FROM t AS u WHERE u.d = 1.15) ORDER BY id""",
    "a recursion": """
        WITH RECURSIVE r AS (SELECT 1 AS i, 0.5 AS v UNION ALL SELECT i + 1, v * 0.5 FROM r WHERE i < 3)
        SELECT i, v, id, {slope} AS g FROM r, t ORDER BY i, id""",
    "groups that are chosen": "SELECT id, sum({slope}) AS g FROM t GROUP BY id HAVING sum(d + 0.2) > 1.3 ORDER BY id",
    "a constant relation": """
        WITH c AS (SELECT 0.1 + 0.2 AS a, CAST(2.5 AS INT) AS b)
        SELECT id, a, b, a = 0.3 AS e, {slope} AS g FROM t, c ORDER BY id""",
    "a view": "SELECT h, c, r, c = 0.3 AS e, {slope} AS g FROM half AS t ORDER BY id",
    "rows that are written down": """
        SELECT id, v + 0.1 AS w, {slope} AS g FROM t, (VALUES (1), (2.5)) AS r(v) ORDER BY id, w""",
    "one of several": "SELECT DISTINCT ON (n % 2) n % 2 AS k, 0.1 + 0.2 AS v, {slope} AS g FROM t ORDER BY n % 2, id",
    "a column that is read again": """
        SELECT q.v + b.w AS s, typeof(q.v + b.w) AS kind, {slope} AS g
        FROM (SELECT id, x, 1 AS v FROM t) AS q, (SELECT CAST(1 AS TINYINT) AS w) AS b ORDER BY id""",
    "a constant group": "SELECT 'a' AS k, count(*) AS c, sum({slope}) AS g FROM t GROUP BY k",
    "a step": "SELECT id, x - 0.1 * 0.1 * {slope} AS g, d * 0.1 AS v FROM t ORDER BY id",
    "a stopped value": "SELECT id, stop_gradient(d) + 0.2 AS v, {slope} AS g FROM t ORDER BY id",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_parts_of_statements(name: str) -> None:
    host = HOSTS["duckdb"]
    statement = STATEMENTS[name]
    plain = re.sub(r"stop_gradient\((\w+)\)", r"\1", statement.format(slope="CAST(0 AS DOUBLE)"))
    columns, rows = host.run(plain)
    text = xql_ffi.expand_sql(statement.format(slope=BY_ROW), host.tables)
    found, beside = host.run(text)
    keep = [number for number, column in enumerate(columns) if column[0] != "g"]
    assert found == columns, text
    assert [[row[k] for k in keep] for row in beside] == [[row[k] for k in keep] for row in rows], text


def test_a_derivative_has_the_reading_of_datafusion() -> None:
    """The words are of what the query shows; the derivative of an expression is that of what it means."""
    host = HOSTS["duckdb"]
    statement = "SELECT id, y, grad(y, x) AS g FROM (SELECT id, x, x ** 2 + 0.10 AS y FROM t) AS q ORDER BY id"
    text = xql_ffi.expand_sql(statement, host.tables)
    assert "x ** 2 + 0.10 AS y" in text
    _, rows = host.run(text)
    assert [row[2] for row in rows] == [1.0, -3.0, 5.0, 6.0]


def test_a_string_that_has_a_call_in_it() -> None:
    host = HOSTS["datafusion"]
    statement = (
        "SELECT concat(grad(q, x), 'grad(q, x)') AS v FROM (SELECT id, x, x * x AS q FROM t) AS t ORDER BY id LIMIT 1"
    )
    assert host.run(xql_ffi.expand_sql(statement, host.tables))[1] == [{"v": "1.0grad(q, x)"}]


def test_functions_of_the_session_keep_their_types() -> None:
    host = HOSTS["duckdb"]
    host.tables.execute("CREATE OR REPLACE MACRO as_is(a) AS a")
    text = xql_ffi.expand_sql(f"SELECT id, as_is(d) AS v, {BY_ROW} AS g FROM t", host.tables)
    assert dict(host.run(text)[0])["v"] == "DECIMAL(6,2)"
