"""Derivatives through joins that only test one of their sides."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of

ROWS = "(SELECT id, x, x * x AS q FROM (VALUES (1, 0.5), (2, 1.5), (3, 2.5)) AS v(id, x)) AS b"
KEYS = "(SELECT k FROM (VALUES (1), (3), (7)) AS a(k)) AS a"


@pytest.mark.parametrize(
    ("tables", "kept"),
    [
        (f"{ROWS} LEFT SEMI JOIN {KEYS} ON b.id = a.k", [0.5, 2.5]),
        (f"{ROWS} LEFT ANTI JOIN {KEYS} ON b.id = a.k", [1.5]),
        (f"{KEYS} RIGHT SEMI JOIN {ROWS} ON b.id = a.k", [0.5, 2.5]),
        (f"{KEYS} RIGHT ANTI JOIN {ROWS} ON b.id = a.k", [1.5]),
    ],
)
def test_the_rows_that_are_kept_have_their_derivatives(ctx: SessionContext, tables: str, kept: list[float]) -> None:
    found = query(ctx, f"SELECT x, grad(q * x, x) AS d FROM {tables} ORDER BY x")
    assert_same_rows(rows_of(found), [(x, 3 * x * x) for x in kept])
