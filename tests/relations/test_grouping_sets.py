"""Keys that are rolled up are NULL, and so are their derivatives."""

from collections.abc import Sequence

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import message_at_planning

SQUARES = "(SELECT w, w * w AS v FROM (VALUES (1.0), (2.0), (3.0)) AS p(w)) AS q"
SETS = [
    "w, ROLLUP (v)",
    "w, CUBE (v)",
    "GROUPING SETS ((w, v), (w))",
    "GROUPING SETS ((w, v), (w), (v), ())",
    "ROLLUP (w, v)",
]


@pytest.mark.parametrize("sets", SETS)
def test_null_where_the_key_is(ctx: SessionContext, sets: str) -> None:
    """Where w is rolled up as well, so that v may be of several, they agree."""
    found = query(ctx, f"SELECT grad(v, w) AS d, 2 * sqrt(v) AS e FROM {SQUARES} GROUP BY {sets}")
    rows = rows_of(found)
    assert all(d == e for d, e in rows)
    assert any(d is not None for d, _ in rows)


@pytest.mark.parametrize("sets", SETS)
def test_counted_once_above(ctx: SessionContext, sets: str) -> None:
    keys = f"(SELECT w, v FROM {SQUARES} GROUP BY {sets}) AS k"
    found = query(
        ctx,
        "SELECT sum(v) AS s, w * w AS t, grad(sum(v), w) AS d, max(grad(coalesce(v, w), w)) AS e, 2 * w AS f "
        f"FROM {keys} WHERE w IS NOT NULL GROUP BY w",
    )
    rows = rows_of(found)
    assert rows
    assert all(s == t and d == e == f and None not in (t, f) for s, t, d, e, f in rows)


def test_two_keys(ctx: SessionContext) -> None:
    found = query(
        ctx,
        "SELECT grad(coalesce(u, 0) + coalesce(v, 0), w) AS d FROM (SELECT w, w * w AS u, w * w * w AS v "
        "FROM (SELECT 2.0 AS w) AS p) AS q GROUP BY w, CUBE (u, v) ORDER BY d",
    )
    assert_same_rows(rows_of(found), [(0.0,), (4.0,), (12.0,), (16.0,)])


def test_having(ctx: SessionContext) -> None:
    found = query(ctx, f"SELECT w, v FROM {SQUARES} GROUP BY w, ROLLUP (v) HAVING grad(v, w) > 2 ORDER BY w")
    assert_same_rows(rows_of(found), [(2.0, 4.0), (3.0, 9.0)])


# What a derivative adds is, once simplified, equal to a function of the statement or to one that another adds.
EQUAL = [
    "sum(x) AS a, grad(sum(w * x), w) AS d",
    "grad(sum(w * x), w) AS d, grad(sum(w * x + 1), w) AS e",
    "stddev(w * x) AS a, grad(stddev(w * x), w) AS d",
    "avg(v * x) AS a, grad(stddev_pop(v * x), v) AS d, grad(var_pop(v * x), v) AS e",
    "avg(x) FILTER (WHERE x > 1) AS a, grad(avg(w * x) FILTER (WHERE x > 1), w) AS d",
    "grad(sum(w * x) FILTER (WHERE x > 1), w) AS d, grad(sum(w * x + 1) FILTER (WHERE x > 1), w) AS e",
    "grad(sum(w / x) FILTER (WHERE x <> 0), w) AS d, sum(1 / x) FILTER (WHERE x <> 0) AS a",
    "count(x) AS a, corr(x, v) AS b, grad(corr(w * x, v), w) AS d",
    "first_value(x ORDER BY x) AS a, grad(first_value(w * x ORDER BY x), w) AS d",
    "grad(grad(sum(w * w * x), w), w) AS d, sum(2 * x) AS a, grad(sum(w * x), w) AS e",
    "grad(sum(w * x), w) AS d, grad(sum(v * x), v) AS e, jvp(sum(w * x), w, 2.0) AS f",
]
ROWS = (
    "(SELECT p.w, p.v, d.g, d.h, d.x FROM (VALUES (1.5, 0.5), (2.0, 3.0)) AS p(w, v) CROSS JOIN "
    "(VALUES (1, 1, 2.0), (1, 2, 0.5), (2, 2, 3.0), (2, 1, 1.25), (2, 2, 0.0), (3, 1, NULL)) AS d(g, h, x)) AS q"
)


@pytest.mark.parametrize("calls", EQUAL)
def test_equal_functions(ctx: SessionContext, calls: str) -> None:
    """The rows are those of one grouping after another."""
    found = query(ctx, f"SELECT w, v, g, h, {calls} FROM {ROWS} GROUP BY w, v, ROLLUP (g, h)")
    groupings = [("g", "h"), ("g", "NULL"), ("NULL", "NULL")]
    expected = [
        row
        for g, h in groupings
        for row in rows_of(
            query(
                ctx,
                f"SELECT w, v, {g} AS g, {h} AS h, {calls} FROM {ROWS} "
                f"GROUP BY {', '.join(key for key in ('w', 'v', g, h) if key != 'NULL')}",
            )
        )
    ]
    assert len(expected) == 18
    assert_same_rows(sorted(rows_of(found), key=_keys), sorted(expected, key=_keys))


def _keys(row: Sequence[object]) -> str:
    return str(row[:4])


@pytest.mark.parametrize("grouping", ["x * x, w, h", "x * x, w, ROLLUP (h)", "ROLLUP (x * x, w)"])
def test_another_reference(ctx: SessionContext, grouping: str) -> None:
    """`x` and `w` are the same column of one table, by two references."""
    rows = "(SELECT a.x, a.id AS h, b.x AS w FROM t AS a CROSS JOIN t AS b) AS q"
    message = message_at_planning(lambda: ctx.sql(f"SELECT grad(x * x, w) AS d FROM {rows} GROUP BY {grouping}"))
    assert "does not vary with q.w" in message
