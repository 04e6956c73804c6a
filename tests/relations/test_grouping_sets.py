"""Keys that are rolled up are NULL, and so are their derivatives."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of

SQUARES = "(SELECT w, w * w AS v FROM (VALUES (1.0), (2.0), (3.0)) AS p(w)) AS q"
SETS = ["w, ROLLUP (v)", "w, CUBE (v)", "GROUPING SETS ((w, v), (w))", "GROUPING SETS ((w, v), (w), (v), ())", "ROLLUP (w, v)"]


@pytest.mark.parametrize("sets", SETS)
def test_null_where_the_key_is(ctx: SessionContext, sets: str) -> None:
    """Where w is rolled up as well, so that v may be of several, they agree."""
    found = query(ctx, f"SELECT w, v, grad(v, w) AS d FROM {SQUARES} GROUP BY {sets} ORDER BY w, v")
    assert all(d == (None if v is None else 2 * v**0.5) for _, v, d in rows_of(found))


@pytest.mark.parametrize("sets", SETS)
def test_counted_once_above(ctx: SessionContext, sets: str) -> None:
    keys = f"(SELECT w, v FROM {SQUARES} GROUP BY {sets}) AS k"
    found = query(ctx, f"SELECT w, sum(v) AS s, grad(sum(v), w) AS d, max(grad(coalesce(v, w), w)) AS e FROM {keys} GROUP BY w")
    for w, s, d, e in rows_of(found):
        assert w is None or (s, d, e) == (w * w, 2 * w, 2 * w)


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
