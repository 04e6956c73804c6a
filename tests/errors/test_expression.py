"""Expressions that have no derivative, or none that can be computed without evaluating something volatile twice."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from datafusion import SessionContext, udf

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import Refused, assert_refused, assert_says, message_at_planning, refusals
from support.sessions import session
from support.tables import TABLES, T

UNSUPPORTED = [
    Refused("python_udf", "SELECT grad(halve(x), x) AS d FROM t", ["halve", r"\bx\b", "rule"]),
    Refused("inside", "SELECT grad(sin(x * halve(x)), x) AS d FROM t", ["halve", r"\bx\b", "rule"]),
    Refused("in_a_branch", "SELECT grad(CASE WHEN x > 0 THEN halve(x) ELSE x END, x) AS d FROM t", ["halve", "rule"]),
    Refused("jvp", "SELECT jvp(y * halve(x), y, 1.0, x, 1.0) AS d FROM t", ["halve", r"\bx\b", "rule"]),
    Refused("vjp", "SELECT vjp(halve(x), x, 1.0) AS d FROM t", ["halve", r"\bx\b", "rule"]),
    Refused("nested", "SELECT grad(grad(halve(x), x), x) AS d FROM t", ["halve", r"\bx\b", "rule"]),
    Refused("in_a_filter", "SELECT id FROM t WHERE grad(halve(x), x) > 0", ["halve", r"\bx\b", "rule"]),
    Refused("in_an_aggregate", "SELECT SUM(grad(halve(x), x)) AS d FROM t", ["halve", r"\bx\b", "rule"]),
    Refused(
        "in_a_recursion",
        "WITH RECURSIVE r AS (SELECT 1.0 AS x UNION ALL SELECT x - grad(halve(x), x) FROM r WHERE x > 2) SELECT "
        "x FROM r",
        ["halve", r"\bx\b", "rule"],
    ),
    Refused("array", "SELECT grad(array_element(make_array(x, x), 1), x) AS d FROM t", ["array|get_field", r"\bx\b"]),
    Refused("struct", "SELECT grad(named_struct('a', x)['a'], x) AS d FROM t", ["struct|get_field", r"\bx\b"]),
    Refused(
        "correlated_subquery_of_the_variable",
        "SELECT grad(x * (SELECT MAX(v.y) FROM v WHERE v.x > t.x), x) AS d FROM t",
        ["subquery", r"\bx\b"],
    ),
    Refused(
        "correlated_subquery_of_the_variable_alone",
        "SELECT grad((SELECT MAX(v.y) FROM v WHERE v.x > t.x), x) AS d FROM t",
        ["subquery", r"\bx\b"],
    ),
    Refused("text", "SELECT grad(g, x) AS d FROM t", ["grad", "Utf8", r"\bg\b"]),
    Refused("truth_value", "SELECT grad(x > 0, x) AS d FROM t", ["grad", "Boolean", r"x > "]),
    Refused("array_result", "SELECT grad(make_array(x), x) AS d FROM t", ["grad", "list", r"\[(t\.)?x\]|make_array"]),
]

VOLATILE = [
    Refused("product", "SELECT grad(x * random(), x) AS d FROM t", ["random", "volatile"]),
    Refused("argument", "SELECT grad(sin(x + random()), x) AS d FROM t", ["random", "volatile"]),
    Refused("quotient", "SELECT grad(random() / x, x) AS d FROM t", ["random", "volatile"]),
    Refused(
        "condition",
        "SELECT grad(CASE WHEN random() > 0.5 THEN x ELSE 2 * x END, x) AS d FROM t",
        ["random", "volatile"],
    ),
    Refused("udf", "SELECT grad(x * dice(x), x) AS d FROM t", ["dice"]),
    Refused("udf_of_another_column", "SELECT grad(x * dice(y), x) AS d FROM t", ["dice", "volatile"]),
    # Whether it is NULL decides whether the derivative is, so it would have to be evaluated again.
    Refused("summand_that_may_be_null", "SELECT grad(x * y + dice(y), x) AS d FROM t", ["dice", "volatile"]),
    Refused("jvp", "SELECT jvp(x * random(), x, 2.0) AS d FROM t", ["random", "volatile"]),
    Refused("vjp", "SELECT vjp(x * random(), x, 2.0) AS d FROM t", ["random", "volatile"]),
]


@pytest.fixture(scope="module")
def with_udfs() -> SessionContext:
    """A session with two Python functions, of which one is volatile."""
    ctx = session(TABLES)
    for name, volatility in (("halve", "immutable"), ("dice", "volatile")):
        ctx.register_udf(
            udf(lambda a: pc.divide(a, 2.0), [pa.float64()], pa.float64(), volatility=volatility, name=name)
        )
    return ctx


@refusals(UNSUPPORTED)
def test_unsupported(with_udfs: SessionContext, case: Refused) -> None:
    assert_refused(with_udfs, case)


@refusals(VOLATILE)
def test_volatile(with_udfs: SessionContext, case: Refused) -> None:
    assert_refused(with_udfs, case)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("grad(x + random(), x)", [(1.0,) for _ in T]),
        ("grad(x * x - random(), x)", [(2 * row.x,) for row in T]),
        ("grad(random(), x)", [(0.0,) for _ in T]),
        ("grad(x * x, x) + 0 * random()", [(2 * row.x,) for row in T]),
    ],
)
def test_volatile_summands_vanish(
    with_udfs: SessionContext, expression: str, expected: list[tuple[object, ...]]
) -> None:
    assert_same_rows(rows_of(query(with_udfs, f"SELECT {expression} AS d FROM t ORDER BY id")), expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("grad(x * halve(y), x)", [(row.y / 2,) for row in T]),
        ("grad(halve(y), x)", [(0.0,) for _ in T]),
        ("halve(grad(x * x, x))", [(row.x,) for row in T]),
        ("jvp(x * y, x, halve(y))", [(row.y * row.y / 2,) for row in T]),
    ],
)
def test_unknown_functions_of_constants(
    with_udfs: SessionContext, expression: str, expected: list[tuple[object, ...]]
) -> None:
    """What does not depend on the variable needs no rule."""
    assert_same_rows(rows_of(query(with_udfs, f"SELECT {expression} AS d FROM t ORDER BY id")), expected)


def test_same_function_name_in_another_session() -> None:
    """A user's own function of a built-in name is not differentiated by the rule of the built-in one."""
    ctx = session(TABLES)
    ctx.register_udf(udf(lambda a: pc.multiply(a, 7.0), [pa.float64()], pa.float64(), "immutable", "sin"))
    assert_says(message_at_planning(lambda: ctx.sql("SELECT grad(sin(x), x) AS d FROM t")), ["sin"])


def test_dates_and_text_beside_the_variable(with_udfs: SessionContext) -> None:
    statement = (
        "SELECT grad(x * x * CASE WHEN g LIKE 'a%' AND DATE '2024-01-02' > DATE '2024-01-01' "
        "THEN CAST(length(g) AS DOUBLE) ELSE 3.0 END, x) AS d FROM t ORDER BY id"
    )
    expected = [(2 * row.x * (1.0 if row.g == "a" else 3.0),) for row in T]
    assert_same_rows(rows_of(query(with_udfs, statement)), expected)
