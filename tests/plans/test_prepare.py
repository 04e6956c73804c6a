"""Derivatives in prepared statements and of expressions with placeholders."""

from collections.abc import Callable
from pathlib import Path

import pytest
from datafusion import SessionContext

from support.cases import Case, by_hand, check, params, query, with_calls
from support.compare import Rows, assert_same_rows, rows_of
from support.tables import T

CASES = [
    Case(
        "without_placeholder",
        (
            "PREPARE p AS SELECT id, [[grad(x * x * y, x) := 2 * x * y]] AS d FROM t ORDER BY id",
            "EXECUTE p",
        ),
        [(row.id, 2 * row.x * row.y) for row in T],
    ),
    Case(
        "placeholder_as_constant",
        (
            "PREPARE p (DOUBLE) AS SELECT id, [[grad(x * x * $1, x) := 2 * x * $1]] AS d FROM t ORDER BY id",
            "EXECUTE p(3.5)",
        ),
        [(row.id, 2 * row.x * 3.5) for row in T],
    ),
    Case(
        "placeholder_without_type",
        (
            "PREPARE p AS SELECT id, [[grad(x * x * $1, x) := 2 * x * $1]] AS d FROM t ORDER BY id",
            "EXECUTE p(3.5)",
        ),
        [(row.id, 2 * row.x * 3.5) for row in T],
    ),
    Case(
        "executed_twice",
        (
            "PREPARE p (DOUBLE) AS SELECT id, [[grad(x * x * $1, x) := 2 * x * $1]] AS d FROM t ORDER BY id",
            "EXECUTE p(3.5)",
            "EXECUTE p(-1.0)",
        ),
        [(row.id, -2 * row.x) for row in T],
    ),
    Case(
        "placeholder_as_exponent",
        (
            "PREPARE p (DOUBLE) AS SELECT id, [[grad(power(w, $1), w) := $1 * power(w, $1 - 1)]] AS d "
            "FROM t ORDER BY id",
            "EXECUTE p(2.5)",
        ),
        [(row.id, 2.5 * row.w**1.5) for row in T],
    ),
    Case(
        "placeholder_as_tangent_and_cotangent",
        (
            "PREPARE p (DOUBLE, DOUBLE) AS SELECT id, [[jvp(x * y, x, $1, y, $2) := y * $1 + x * $2]] AS a, "
            "[[vjp(x * y, x, $2) := $2 * y]] AS b FROM t ORDER BY id",
            "EXECUTE p(3.0, -2.0)",
        ),
        [(row.id, 3 * row.y - 2 * row.x, -2 * row.y) for row in T],
    ),
    Case(
        "placeholder_beside_the_derivative",
        (
            "PREPARE p (DOUBLE) AS SELECT id FROM t WHERE [[grad(x * x, x) := 2 * x]] > $1 ORDER BY id",
            "EXECUTE p(1.5)",
        ),
        [(row.id,) for row in T if 2 * row.x > 1.5],
    ),
    Case(
        "union_of_types",
        (
            "PREPARE p AS SELECT q.k, [[grad(v * v, v) := 2 * v]] AS d "
            "FROM (SELECT row_number() OVER (ORDER BY id) AS k, x AS v FROM t UNION ALL "
            "SELECT id, y FROM t) AS q ORDER BY k, d",
            "EXECUTE p",
        ),
        sorted((k, 2 * v) for n, row in enumerate(T, 1) for k, v in ((n, row.x), (row.id, row.y))),
    ),
    Case(
        "prepared_insert",
        (
            "CREATE TABLE w (id BIGINT, d DOUBLE)",
            "PREPARE p (DOUBLE) AS INSERT INTO w SELECT id, [[grad(x * x * $1, x) := 2 * x * $1]] FROM t",
            "EXECUTE p(2.0)",
            "SELECT id, d FROM w ORDER BY id",
        ),
        [(row.id, 4 * row.x) for row in T],
    ),
    Case(
        "prepared_recursion",
        (
            """PREPARE p (DOUBLE) AS
               WITH RECURSIVE root AS (
                 SELECT 0 AS step, CAST(1 AS DOUBLE) AS x
                 UNION ALL
                 SELECT step + 1, x - (x * x - $1) / [[grad(x * x - $1, x) := 2 * x]] FROM root WHERE step < 8)
               SELECT x FROM root ORDER BY step DESC LIMIT 1""",
            "EXECUTE p(9.0)",
        ),
        [(3.0,)],
    ),
]


@params(CASES)
def test_prepare(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (
            "SELECT id, [[grad(x * x * $factor, x) := 2 * x * $factor]] AS d FROM t ORDER BY id",
            [(row.id, 5 * row.x) for row in T],
        ),
        (
            "SELECT id FROM t WHERE [[grad(x * $factor, x) := $factor]] > y ORDER BY id",
            [(row.id,) for row in T if row.y < 2.5],
        ),
    ],
    ids=["select", "where"],
)
@pytest.mark.parametrize("write", [with_calls, by_hand])
def test_parameters_of_sql(ctx: SessionContext, write: Callable[[str], str], template: str, expected: Rows) -> None:
    """`SessionContext.sql` substitutes placeholders itself."""
    result = ctx.sql(write(template), param_values={"factor": 2.5}).to_arrow_table()
    assert_same_rows(rows_of(result), expected)


def test_text_parameters_of_sql(ctx: SessionContext) -> None:
    """Named parameters are text or DataFrames put into the statement before it is parsed."""
    frame = ctx.sql("SELECT x AS a, y AS b FROM t WHERE id = 4")
    result = ctx.sql("SELECT grad(a * a * $factor, a) AS d FROM $frame", factor="b", frame=frame)
    assert_same_rows(rows_of(result.to_arrow_table()), [(12.0,)])


def test_prepared_statements_stay_apart(register: Callable[[SessionContext], SessionContext]) -> None:
    """Two sessions prepare statements of one name."""
    sessions = [register(SessionContext()) for _ in range(2)]
    for exponent, session in enumerate(sessions, start=2):
        query(session, f"PREPARE p (DOUBLE) AS SELECT grad(power(a, {exponent}), a) AS d FROM (SELECT $1 AS a) AS q")
    results = [rows_of(query(session, "EXECUTE p(3.0)")) for session in sessions]
    assert_same_rows(results[0], [(6.0,)])
    assert_same_rows(results[1], [(27.0,)])
