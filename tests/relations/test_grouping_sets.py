"""Keys that are rolled up are NULL, and so are their derivatives."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of

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
    assert all(d == e for d, e in rows_of(found))


@pytest.mark.parametrize("sets", SETS)
def test_counted_once_above(ctx: SessionContext, sets: str) -> None:
    keys = f"(SELECT w, v FROM {SQUARES} GROUP BY {sets}) AS k"
    found = query(
        ctx,
        "SELECT sum(v) AS s, w * w AS t, grad(sum(v), w) AS d, max(grad(coalesce(v, w), w)) AS e, 2 * w AS f "
        f"FROM {keys} WHERE w IS NOT NULL GROUP BY w",
    )
    assert all(s == t and d == e == f for s, t, d, e, f in rows_of(found))


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
