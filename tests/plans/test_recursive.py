"""Derivatives in recursive common table expressions."""

import math
from collections.abc import Callable
from pathlib import Path

from datafusion import SessionContext

from support.cases import Case, check, params
from support.tables import T


def _newton(x: float, steps: int) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [(0, x)]
    for step in range(1, steps + 1):
        x = x - (x * x - 2) / (2 * x)
        rows.append((step, x))
    return rows


def _newton_per_row(steps: int) -> list[tuple[object, ...]]:
    return [(row.id, _newton(abs(row.x), steps)[-1][1]) for row in T]


def _halley(x: float, steps: int) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [(0, x)]
    for step in range(1, steps + 1):
        value, first, second = x**3 - 5, 3 * x * x, 6 * x
        x = x - 2 * value * first / (2 * first * first - value * second)
        rows.append((step, x))
    return rows


def _descent(steps: int, rate: float) -> list[tuple[object, ...]]:
    a = b = 0.0
    rows: list[tuple[object, ...]] = [(0, a, b)]
    for step in range(1, steps + 1):
        residuals = [(row, a * row.x + b - row.y) for row in T]
        slope = sum(2 * residual * row.x for row, residual in residuals) / len(T)
        offset = sum(2 * residual for _, residual in residuals) / len(T)
        a, b = a - rate * slope, b - rate * offset
        rows.append((step, a, b))
    return rows


def _pendulum(steps: int, dt: float) -> list[tuple[object, ...]]:
    q, p = 1.0, 0.0
    rows: list[tuple[object, ...]] = [(0, q, p)]
    for step in range(1, steps + 1):
        q, p = q + dt * p, p - dt * math.sin(q)
        rows.append((step, q, p))
    return rows


def _until_flat() -> list[tuple[object, ...]]:
    x, step = 1.0, 0
    rows: list[tuple[object, ...]] = [(step, x)]
    while abs(2 * x) > 0.2 and step < 100:
        step, x = step + 1, x - 0.25 * 2 * x
        rows.append((step, x))
    return rows


