"""Correlated subqueries over the relation of the variable: they count the row's own cell, as the row itself does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from datafusion import SessionContext

from support.cases import query
from support.errors import message_at_planning
from support.stock import ON_STOCK

VALUES = [0.5, -1.5, 2.0]
TABLES = {
    "m": {"k": [1, 2, 3], "g": [0, 0, 1], "x": [1.0, 2.0, 4.0], "val": VALUES},
    "y": {"k": [1, 2, 4], "y": [1.0, 3.0, 5.0]},
    "p": {"item": [0, 0, 1, 1], "day": [1, 2, 1, 3], "val": [2.0, 3.0, 5.0, 7.0]},
}


def _close_to(expected: Sequence[float | None]) -> list[Any]:
    """Numbers within rounding, and NULL where it is NULL."""
    return [None if number is None else pytest.approx(number, rel=1e-14) for number in expected]


def _derivatives(ctx: SessionContext, sql: str) -> list[float | None]:
    found: list[float | None] = query(ctx, sql).column("d").to_pylist()
    return found


@pytest.mark.parametrize(
    ("subquery", "expected"),
    [
        ("SELECT SUM(b.val * b.val) FROM m b WHERE b.g = m.g", [3.0, 7.0, 12.0]),
        ("SELECT AVG(b.val) FROM m b WHERE b.g = m.g", [-0.25, -1.25, 4.0]),
        ("SELECT MAX(b.val) FROM m b WHERE b.g = m.g", [1.0, 0.5, 4.0]),
        ("SELECT VAR_POP(b.val) FROM m b WHERE b.g = m.g", [1.5, 2.5, 0.0]),
        ("SELECT coalesce(SUM(b.val * b.val), 0) + 1 FROM m b WHERE b.g = m.g", [4.0, 8.0, 13.0]),
        ("SELECT SUM(b.val * b.val) FROM m b WHERE b.g = m.g AND b.k = m.k", [0.75, 6.75, 12.0]),
        ("SELECT SUM(b.val * b.val) FROM m b WHERE b.k = m.k", [0.75, 6.75, 12.0]),
        ("SELECT SUM(b.v) FROM (SELECT g, val * val AS v FROM m) b WHERE b.g = m.g", [3.0, 7.0, 12.0]),
        # The row itself is not among the rows of the subquery, which is NULL where there is none.
        ("SELECT SUM(b.val * b.val) FROM m b WHERE b.k = m.k + 1", [2.25, 4.0, None]),
        ("SELECT COUNT(b.val) FROM m b WHERE b.k = m.k + 1", [1.0, 1.0, 0.0]),
        # What does not vary with the row's cell is a constant.
        ("SELECT SUM(b.x) FROM m b WHERE b.g = m.g", [3.0, 3.0, 4.0]),
        ("SELECT COUNT(*) FROM m b WHERE b.g = m.g", [2.0, 2.0, 1.0]),
        ("SELECT MAX(b.x) FROM m b WHERE b.g = m.g AND b.val < 1", [2.0, 2.0, None]),
    ],
)
def test_the_row_itself_counts(session: SessionContext, subquery: str, expected: list[float | None]) -> None:
    for variable, relation in [("m", ""), ("m", "WITH m AS (SELECT k, g, x, val * 1 AS val FROM m) ")]:
        found = _derivatives(
            session, f"{relation}SELECT grad(({subquery}) * {variable}.val, val) AS d FROM m ORDER BY k"
        )
        assert found == _close_to(expected)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # In the row of 0.5: the sum of 0.25 and 2.25, and 0.5 * 2 * 0.5; along 1 in all rows, 0.5 * 2 * (0.5 - 1.5).
        (
            "SELECT jvp((SELECT SUM(b.val * b.val) FROM m b WHERE b.g = m.g) * val, val, 1.0) AS d FROM m ORDER BY k",
            [1.5, 5.5, 12.0],
        ),
        (
            "SELECT vjp((SELECT SUM(b.val * b.val) FROM m b WHERE b.g = m.g) * val, val, x) AS d FROM m ORDER BY k",
            [3.0, 14.0, 48.0],
        ),
        # Two subqueries of one expression, one of them over all rows.
        (
            """SELECT grad((SELECT SUM(b.val) FROM m b WHERE b.g = m.g) * (SELECT SUM(b.val * b.x) FROM m b), val) AS d
               FROM m ORDER BY k""",
            [5.5 - 1.0, 5.5 - 2.0, 5.5 + 8.0],
        ),
        # One in another.
        (
            """SELECT grad((SELECT SUM(b.val * s) FROM (SELECT g, val, (SELECT SUM(c.val) FROM m c WHERE c.g = a.g) AS s
               FROM m a) b WHERE b.g = m.g), val) AS d FROM m ORDER BY k""",
            [-2.0, -2.0, 4.0],
        ),
        # Another row's group.
        ("SELECT grad((SELECT SUM(b.val * b.val) FROM m b WHERE b.g = m.k), val) AS d FROM m WHERE k = 1", [0.0]),
        (
            "SELECT k AS d FROM m WHERE grad((SELECT SUM(b.val) FROM m b WHERE b.g = m.g) * val, val) < 2 ORDER BY k",
            [1, 2],
        ),
        (
            """SELECT grad(CASE WHEN x > (SELECT MIN(b.val) FROM m b WHERE b.g = m.g) THEN val END, val) AS d
               FROM m ORDER BY k""",
            [1.0] * 3,
        ),
        (
            """SELECT grad(val * (SELECT SUM(b.val) FROM m b WHERE b.g = m.g), val) AS d FROM m
               WHERE EXISTS (SELECT 1 FROM m b WHERE b.k = m.k + 1) AND k NOT IN (SELECT b.k FROM m b WHERE b.val > 1)
               ORDER BY d""",
            [-2.5, -0.5],
        ),
        # Which rows there are is constant.
        (
            """SELECT grad((SELECT SUM(p.val * p.val) FROM p WHERE day = (SELECT MAX(q.day) FROM p q
               WHERE q.item = p.item)), val) AS d FROM p ORDER BY item, day""",
            [0.0, 6.0, 0.0, 14.0],
        ),
        ("SELECT grad(x * (SELECT SUM(y.y) FROM y WHERE y.y = m.x), x) AS d FROM m ORDER BY k", [1.0, None, None]),
    ],
)
def test_places(session: SessionContext, sql: str, expected: list[float | None]) -> None:
    assert _derivatives(session, sql) == _close_to(expected)


def test_what_from_has_is_another_reference(session: SessionContext) -> None:
    for source in [
        "m, LATERAL (SELECT SUM(b.val) AS s FROM m b WHERE b.g = m.g) AS l",
        "m JOIN (SELECT g, SUM(val) AS s FROM m GROUP BY g) l ON l.g = m.g",
    ]:
        assert _derivatives(session, f"SELECT grad(s * val, val) AS d FROM {source} ORDER BY k") == [-1.0, -1.0, 2.0]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("grad((SELECT SUM(val * val) FROM m), a.val) > b.x", [(1, None), (2, None), (3, 1), (3, 2)]),
        ("grad((SELECT SUM(val * val) FROM m) * a.x, a.val) > b.x", [(1, None), (2, None), (3, 1), (3, 2), (3, 3)]),
        ("b.k = a.k AND b.x > grad((SELECT SUM(val * val) FROM m), a.val)", [(1, None), (2, 2), (3, None)]),
    ],
)
@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_conditions_of_joins(
    session: SessionContext, kind: str, condition: str, expected: list[tuple[int, int | None]]
) -> None:
    rows = query(session, f"SELECT a.k AS a, b.k AS b FROM m a {kind} m b ON {condition} ORDER BY a.k, b.k")
    found = list(zip(rows.column("a").to_pylist(), rows.column("b").to_pylist(), strict=True))
    assert found == [pair for pair in expected if kind == "LEFT JOIN" or pair[1] is not None]


def test_a_condition_of_both_sides(session: SessionContext) -> None:
    condition = "grad((SELECT SUM(val * val) FROM m) * b.x, a.val) > 5"
    rows = query(session, f"SELECT a.k AS a, b.k AS b FROM m a JOIN m b ON {condition} ORDER BY a.k, b.k")
    assert rows.to_pydict() == {"a": [3, 3], "b": [2, 3]}
    message = message_at_planning(lambda: session.sql(f"SELECT a.k FROM m a LEFT JOIN m b ON {condition}"))
    assert "in the condition of a join" in message


@pytest.mark.parametrize("value", ["SELECT SUM(val) FROM m", "SELECT SUM(b.val) FROM m b WHERE b.g = m.g"])
def test_what_is_stopped_does_not_vary(session: SessionContext, value: str) -> None:
    for expression, expected in [("{} * 3", [0.0] * 3), ("{} * val", None)]:
        shown = expression.format(f"stop_gradient(({value}))")
        found = _derivatives(session, f"SELECT grad({shown}, val) AS d FROM m ORDER BY k")
        assert found == (expected or _derivatives(session, f"SELECT ({value}) AS d FROM m ORDER BY k"))


@pytest.mark.skipif(ON_STOCK, reason="DataFusion binds the name before a planner sees the statement")
def test_a_bare_name_of_a_column_that_using_joins(session: SessionContext) -> None:
    for k, condition in [("k", "k > 1"), ("m.k", "m.k > 1")]:
        value = f"SELECT SUM(m.val * coalesce(y.y, 1) * {k}) FROM m LEFT JOIN y USING (k) WHERE {condition}"
        assert _derivatives(session, f"SELECT grad(({value}), val) AS d FROM m ORDER BY k") == [0.0, 6.0, 3.0]


@pytest.mark.skipif(ON_STOCK, reason="DataFusion binds the name before a planner sees the statement")
def test_a_bare_name_that_may_be_outside(session: SessionContext) -> None:
    value = "SELECT SUM(b.val * k) FROM m b LEFT JOIN y USING (k)"
    message = message_at_planning(lambda: session.sql(f"SELECT grad(({value}), val) AS d FROM m"))
    assert re.search("the bare name of a column that USING joins.*write the table before it", message)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            """WITH q AS (SELECT k, val, (SELECT SUM(b.val) FROM m b WHERE b.g = m.g) AS s FROM m)
               SELECT grad(s * val, val) FROM q""",
            "reads the rows that (m.)?val comes from.*in place of the column",
        ),
        (
            """WITH q AS (SELECT k, val, (SELECT SUM(b.val) FROM m b WHERE b.g = m.g) AS s FROM m),
                    r AS (SELECT s * s AS t, val FROM q) SELECT grad(t, val) FROM r""",
            "reads the rows that (m.)?val comes from.*in place of the column",
        ),
        (
            "SELECT grad((SELECT SUM(DISTINCT b.val) FROM m b WHERE b.g = m.g), val) FROM m",
            "no derivative is known for an aggregate of DISTINCT",
        ),
        ("SELECT grad((SELECT APPROX_MEDIAN(b.val) FROM m b WHERE b.g = m.g), val) FROM m", "function approx_median"),
    ],
)
def test_refused(session: SessionContext, sql: str, says: str) -> None:
    message = message_at_planning(lambda: session.sql(sql))
    assert re.search(says, message), message


def test_a_column_of_a_subquery_that_does_not_vary(session: SessionContext) -> None:
    for other in ["SUM(b.x)", "COUNT(*)", "MAX(b.k)"]:
        q = f"SELECT k, val, (SELECT {other} FROM m b WHERE b.g = m.g) AS s FROM m"
        found = _derivatives(session, f"WITH q AS ({q}) SELECT grad(s * val * val, val) AS d FROM q ORDER BY k")
        values = {"SUM(b.x)": [3, 3, 4], "COUNT(*)": [2, 2, 1], "MAX(b.k)": [2, 2, 3]}[other]
        assert found == [2 * s * val for s, val in zip(values, VALUES, strict=True)]


@pytest.mark.parametrize("name", ["q", "__scalar_sq_1"])
def test_a_derived_table_of_any_name_is_another_reference(session: SessionContext, name: str) -> None:
    """DataFusion gives such names to the subqueries that it takes apart."""
    sums = "SELECT SUM(b.val) AS s, b.g FROM m b GROUP BY b.g"
    sql = (
        f"SELECT grad(m.val * {name}.s, m.val) AS d FROM m LEFT JOIN ({sums}) AS {name} ON {name}.g = m.g ORDER BY m.k"
    )
    assert _derivatives(session, sql) == [-1.0, -1.0, 2.0]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("m.val > 1 OR EXISTS (SELECT 1 FROM y WHERE y.k = m.k)", [1, 1, 1]),
        ("m.val < 0 OR m.k IN (SELECT y.k FROM y)", [1, 1, 0]),
        ("m.val < 0 OR m.k NOT IN (SELECT y.k FROM y)", [0, 1, 1]),
        ("m.val > 1 OR EXISTS (SELECT 1 FROM m b WHERE b.g = m.g AND b.val > m.val)", [0, 1, 1]),
    ],
)
def test_rows_that_one_of_two_conditions_keeps(session: SessionContext, condition: str, kept: list[int]) -> None:
    """The rows are marked by whether they have a partner; which are kept is constant."""
    slopes = [2 * val + 1 for val in VALUES]
    total = f"SELECT SUM(val * val + val) AS l FROM m WHERE {condition}"
    by_row = f"WITH loss AS ({total}) SELECT grad((SELECT l FROM loss), val) AS d FROM m ORDER BY k"
    assert _derivatives(session, by_row) == [slope * one for slope, one in zip(slopes, kept, strict=True)]
    rows = f"SELECT k, val, val * val + val AS y FROM m WHERE {condition}"
    of_rows = f"WITH q AS ({rows}) SELECT grad(y, val) AS d FROM q ORDER BY k"
    assert _derivatives(session, of_rows) == [slope for slope, one in zip(slopes, kept, strict=True) if one]
