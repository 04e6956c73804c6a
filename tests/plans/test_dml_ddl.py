"""Derivatives in statements that write."""

from collections.abc import Callable
from pathlib import Path

import pytest
from datafusion import SessionContext

from support.cases import Case, check, params
from support.errors import message_at_planning
from support.tables import T

_NEW = "CREATE TABLE w (id BIGINT, d DOUBLE)"
_READ = "SELECT id, d FROM w ORDER BY id"
_SLOPES = "SELECT id, [[grad(x * x * y, x) := 2 * x * y]] AS d FROM t"
_EXPECTED = [(row.id, 2 * row.x * row.y) for row in T]
_COPY_OF_T = "CREATE TABLE w AS SELECT id, x, y, x AS d FROM t"

CASES = [
    Case("insert_select", (_NEW, f"INSERT INTO w {_SLOPES}", _READ), _EXPECTED),
    Case(
        "insert_select_into_named_columns",
        (_NEW, "INSERT INTO w (d, id) SELECT [[grad(x * x * y, x) := 2 * x * y]], id FROM t", _READ),
        _EXPECTED,
    ),
    Case(
        "insert_reports_the_number_of_rows",
        (_NEW, f"INSERT INTO w {_SLOPES} WHERE [[grad(x * x, x) := 2 * x]] > 0"),
        [(sum(row.x > 0 for row in T),)],
    ),
    Case(
        "insert_the_derivative_of_the_table_itself",
        (
            _NEW,
            "INSERT INTO w SELECT id, x FROM t",
            "INSERT INTO w SELECT id + 10, [[grad(d * d * d, d) := 3 * d * d]] FROM w",
            _READ,
        ),
        [(row.id, row.x) for row in T] + [(row.id + 10, 3 * row.x * row.x) for row in T],
    ),
    Case(
        "insert_from_a_recursive_query",
        (
            _NEW,
            """INSERT INTO w
               WITH RECURSIVE r AS (
                 SELECT CAST(0 AS BIGINT) AS id, 1.0 AS d
                 UNION ALL
                 SELECT id + 1, d - (d * d - 2) / [[grad(d * d - 2, d) := 2 * d]] FROM r WHERE id < 2)
               SELECT id, d FROM r""",
            _READ,
        ),
        [(0, 1.0), (1, 1.5), (2, 1.5 - 0.25 / 3)],
    ),
    Case("create_table_as", (f"CREATE TABLE w AS {_SLOPES}", _READ), _EXPECTED),
    Case("create_or_replace_table_as", (_NEW, f"CREATE OR REPLACE TABLE w AS {_SLOPES}", _READ), _EXPECTED),
    Case("create_table_if_not_exists_as", (f"CREATE TABLE IF NOT EXISTS w AS {_SLOPES}", _READ), _EXPECTED),
    Case(
        "select_into",
        ("SELECT id, [[grad(x * x * y, x) := 2 * x * y]] AS d INTO w FROM t", _READ),
        _EXPECTED,
    ),
    Case(
        "copy_a_query_to_parquet",
        (
            f"COPY ({_SLOPES}) TO '{{dir}}/w.parquet' STORED AS PARQUET",
            "CREATE EXTERNAL TABLE w STORED AS PARQUET LOCATION '{dir}/w.parquet'",
            _READ,
        ),
        _EXPECTED,
    ),
    Case(
        "copy_a_query_to_csv",
        (
            f"COPY ({_SLOPES}) TO '{{dir}}/w.csv' STORED AS CSV",
            "CREATE EXTERNAL TABLE w STORED AS CSV LOCATION '{dir}/w.csv' OPTIONS ('format.has_header' 'true')",
            _READ,
        ),
        _EXPECTED,
    ),
    Case(
        "copy_a_query_to_json",
        (
            f"COPY ({_SLOPES}) TO '{{dir}}/w.json' STORED AS JSON",
            "CREATE EXTERNAL TABLE w STORED AS JSON LOCATION '{dir}/w.json'",
            _READ,
        ),
        _EXPECTED,
    ),
    Case(
        "insert_into_files",
        (
            "CREATE EXTERNAL TABLE w (id BIGINT, d DOUBLE) STORED AS PARQUET LOCATION '{dir}/'",
            f"INSERT INTO w {_SLOPES}",
            _READ,
        ),
        _EXPECTED,
    ),
    Case(
        "update_set",
        (_COPY_OF_T, "UPDATE w SET d = [[grad(x * x * y, x) := 2 * x * y]]", _READ),
        _EXPECTED,
    ),
    Case(
        "update_by_a_gradient_step",
        (_COPY_OF_T, "UPDATE w SET d = d - 0.1 * [[grad(power(d - y, 2), d) := 2 * (d - y)]]", _READ),
        [(row.id, row.x - 0.1 * 2 * (row.x - row.y)) for row in T],
    ),
    Case(
        "update_where",
        (_COPY_OF_T, "UPDATE w SET d = 0.0 WHERE [[grad(x * x * y, x) := 2 * x * y]] > 0", _READ),
        [(row.id, 0.0 if 2 * row.x * row.y > 0 else row.x) for row in T],
    ),
    Case(
        "delete_where",
        (_COPY_OF_T, "DELETE FROM w WHERE [[grad(x * x * y, x) := 2 * x * y]] > 0", _READ),
        [(row.id, row.x) for row in T if not 2 * row.x * row.y > 0],
    ),
]


@params(CASES)
def test_dml_ddl(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM w WHERE grad((SELECT SUM(d * d) FROM w), d) < -1000",
        "DELETE FROM w WHERE grad(d * (SELECT SUM(d) FROM w), d) < -1000",
        "UPDATE w SET d = 0.0 WHERE grad((SELECT SUM(d * d) FROM w), d) < -1000",
        "UPDATE w SET d = d - grad((SELECT SUM(d * d) FROM w), d)",
    ],
)
def test_rows_are_changed_by_their_own_columns(
    statement: str, register: Callable[[SessionContext], SessionContext]
) -> None:
    """DataFusion changes all rows when it finds no filter over the table."""
    session = register(SessionContext())
    session.sql("CREATE TABLE w AS SELECT * FROM (VALUES (1, 0.5), (2, 1.5)) AS w(id, d)").collect()
    message = message_at_planning(lambda: session.sql(statement))
    assert "DELETE and UPDATE take derivatives that read the row alone" in message
    assert session.sql("SELECT sum(d) AS s FROM w").to_pydict() == {"s": [2.0]}
