"""Rows whose condition is NULL take no part in an aggregate, nor in its derivative."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of

# The least product is in the row that has no n, the greatest too.
ROWS = "(SELECT w, w * x AS p, n FROM (SELECT 2.0 AS w) AS v CROSS JOIN t_n) AS m"


TABLES = {"t_n": {"x": [1.0, 5.0, -7.0, 9.0], "n": [1, 2, None, None]}}


@pytest.mark.parametrize("over", ["", "OVER ()", "OVER (PARTITION BY w)"])
def test_condition_that_is_null(session: SessionContext, over: str) -> None:
    calls = ", ".join(
        f"grad({function}(p) FILTER (WHERE n <> 3) {over}, w) AS {function}"
        for function in ("min", "max", "sum", "avg")
    )
    group = "" if over else "GROUP BY w"
    found = query(session, f"SELECT DISTINCT {calls} FROM {ROWS} {group}")
    assert_same_rows(rows_of(found), [(1.0, 5.0, 6.0, 3.0)])
