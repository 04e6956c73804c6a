"""Nested calls, `jvp` with one and several pairs, `vjp`, and their combinations."""

import math
from collections.abc import Callable
from pathlib import Path

from datafusion import SessionContext

from support.cases import Case, check, params
from support.tables import T

CASES = [
    Case(
        "second_order",
        "SELECT id, [[grad(grad(x * x * x * y, x), x) := 6 * x * y]] AS d FROM t ORDER BY id",
        [(row.id, 6 * row.x * row.y) for row in T],
    ),
    Case(
        "third_order",
        "SELECT id, [[grad(grad(grad(sin(2 * x), x), x), x) := -8 * cos(2 * x)]] AS d FROM t ORDER BY id",
        [(row.id, -8 * math.cos(2 * row.x)) for row in T],
    ),
    Case(
        "fifth_order",
        "SELECT id, [[grad(grad(grad(grad(grad(exp(x / 2), x), x), x), x), x) := exp(x / 2) / 32]] AS d "
        "FROM t ORDER BY id",
        [(row.id, math.exp(row.x / 2) / 32) for row in T],
    ),
    Case(
        "order_above_the_degree",
        "SELECT id, [[grad(grad(grad(x * x, x), x), x) := CAST(0 AS DOUBLE)]] AS d FROM t ORDER BY id",
        [(row.id, 0.0) for row in T],
    ),
    Case(
        "mixed",
        "SELECT id, [[grad(grad(sin(x * y), x), y) := cos(x * y) - x * y * sin(x * y)]] AS d, "
        "[[grad(grad(sin(x * y), y), x) := cos(x * y) - x * y * sin(x * y)]] AS e FROM t ORDER BY id",
        [(row.id, *[math.cos(row.x * row.y) - row.x * row.y * math.sin(row.x * row.y)] * 2) for row in T],
    ),
    Case(
        "derivative_inside_an_expression_that_is_differentiated",
        "SELECT id, [[grad(x * grad(x * x * y, x) + y, x) := 4 * x * y]] AS d FROM t ORDER BY id",
        [(row.id, 4 * row.x * row.y) for row in T],
    ),
    Case(
        "derivative_by_another_column_is_no_constant",
        "SELECT id, [[grad(grad(x * x * y * y, y) * x, x) := 6 * x * x * y]] AS d FROM t ORDER BY id",
        [(row.id, 6 * row.x * row.x * row.y) for row in T],
    ),
    Case(
        "jvp",
        "SELECT id, [[jvp(sin(x) * y, x, 3.0) := 3 * cos(x) * y]] AS d FROM t ORDER BY id",
        [(row.id, 3 * math.cos(row.x) * row.y) for row in T],
    ),
    Case(
        "jvp_with_two_pairs",
        "SELECT id, [[jvp(sin(x) * y, x, 3.0, y, -2.0) := 3 * cos(x) * y - 2 * sin(x)]] AS d FROM t ORDER BY id",
        [(row.id, 3 * math.cos(row.x) * row.y - 2 * math.sin(row.x)) for row in T],
    ),
    Case(
        "jvp_with_three_pairs_and_tangents_of_columns",
        "SELECT id, [[jvp(x * y * w, x, y, y, w, w, x) := y * y * w + x * w * w + x * x * y]] AS d FROM t ORDER BY id",
        [(row.id, row.y * row.y * row.w + row.x * row.w * row.w + row.x * row.x * row.y) for row in T],
    ),
    Case(
        "jvp_with_integer_tangent",
        "SELECT id, [[jvp(x * x, x, 1) := 2 * x]] AS d, [[jvp(x * y, x, k) := y * k]] AS e FROM t ORDER BY id",
        [(row.id, 2 * row.x, row.y * row.k) for row in T],
    ),
    Case(
        "jvp_twice_by_one_column_adds_up",
        "SELECT id, [[jvp(x * x, x, 1.0, x, 2.0) := 6 * x]] AS d FROM t ORDER BY id",
        [(row.id, 6 * row.x) for row in T],
    ),
    Case(
        "vjp",
        "SELECT id, [[vjp(sin(x) * y, x, w) := w * cos(x) * y]] AS d FROM t ORDER BY id",
        [(row.id, row.w * math.cos(row.x) * row.y) for row in T],
    ),
    Case(
        "vjp_with_integer_cotangent",
        "SELECT id, [[vjp(x * x * y, x, k) := k * 2 * x * y]] AS d FROM t ORDER BY id",
        [(row.id, row.k * 2 * row.x * row.y) for row in T],
    ),
    Case(
        "jvp_of_grad_is_a_row_of_the_hessian_times_a_vector",
        "SELECT id, [[jvp(grad(x * x * y * y, x), x, w, y, 1.0) := 2 * y * y * w + 4 * x * y]] AS d FROM t ORDER BY id",
        [(row.id, 2 * row.y * row.y * row.w + 4 * row.x * row.y) for row in T],
    ),
    Case(
        "grad_of_jvp_differentiates_the_tangents_too",
        "SELECT id, [[grad(jvp(x * x, x, x), x) := 4 * x]] AS d FROM t ORDER BY id",
        [(row.id, 4 * row.x) for row in T],
    ),
    Case(
        "vjp_of_vjp",
        "SELECT id, [[vjp(vjp(x * x * y, x, w), y, 3.0) := 6 * w * x]] AS d FROM t ORDER BY id",
        [(row.id, 6 * row.w * row.x) for row in T],
    ),
    Case(
        "grad_inside_a_tangent",
        "SELECT id, [[jvp(x * x, x, grad(y * y, y)) := 4 * x * y]] AS d FROM t ORDER BY id",
        [(row.id, 4 * row.x * row.y) for row in T],
    ),
    Case(
        "no_dependence",
        "SELECT id, [[grad(sin(y), x) := CAST(0 AS DOUBLE)]] AS d, "
        "[[grad(CAST(k AS DOUBLE), x) := CAST(0 AS DOUBLE)]] AS e, "
        "[[jvp(y * y, x, 5.0) := CAST(0 AS DOUBLE)]] AS j FROM t ORDER BY id",
        [(row.id, 0.0, 0.0, 0.0) for row in T],
    ),
    Case(
        "the_column_itself",
        "SELECT id, [[grad(x, x) := CAST(1 AS DOUBLE)]] AS d FROM t ORDER BY id",
        [(row.id, 1.0) for row in T],
    ),
    Case(
        "of_a_literal",
        "SELECT id, [[grad(2.5, x) := CAST(0 AS DOUBLE)]] AS d FROM t ORDER BY id",
        [(row.id, 0.0) for row in T],
    ),
]


@params(CASES)
def test_orders(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)
