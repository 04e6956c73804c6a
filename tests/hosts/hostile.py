"""Statements in which a rewriting of text goes wrong: names, types, NULL, comments, functions that differ by host."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from datafusion import SessionContext

from support.sessions import session

TABLES = {
    "t": pa.table(
        {
            "id": pa.array([1, 2, 3, 4], pa.int64()),
            "x": [0.5, 1.5, None, -2.0],
            "y": [1.25, 2.0, 3.0, 0.25],
            "n": pa.array([2, 3, 1, -1], pa.int64()),
            "s": ["a", "b", None, "a"],
        }
    ),
    "u": pa.table({"id": pa.array([1, 2, 3], pa.int64()), "x": [0.75, -0.5, 2.0], "grad": [1.0, 2.0, 3.0]}),
    "quoted": pa.table({"id": pa.array([1, 2], pa.int64()), "X": [0.5, 3.0], "the order": [2.0, -1.0]}),
}

STATEMENTS = {
    "both tables in scope": "SELECT t.id, grad(u.x * t.x, u.x) AS d FROM t JOIN u ON t.id = u.id ORDER BY t.id",
    "case": "SELECT id, grad(CASE WHEN x > 0 THEN x * x * y ELSE y * x END, x) AS d FROM t ORDER BY id",
    "case without else": "SELECT id, grad(CASE WHEN y > 1 THEN y * y END, y) AS d FROM t ORDER BY id",
    "coalesce": "SELECT id, grad(coalesce(x, y) * y, y) AS d FROM t ORDER BY id",
    "nullif": "SELECT id, grad(nullif(y, 2.0) * y, y) AS d FROM t ORDER BY id",
    "atan2": "SELECT id, grad(atan2(y, x), x) AS d, grad(atan2(y, x), y) AS e FROM t ORDER BY id",
    "power": "SELECT id, grad(power(y, x), y) AS d, grad(power(y, x), x) AS e FROM t ORDER BY id",
    "power by an integer": "SELECT id, grad(power(x, n), x) AS d, grad(power(y, -1), y) AS e FROM t ORDER BY id",
    "power of a literal": "SELECT id, grad(power(2, x), x) AS d FROM t ORDER BY id",
    "logarithms": "SELECT id, grad(ln(y) * ln(y), y) AS d, grad(exp(-y * y), y) AS e FROM t ORDER BY id",
    "hyperbolic": "SELECT id, grad(tanh(x) * x, x) AS d FROM t ORDER BY id",
    "roots": "SELECT id, grad(sqrt(y) * abs(x), y) AS d, grad(sqrt(y) * abs(x), x) AS e FROM t ORDER BY id",
    "remainder of integers": "SELECT id, grad(x * (n % 2), x) AS d FROM t WHERE n > 0 ORDER BY id",
    "division by an integer": "SELECT id, grad(x / n, x) AS d, grad(x * x / 4, x) AS e FROM t ORDER BY id",
    "a constant fraction": "SELECT id, grad(y * (1 / 3.0), y) AS d, grad(x * 0.1, x) AS e FROM t ORDER BY id",
    "greatest and least": "SELECT id, grad(greatest(y, 1.5) * least(y, 2.5), y) AS d FROM t ORDER BY id",
    "null": "SELECT id, grad(x + y, x) AS d, grad(x * 3, x) AS e FROM t ORDER BY id",
    "a condition on null": "SELECT id, grad(CASE WHEN x IS NULL THEN y * y ELSE y END, y) AS d FROM t ORDER BY id",
    "names in quotes": 'SELECT id, grad("X" * "X" * "the order", "X") AS "D" FROM quoted ORDER BY id',
    "a name in quotes through relations": """
        WITH "M" AS (SELECT id, "X" AS "Select", "X" * "the order" AS "From" FROM quoted)
        SELECT id, grad("From" * "From", "Select") AS d FROM "M" ORDER BY id""",
    "comments between the parts of a call": """
        SELECT id, grad /* of */ ( -- the square
            x * /* by */ x , x -- of x
        ) AS d FROM t -- grad(x, x)
        ORDER BY id""",
    "two calls in one expression": "SELECT id, grad(x * x, x) - 2 * grad(x * y, y) / y AS d FROM t ORDER BY id",
    "calls in one another": "SELECT id, grad(x * grad(x * x * y, x), x) AS d FROM t ORDER BY id",
    "a call in a string": "SELECT id, 'grad(x * x, x)' AS s, grad(x * x, x) AS d FROM t ORDER BY id",
    "a quote in a string": "SELECT id, 'it''s grad(' AS s, grad(x * x, x) AS d FROM t ORDER BY id",
    "a column called grad": "SELECT id, u.grad AS g, grad(grad * grad, grad) AS d FROM u ORDER BY id",
    "order by an alias": "SELECT id, grad(y * y * y, y) AS d FROM t ORDER BY d DESC",
    "in a condition": "SELECT id FROM t WHERE grad(y * y, y) > 2 ORDER BY id",
    "in an aggregate": """
        SELECT n % 2 AS odd, SUM(grad(x * x * y, x)) AS d FROM t WHERE n > 0 GROUP BY n % 2 ORDER BY odd""",
    "having": "SELECT n, MAX(y) AS y FROM t GROUP BY n HAVING MAX(grad(y * y, y)) > 1 ORDER BY n",
    "directions": "SELECT id, jvp(x * y, x, y, y, x) AS d, vjp(x * x, x, y) AS e FROM t ORDER BY id",
    "stop_gradient": "SELECT id, grad(stop_gradient(y) * y, y) AS d FROM t ORDER BY id",
    "a common table expression": """
        WITH m AS (SELECT t.id, t.y, u.x, u.x * t.y AS p FROM t JOIN u ON t.id = u.id)
        SELECT AVG(grad(p * p, x)) AS d, SUM(grad(p, y)) AS e FROM m""",
    "a derived table": "SELECT id, grad(a * a, x) AS d FROM (SELECT id, x, x * y AS a FROM t) AS q ORDER BY id",
    "an aggregate": """
        SELECT u.id, grad(SUM(t.y * u.x * u.x), u.x) AS d FROM t CROSS JOIN u GROUP BY u.id, u.x ORDER BY u.id""",
    "a window": """
        SELECT id, jvp(SUM(y * y) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), y, 1.0) AS d
        FROM t ORDER BY id""",
    "an outer join": """
        WITH m AS (SELECT t.id, u.x, u.x * u.x AS a FROM t LEFT JOIN u ON u.id = t.id)
        SELECT id, grad(a * a, x) AS d FROM m ORDER BY id""",
    "by row": "SELECT id, x - 0.5 * grad((SELECT SUM(x * x * x) FROM u), x) AS d FROM u ORDER BY id",
    "by row, through a join and a group": """
        WITH h AS (SELECT t.n, SUM(t.y * u.x) AS v FROM t JOIN u ON t.id = u.id GROUP BY t.n)
        SELECT id, grad((SELECT AVG(v * v) FROM h), x) AS d FROM u ORDER BY id""",
    "by row, a maximum": "SELECT id, grad((SELECT MAX(x) * SUM(x) FROM u), x) AS d FROM u ORDER BY id",
    "iterations": """
        WITH RECURSIVE newton AS (
            SELECT 0 AS step, CAST(2 AS DOUBLE PRECISION) AS z
            UNION ALL
            SELECT step + 1, z - (z * z - 2) / grad(z * z - 2, z) FROM newton WHERE step < 5)
        SELECT step, z FROM newton ORDER BY step""",
    "iterations that vary": """
        WITH RECURSIVE newton AS (
            SELECT 0 AS step, x AS a, CAST(1 AS DOUBLE PRECISION) AS z FROM u
            UNION ALL
            SELECT step + 1, a, z - (z * z * z + z - a) / (3 * z * z + 1) FROM newton WHERE step < 6)
        SELECT a, grad(z, a) AS d FROM newton WHERE step = 6 ORDER BY a""",
}

# Expressions that hosts read in different ways, or not at all: what is differentiated, by what, and where.
READ_DIFFERENTLY = {
    "log of one argument": ("log(y)", "y", "y <> 1"),
    "log to a base": ("log(3, y)", "y", "y <> 1"),
    "log to a base that varies": ("log(y, 3.0)", "y", "y <> 1"),
    "division of integers": ("x * (10 + n / 2)", "x", "n > 0"),
    "remainder of floats": ("x * 5 % 2", "x", "n > 0"),
    "power of an integer": ("x * (10 + power(n, -1))", "x", "n > 0"),
    "round": ("x * (10 + round(y * 2))", "x", "y > 0"),
    "trunc": ("x * (10 + trunc(-y * 1.5))", "x", "y > 0"),
    "the root of a negative number": ("cbrt(x)", "x", "x < 0"),
    "an integer from a string": ("x * (CAST('7' AS INTEGER) / 2)", "x", "y > 0"),
    "an integer from a float": ("x * (10 + CAST(y * 1.5 AS INTEGER))", "x", "y > 0"),
}

# What a host does not have, and what the error says.
LACKING = {
    "sqlite": {"greatest and least": "no function greatest"},
    "polars": {
        "hyperbolic": "no function tanh",
        "by row, through a join and a group": "no join in parentheses",
    },
}


def engine() -> SessionContext:
    """A session of the engine, with the tables."""
    return session(TABLES)


def rows(table: pa.Table) -> list[list[Any]]:
    """The rows, with all numbers as floats: what hosts take for integers is their own affair."""
    return [
        [float(value) if isinstance(value, int) and not isinstance(value, bool) else value for value in row.values()]
        for row in table.to_pylist()
    ]


def differs(found: list[list[Any]], wanted: list[list[Any]]) -> str:
    """How rows differ; nothing if they are the same."""
    if len(found) != len(wanted):
        return f"{len(found)} rows instead of {len(wanted)}"
    for number, (row, expected) in enumerate(zip(found, wanted, strict=True)):
        for value, right in zip(row, expected, strict=True):
            if not _close(value, right):
                return f"row {number} is {row} instead of {expected}"
    return ""


def _close(value: object, right: object) -> bool:
    if isinstance(value, float) and isinstance(right, float):
        return math.isclose(value, right, rel_tol=1e-9, abs_tol=1e-12)
    return value == right
