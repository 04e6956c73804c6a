"""Messages call what derivatives add to a plan as the user knows it: no name of a column of the plan that is not the statement's own."""

import pytest
from datafusion import SessionContext

import xql_ffi

GROUPS = "FROM (SELECT SUM(val) AS s FROM w GROUP BY k)"
CASES = {
    # The relation of the variable, and what is computed from it with a draw.
    "SELECT grad((SELECT SUM(power(s, 2)) FROM (SELECT random() * SUM(val) AS s FROM w GROUP BY k)), val) FROM w": "",
    f"SELECT grad((SELECT SUM(CAST(CAST(s AS VARCHAR) AS DOUBLE)) {GROUPS}), val) FROM w": "CAST(sum AS VARCHAR) varies with sum",
    f"SELECT jvp((SELECT SUM(CAST(CAST(s AS VARCHAR) AS DOUBLE)) {GROUPS}), val, 1.0) FROM w": "grad(CAST(CAST(sum",
    "SELECT grad((SELECT SUM(CAST(CAST(val AS VARCHAR) AS DOUBLE)) FROM w), val) FROM w": "CAST(val AS VARCHAR) varies with val",
    "SELECT grad((SELECT approx_median(val) FROM w), val) FROM w": "approx_median",
    # The second derivative by the rows of a relation is a matrix.
    "SELECT grad(grad((SELECT SUM(power(val, 3)) FROM w), val), val) FROM w": (
        "4 cells of val, by each of which a gradient by row has a derivative of its own"
    ),
}


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    session = xql_ffi.register(SessionContext())
    session.sql("CREATE TABLE w AS SELECT value AS k, 0.1 * value AS val FROM range(0, 4)").collect()
    return session


@pytest.mark.parametrize("sql", CASES)
def test_columns_are_called_as_what_they_are_of(ctx: SessionContext, sql: str) -> None:
    try:
        ctx.sql(sql).collect()
    except xql_ffi.DifferentiationError as error:
        assert CASES[sql] in str(error)
        assert "∂" not in str(error)
    else:
        # What is drawn once may have a derivative.
        assert not CASES[sql]
