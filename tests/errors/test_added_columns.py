"""Messages call what derivatives add to a plan as the user knows it: no column in them is not the statement's own."""

import pytest
from datafusion import SessionContext

import xql_ffi

GROUPS = "FROM (SELECT SUM(val) AS s FROM w GROUP BY k)"
TEXT = "CAST(CAST({} AS VARCHAR) AS DOUBLE)"
CASES = {
    f"SELECT grad((SELECT SUM({TEXT.format('s')}) {GROUPS}), val) FROM w": "CAST(sum AS VARCHAR) varies with sum",
    f"SELECT jvp((SELECT SUM({TEXT.format('s')}) {GROUPS}), val, 1.0) FROM w": f"grad({TEXT.format('sum')}, sum)",
    f"SELECT grad((SELECT SUM({TEXT.format('val')}) FROM w), val) FROM w": "CAST(val AS VARCHAR) varies with val",
    "SELECT grad((SELECT approx_median(val) FROM w), val) FROM w": "approx_median",
    # The second derivative by the rows of a relation is a matrix.
    "SELECT grad(grad((SELECT SUM(power(val, 3)) FROM w), val), val) FROM w": (
        "4 cells of val, by each of which a gradient by row has a derivative of its own"
    ),
}
# What is drawn again for the derivative is refused by name.
DRAWN = [
    "SELECT grad((SELECT SUM(power(s, 2)) FROM (SELECT random() * SUM(val) AS s FROM w GROUP BY k)), val) FROM w",
    """WITH d AS (SELECT k, CASE WHEN random() < 0.5 THEN 0.0 ELSE val END AS dropped FROM w)
       SELECT grad((SELECT SUM(dropped * dropped) FROM d), val) FROM w""",
]


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    session = xql_ffi.register(SessionContext())
    session.sql("CREATE TABLE w AS SELECT value AS k, 0.1 * value AS val FROM range(0, 4)").collect()
    return session


def message(ctx: SessionContext, sql: str) -> str:
    """The message of the refusal, if a statement is refused."""
    try:
        ctx.sql(sql).collect()
    except xql_ffi.DifferentiationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("sql", CASES)
def test_columns_are_called_as_what_they_are_of(ctx: SessionContext, sql: str) -> None:
    shown = message(ctx, sql)
    assert CASES[sql] in shown
    assert "∂" not in shown


@pytest.mark.parametrize("sql", DRAWN)
def test_draws_are_called_as_they_are_written(ctx: SessionContext, sql: str) -> None:
    shown = message(ctx, sql)
    assert not shown or "random()" in shown
    assert "∂" not in shown
    assert "cotangent" not in shown
