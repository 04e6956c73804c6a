"""A branch that is not taken contributes nothing, whatever its derivative is multiplied by in the nodes above.

The derivatives are those by differences of the statement itself, at points that are inside of the branches.
"""

import numpy as np
import pytest
from datafusion import SessionContext

import xql_ffi
from support.differences import central
from support.sessions import session

# By what is computed of x: the derivatives of these are infinite or NaN where no branch that varies is taken.
CLAMPS = {
    "CASE WHEN x > 0 THEN x ELSE 0.0 END": ("sqrt(y)", "cbrt(y)", "power(y, 0.5)", "power(y, 0.3)", "y * sqrt(y)"),
    "greatest(x, 0.0)": (
        *("sqrt(y)", "power(y, 0.3)", "sqrt(y) + sqrt(y * 2)"),
        # Another choice above it.
        *("sqrt(least(y, 1.5))", "acos(1 - least(y, 1.5))", "sqrt(coalesce(y, 1)) * y", "sqrt(greatest(y, -1) * 2)"),
        "CASE WHEN id < 9 THEN 3 * sqrt(CASE WHEN y < 0.5 THEN y ELSE 0.5 * y END) ELSE y END",
    ),
    "-least(-x, 0.0)": ("sqrt(y)", "sqrt(least(y, 1.5))"),
    "1 - least(1 - x, 1.0)": ("sqrt(y)",),
    "greatest(0.0, x, -1.0)": ("sqrt(y)",),
    "least(x, 1.0)": ("acos(y)", "sqrt(1 - y * y)"),
    "coalesce(nullif(greatest(x, -1.5), -1.5), 0.0)": ("sqrt(y)",),
    "nvl(CASE WHEN x > 0 THEN x END, 0.0)": ("sqrt(y)",),
    "nanvl(CASE WHEN x > 0 THEN x ELSE CAST('NaN' AS DOUBLE) END, 0.0)": ("sqrt(y)",),
    "2 * greatest(x, 0.0) + least(greatest(x, 0.0), 1.0)": ("sqrt(y)",),
    "greatest(least(x, 1.0), 0.0)": ("sqrt(y)", "sqrt(1 - y)"),
    "stop_gradient(x) * greatest(x, 0.0)": (),
}
POINTS = [-2.0, -0.5, 0.25, 0.75, 3.0]
# What is between the clamp, of `k` by its column `y`, and the function of it.
BETWEEN = {
    "a CTE": "SELECT id, x, y FROM k",
    "a column that passes it on": "SELECT id, x, v AS y FROM (SELECT id, x, y * 1.0 AS v, y FROM k WHERE id >= 0) AS s",
    "a join": "SELECT k.id, k.x, k.y FROM k JOIN names ON names.id = k.id",
    "an outer join": "SELECT names.id, k.x, k.y FROM names LEFT JOIN k ON names.id = k.id",
    "a union": "SELECT id, x, y FROM k WHERE id < 2 UNION ALL SELECT id, x, y FROM k WHERE id >= 2",
    "a constant in a union": "SELECT id, x, y FROM k UNION ALL SELECT id + 10 AS id, x, 0.5 FROM k",
    "a sum": "SELECT id, x, SUM(y) AS y FROM k GROUP BY id, x",
    "an average": "SELECT id, x, AVG(y) FILTER (WHERE id >= 0) AS y FROM k GROUP BY id, x",
    "an order": "SELECT id, x, y FROM k ORDER BY id LIMIT 4",
    "one row of each": "SELECT DISTINCT ON (id) id, x, y FROM k ORDER BY id",
    "a window beside": "SELECT id, x, y FROM (SELECT id, x, y, ROW_NUMBER() OVER (ORDER BY id) AS n FROM k) AS s",
    "a group's key": "SELECT id, x, y FROM k GROUP BY id, x, y",
    "equal rows": "SELECT DISTINCT id, x, y FROM k",
    "a window of the row": """SELECT id, x,
        SUM(y) OVER (PARTITION BY id) + stddev_pop(y) OVER (PARTITION BY id) AS y FROM k""",
    "a window that slides": """SELECT id, x,
        SUM(y) OVER (PARTITION BY id ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS y FROM k""",
    "windows of windows": """SELECT id, x, SUM(y + 3 * sqrt(s)) OVER (PARTITION BY id) AS y
        FROM (SELECT id, x, y, AVG(y) OVER (PARTITION BY id) AS s FROM k) AS s""",
    "the greatest of a window": "SELECT id, x, MAX(y) OVER (PARTITION BY id ORDER BY x) AS y FROM k",
    "the row before": "SELECT id, x, LAG(y, 0, 0.0) OVER (ORDER BY id) AS y FROM k",
    "the first that is not NULL": """SELECT id, x, FIRST_VALUE(nullif(y, -5.0)) IGNORE NULLS
        OVER (ORDER BY id DESC ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING) AS y FROM k""",
    "the first of a group": "SELECT id, x, FIRST_VALUE(y ORDER BY id) AS y FROM k GROUP BY id, x",
    "iterations": """WITH RECURSIVE r AS (SELECT 0 AS step, id, x, CAST(0.3 AS DOUBLE) AS y, y AS clamped FROM k
        UNION ALL SELECT step + 1, id, x, clamped AS y, clamped FROM r WHERE step < 2)
        SELECT id, x, y FROM r WHERE step = 2""",
}


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    ids = list(range(len(POINTS)))
    return session({"points": {"id": ids, "x": POINTS}, "names": {"id": ids}, "moves": {"eps": [0.0]}})