CASES = [
    Case(
        "newton",
        """WITH RECURSIVE newton AS (
             SELECT 0 AS step, 1.0 AS x
             UNION ALL
             SELECT step + 1, x - (x * x - 2) / [[grad(x * x - 2, x) := 2 * x]] FROM newton WHERE step < 6)
           SELECT step, x FROM newton ORDER BY step""",
        _newton(1.0, 6),
    ),
    Case(
        "newton_for_every_row_of_a_table",
        """WITH RECURSIVE newton AS (
             SELECT id AS id, 0 AS step, abs(x) AS x FROM t
             UNION ALL
             SELECT id, step + 1, x - (x * x - 2) / [[grad(x * x - 2, x) := 2 * x]] FROM newton WHERE step < 5)
           SELECT id, x FROM newton WHERE step = 5 ORDER BY id""",
        _newton_per_row(5),
    ),
    Case(
        "second_derivative",
        """WITH RECURSIVE halley AS (
             SELECT 0 AS step, 2.0 AS x
             UNION ALL
             SELECT step + 1,
                    x - 2 * (power(x, 3) - 5) * [[grad(power(x, 3) - 5, x) := 3 * x * x]]
                    / (2 * power([[grad(power(x, 3) - 5, x) := 3 * x * x]], 2)
                       - (power(x, 3) - 5) * [[grad(grad(power(x, 3) - 5, x), x) := 6 * x]])
             FROM halley WHERE step < 4)
           SELECT step, x FROM halley ORDER BY step""",
        _halley(2.0, 4),
    ),
    Case(
        "gradient_descent_over_a_join",
        """WITH RECURSIVE fit AS (
             SELECT 0 AS step, CAST(0 AS DOUBLE) AS a, CAST(0 AS DOUBLE) AS b
             UNION ALL
             SELECT fit.step + 1,
                    fit.a - 0.05 * AVG([[grad(power(fit.a * t.x + fit.b - t.y, 2), fit.a)
                                         := 2 * (fit.a * t.x + fit.b - t.y) * t.x]]),
                    fit.b - 0.05 * AVG([[grad(power(fit.a * t.x + fit.b - t.y, 2), fit.b)
                                         := 2 * (fit.a * t.x + fit.b - t.y)]])
             FROM fit CROSS JOIN t WHERE fit.step < 30 GROUP BY fit.step, fit.a, fit.b)
           SELECT step, a, b FROM fit ORDER BY step""",
        _descent(30, 0.05),
        rel=1e-10,
    ),
    Case(
        "hamilton_equations",
        """WITH RECURSIVE pendulum AS (
             SELECT 0 AS step, 1.0 AS q, CAST(0 AS DOUBLE) AS p
             UNION ALL
             SELECT step + 1,
                    q + 0.1 * [[grad(p * p / 2 - cos(q), p) := p]],
                    p - 0.1 * [[grad(p * p / 2 - cos(q), q) := sin(q)]]
             FROM pendulum WHERE step < 20)
           SELECT step, q, p FROM pendulum ORDER BY step""",
        _pendulum(20, 0.1),
    ),
    Case(
        "in_the_filter_of_the_recursive_term",
        """WITH RECURSIVE descent AS (
             SELECT 0 AS step, 1.0 AS x
             UNION ALL
             SELECT step + 1, x - 0.25 * [[grad(x * x, x) := 2 * x]] FROM descent
             WHERE abs([[grad(x * x, x) := 2 * x]]) > 0.2 AND step < 100)
           SELECT step, x FROM descent ORDER BY step""",
        _until_flat(),
    ),
    Case(
        "in_the_static_term",
        """WITH RECURSIVE doubling AS (
             SELECT id AS id, 0 AS step, [[grad(x * x * y, x) := 2 * x * y]] AS d FROM t
             UNION ALL
             SELECT id, step + 1, 2 * d FROM doubling WHERE step < 2)
           SELECT id, step, d FROM doubling ORDER BY id, step""",
        [(row.id, step, 2.0**step * 2 * row.x * row.y) for row in T for step in range(3)],
    ),
    Case(
        "in_the_final_query",
        """WITH RECURSIVE halving AS (
             SELECT 0 AS step, 8.0 AS x
             UNION ALL
             SELECT step + 1, x / 2 FROM halving WHERE step < 3)
           SELECT step, [[grad(x * x * x, x) := 3 * x * x]] AS d FROM halving ORDER BY step""",
        [(step, 3 * (8.0 / 2**step) ** 2) for step in range(4)],
    ),
    Case(
        "jvp_in_the_recursive_term",
        """WITH RECURSIVE walk AS (
             SELECT 0 AS step, 1.0 AS x, 2.0 AS y
             UNION ALL
             SELECT step + 1, x + 0.1 * [[jvp(x * y, x, 1.0, y, 0.5) := y + 0.5 * x]], y
             FROM walk WHERE step < 2)
           SELECT step, x FROM walk WHERE y > 0 ORDER BY step""",
        [(0, 1.0), (1, 1.0 + 0.1 * 2.5), (2, 1.25 + 0.1 * (2.0 + 0.5 * 1.25))],
    ),
    Case(
        "two_recursions_that_feed_each_other",
        """WITH RECURSIVE
             root AS (
               SELECT 0 AS step, 1.0 AS x
               UNION ALL
               SELECT step + 1, x - (x * x - 2) / [[grad(x * x - 2, x) := 2 * x]] FROM root WHERE step < 5),
             powers AS (
               SELECT 0 AS n, x AS v FROM root WHERE step = 5
               UNION ALL
               SELECT n + 1, v * [[grad(v * v, v) := 2 * v]] FROM powers WHERE n < 2)
           SELECT n, v FROM powers ORDER BY n""",
        [(0, math.sqrt(2)), (1, 4.0), (2, 32.0)],
    ),
]


@params(CASES)
def test_recursive(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)
