"""-0.0 and 0.0 are one number, although DataFusion orders and groups them as two."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of

# The values are 0.0 or -0.0, by the signs of w and x.
ZEROS = "(SELECT w, w * x AS p FROM (SELECT {} AS w) AS v CROSS JOIN (VALUES (1.0), (5.0), (-3.0)) AS q(x)) AS m"


@pytest.mark.parametrize("w", ["0.0", "CAST('-0.0' AS DOUBLE)"])
@pytest.mark.parametrize("over", ["", "OVER ()", "OVER (PARTITION BY w)"])
def test_ties(ctx: SessionContext, over: str, w: str) -> None:
    """Of equal values that for a growing variable."""
    group = "" if over else "GROUP BY w"
    derivatives = f"grad(max(p) {over}, w) AS a, grad(min(p) {over}, w) AS b"
    found = query(ctx, f"SELECT DISTINCT {derivatives} FROM {ZEROS.format(w)} {group}")
    assert_same_rows(rows_of(found), [(5.0, -3.0)])


def test_agreement(ctx: SessionContext) -> None:
    """The derivatives of rows that are equal differ in the sign of a zero."""
    found = query(
        ctx,
        "SELECT abs(grad(p, w)) AS d FROM (SELECT DISTINCT w, 1 + power(w - 2, 2) * x AS p FROM "
        "(SELECT 2.0 AS w) AS a CROSS JOIN (VALUES (1.0), (-1.0)) AS q(x)) AS m",
    )
    assert_same_rows(rows_of(found), [(0.0,)])