def statement(clamp: str, between: str, function: str, selected: str = "grad({}, x)") -> str:
    """A function of a clamp, each in a query of its own."""
    return f"""WITH k AS (SELECT id, x, {clamp} AS y FROM points), b AS ({between})
        SELECT id, {selected.format(function)} AS d FROM b WHERE id < 4 ORDER BY id"""


def materialized(sql: str) -> str:
    """The statement with its clamp in a relation that is computed once."""
    return sql.replace("WITH k AS (", "WITH k AS MATERIALIZED (", 1)


def by_differences(ctx: SessionContext, sql: str) -> np.ndarray:
    """The derivatives of `sql` by each row's own x."""

    def moved(step: float) -> list[float]:
        shifted = sql.replace("FROM points)", f"FROM (SELECT id, x + {step!r} AS x FROM points) AS points)", 1)
        return list(ctx.sql(shifted).to_pydict()["d"])

    return central(moved)


@pytest.mark.parametrize("between", BETWEEN)
def test_nodes_between(ctx: SessionContext, between: str) -> None:
    for clamp in ("greatest(x, 0.0)", "CASE WHEN x > 0 THEN x ELSE 0.0 END"):
        sql = statement(clamp, BETWEEN[between], "sqrt(y)")
        expected = by_differences(ctx, statement(clamp, BETWEEN[between], "sqrt(y)", "{}"))
        found = ctx.sql(sql).to_pydict()["d"]
        assert len(found) == 4
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9, err_msg=sql)
        assert found[:2] == [0.0, 0.0], sql


@pytest.mark.parametrize("between", [name for name in BETWEEN if name != "iterations"])
def test_all_rows_moving(ctx: SessionContext, between: str) -> None:
    """Rows that move together have a tangent that is told apart in the same way, in a relation of its own too."""
    for clamp in ("greatest(x, 0.0)", "CASE WHEN x > 0 THEN x ELSE 0.0 END"):
        values = statement(clamp, BETWEEN[between], "sqrt(y)", "{}")
        expected = by_differences(ctx, values)
        for sql in (moved := statement(clamp, BETWEEN[between], "sqrt(y)", "jvp({}, x, 1.0)"), materialized(moved)):
            found = ctx.sql(sql).to_pydict()["d"]
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9, err_msg=sql)


@pytest.mark.parametrize("clamp", CLAMPS)
def test_functions_of_clamps(ctx: SessionContext, clamp: str) -> None:
    for function in CLAMPS[clamp]:
        expected = by_differences(ctx, statement(clamp, BETWEEN["a CTE"], function, "{}"))
        found = ctx.sql(statement(clamp, BETWEEN["a CTE"], function)).to_pydict()["d"]
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9, err_msg=function)
        summed = f"WITH k AS (SELECT id, SUM({clamp}) AS y FROM points GROUP BY id) SELECT SUM({function}) AS l FROM k"
        by_row = ctx.sql(
            f"WITH loss AS ({summed}) SELECT grad((SELECT l FROM loss), x) AS d FROM points WHERE id < 4 ORDER BY id"
        ).to_pydict()["d"]
        np.testing.assert_allclose(by_row, expected, rtol=1e-8, atol=1e-9, err_msg=f"by row: {function}")


