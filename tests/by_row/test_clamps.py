"""A row whose branch is not taken contributes nothing, though the derivative around the subquery is infinite there.

The derivatives are those by differences of the statement, one row moved at a time, at points inside of the branches.
"""

from __future__ import annotations

import math
from operator import itemgetter

import numpy as np
import pytest
from datafusion import SessionContext

from support.cases import query
from support.differences import central
from support.sessions import session

POINTS = [-2.0, -0.5, 0.25, 0.75, 3.0]
ROWS = range(len(POINTS))
CLAMPS = (
    "greatest(x, 0.0)",
    "CASE WHEN x > 0 THEN x * x ELSE 0.0 END",
    "coalesce(nullif(greatest(x, -0.1), -0.1), 0.0)",
)
# Subqueries that are 0 in some rows or in all of them, because of the clamp `y` or of the rows that they read.
VALUES = {
    "of no row that counts": "(SELECT SUM(y) FROM k WHERE id < 2)",
    "of the row": "(SELECT SUM(b.y) FROM k AS b WHERE b.id = m.id)",
    "of the row, averaged": "(SELECT AVG(b.y) FROM k AS b WHERE b.id = m.id)",
    "of the row and its neighbour": "(SELECT SUM(b.y) FROM k AS b WHERE b.pair = m.id / 2)",
    "of a CTE": "(SELECT s FROM sums WHERE pair = 0)",
    "of a running sum": "(SELECT SUM(r) FROM running WHERE id = 1)",
    "two of them": "((SELECT SUM(y) FROM k WHERE id = 0) + 2 * (SELECT SUM(b.y) FROM k AS b WHERE b.id = m.id))",
}
FUNCTIONS = (
    "sqrt({})",
    "cbrt({}) * m.x",
    "power({}, 0.7) - m.x * m.x",
    "acos(1 - least({}, 0.7))",
    "{} * ln(1 + sqrt({}))",
)


def statement(clamp: str, value: str, function: str, selected: str) -> str:
    """A function of a subquery of the clamp."""
    function = function.replace("{}", value)
    return f"""WITH k AS (SELECT id, id / 2 AS pair, {clamp} AS y FROM m),
        sums AS (SELECT pair, SUM(y) AS s FROM k GROUP BY pair),
        running AS (SELECT id, SUM(y) OVER (ORDER BY id) AS r FROM k)
        SELECT id, {selected.format(function)} AS d FROM m"""


def session_at(points: list[float]) -> SessionContext:
    return session({"m": {"id": list(ROWS), "x": points}})


def of_rows(ctx: SessionContext, sql: str) -> list[float]:
    rows = query(ctx, sql).to_pylist()
    # DataFusion 54 forgets ORDER BY where a correlated and another subquery are read twice.
    return [row["d"] for row in sorted(rows, key=itemgetter("id"))]


def moved(sql: str, moves: list[float]) -> list[float]:
    """By differences, the derivatives of all rows along moves of all points."""

    def at(step: float) -> list[float]:
        return of_rows(session_at([x + step * move for x, move in zip(POINTS, moves, strict=True)]), sql)

    return list(central(at))


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("clamp", "function"), list(zip((*CLAMPS, *CLAMPS), FUNCTIONS, strict=False)))
def test_functions_of_clamps(clamp: str, value: str, function: str) -> None:
    ctx = session_at(POINTS)
    plain = statement(clamp, VALUES[value], function, "{}")
    found = of_rows(ctx, statement(clamp, VALUES[value], function, "grad({}, x)"))
    expected = [moved(plain, [float(row == other) for other in ROWS])[row] for row in ROWS]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    along = of_rows(ctx, statement(clamp, VALUES[value], function, "jvp({}, x, 1.0 + 0.5 * x)"))
    np.testing.assert_allclose(along, moved(plain, [1 + 0.5 * x for x in POINTS]), rtol=1e-6, atol=1e-8)


def test_a_derivative_of_0_times_an_infinite_one() -> None:
    """The cube root of a cube is not smooth to a chain of derivatives, however it is divided: NaN, and not 0."""
    ctx = session_at([4.0, 4.0, 0.0, 4.0, 4.0])
    for cubes in (
        "SELECT SUM(u * u * u) FROM u WHERE id = 2",
        "SELECT SUM(c * u) FROM (SELECT id, u, u * u AS c FROM u) AS q WHERE id = 2",
    ):
        sql = f"WITH u AS (SELECT id, x + 0.0 AS u FROM m) SELECT id, grad(cbrt(({cubes})), x) AS d FROM m"
        found = of_rows(ctx, sql)
        assert math.isnan(found[2])
        assert [found[row] for row in (0, 1, 3, 4)] == [0.0] * 4