@pytest.mark.parametrize(
    ("of_clamp", "function"),
    [("ln(y)", "z * z"), ("1 / y", "1 / (1 + z)"), ("y * y", "sqrt(z)"), ("sqrt(y)", "power(z, 0.25)")],
)
def test_chains(ctx: SessionContext, of_clamp: str, function: str) -> None:
    """What is computed of a clamp is infinite, or has an infinite derivative, two nodes further up."""
    sql = f"""WITH k AS (SELECT id, x, greatest(x, 0.0) AS y FROM points), z AS (SELECT id, x, {of_clamp} AS z FROM k)
        SELECT grad({function}, x) AS d FROM z WHERE id < 2
        UNION ALL SELECT jvp({function}, x, 2.0) FROM z WHERE id < 2"""
    assert ctx.sql(sql).to_pydict()["d"] == [0.0] * 4


def test_statistics_of_clamps(ctx: SessionContext) -> None:
    """The deviation of values of which none varies, by a parameter, is where it has no derivative."""
    sql = """WITH p AS (SELECT 0.5 AS w),
        k AS (SELECT w, greatest(w * x, 0.0) AS y FROM points CROSS JOIN p WHERE x < 0),
        s AS (SELECT w, stddev(y) AS s, SUM(y) AS total FROM k GROUP BY w)
        SELECT grad(s, w) AS s, grad(sqrt(total), w) AS t, grad(sqrt(s + total), w) AS both FROM s"""
    assert ctx.sql(sql).to_pydict() == {"s": [0.0], "t": [0.0], "both": [0.0]}


@pytest.mark.parametrize(
    "value", ["x * x * x", "greatest(x * x * x, -1.0)", "CASE WHEN x > 1 THEN 1.0 ELSE x * x * x END"]
)
def test_a_derivative_that_happens_to_be_0_is_none(ctx: SessionContext, value: str) -> None:
    """The derivative of cbrt(x * x * x) at 0 is 1, and 0 times infinity must not pass for it."""
    sql = f"""WITH k AS (SELECT x - 0.25 AS x FROM points WHERE id = 2), c AS (SELECT x, {value} AS y FROM k)
        SELECT grad(cbrt(y), x) AS d FROM c"""
    (found,) = ctx.sql(sql).to_pydict()["d"]
    assert np.isnan(found)


def test_second_derivatives(ctx: SessionContext) -> None:
    sql = """WITH k AS (SELECT id, x, greatest(x, 0.0) AS y FROM points)
        SELECT grad(grad(power(y, 1.5), x), x) AS d FROM k WHERE id < 4 ORDER BY id"""
    expected = [0.0, 0.0, 0.75 / np.sqrt(0.25), 0.75 / np.sqrt(0.75)]
    np.testing.assert_allclose(ctx.sql(sql).to_pydict()["d"], expected, rtol=1e-12)


def test_missing_values(ctx: SessionContext) -> None:
    """The derivative is NULL where the clamp is, and 0 where it is not taken."""
    sql = """WITH k AS (SELECT id, x, CASE WHEN id = 0 THEN NULL WHEN x > 0 THEN x ELSE 0.0 END AS y FROM points)
        SELECT grad(sqrt(y), x) AS d FROM k WHERE id < 2 ORDER BY id"""
    assert ctx.sql(sql).to_pydict()["d"] == [None, 0.0]


def test_rules_of_the_users_own() -> None:
    """A rule may have it that what DataFusion does not take varies all the same."""
    ctx = xql_ffi.register(SessionContext(), rules=[xql_ffi.rule("greatest(x, y)", "0.5", "0.5")])
    sql = """WITH k AS (SELECT x, greatest(x, 4.0) AS y FROM (SELECT 1.0 AS x) AS t)
        SELECT grad(sqrt(y), x) AS d FROM k"""
    assert ctx.sql(sql).to_pydict()["d"] == [0.125]


def test_as_text() -> None:
    """Other hosts get the same derivative."""
    plain = session({"points": {"id": [0, 1], "x": [-2.0, 0.25]}}, differentiates=False)
    sql = "WITH k AS (SELECT id, x, greatest(x, 0.0) AS y FROM points) SELECT grad(sqrt(y), x) AS d FROM k ORDER BY id"
    assert xql_ffi.sql(plain, sql).to_pydict()["d"] == [0.0, 1.0]
