"""Expressions that reach the variable through an aggregate, a window function or a group key of their own query.

The planner hands such values to the function as columns; taken as constants they would give a silent zero.
"""

import math
from itertools import accumulate, pairwise

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import Refused, assert_refused
from support.tables import Row, T

_W = sorted({row.w for row in T})


def test_without_the_variable_among_the_keys(ctx: SessionContext) -> None:
    """SQL has no x to differentiate by here."""
    case = Refused("average_without_group", "SELECT grad(AVG(x * y), x) AS d FROM t", [r"\bx\b"])
    assert_refused(ctx, case)


def _group(w: float) -> list[Row]:
    return [row for row in T if row.w == w]


def _slope(w: float) -> float:
    """The derivative of AVG(w * y)."""
    return sum(row.y for row in _group(w)) / len(_group(w))


def _last_w() -> list[tuple[object, ...]]:
    return [(w,) for w in _W if _slope(w) > 0]


def _extreme(w: float) -> float:
    """The derivative of exp(MAX(w * x))."""
    largest = max(row.x for row in _group(w))
    return math.exp(w * largest) * largest


_RUNNING = list(accumulate(row.x * row.y for row in T))
_RUNNING_Y = list(accumulate(row.y for row in T))
_KEYS = sorted(T, key=lambda row: row.x)

CASES = {
    "average": ("SELECT grad(AVG(w * y), w) AS d FROM t GROUP BY w ORDER BY w", [(_slope(w),) for w in _W]),
    "maximum_of_what_is_its_own_tangent": (
        "SELECT grad(MAX(exp(w) * y), w) AS d FROM t GROUP BY w ORDER BY w",
        [(math.exp(w) * max(row.y for row in _group(w)),) for w in _W],
    ),
    "element_of_what_is_collected": (
        "SELECT grad(array_agg(w * w * y ORDER BY id)[2], w) AS d FROM t GROUP BY w ORDER BY w",
        [(2 * w * _group(w)[1].y,) for w in _W],
    ),
    "sum_of_the_variable": (
        "SELECT grad(SUM(w), w) AS d FROM t GROUP BY w ORDER BY w",
        [(float(len(_group(w))),) for w in _W],
    ),
    "beside_the_variable": (
        "SELECT grad(w * w + SUM(sin(w)), w) AS d FROM t GROUP BY w ORDER BY w",
        [(2 * w + len(_group(w)) * math.cos(w),) for w in _W],
    ),
    "inside_a_function": (
        "SELECT grad(exp(MAX(w * x)), w) AS d FROM t GROUP BY w ORDER BY w",
        [(_extreme(w),) for w in _W],
    ),
    "filter_of_an_aggregate": (
        "SELECT grad(w * SUM(y) FILTER (WHERE w > 1), w) AS d FROM t GROUP BY w ORDER BY w",
        [(sum(row.y for row in _group(w)) if w > 1 else None,) for w in _W],
    ),
    "jvp": ("SELECT jvp(AVG(w * y), w, 2.0) AS d FROM t GROUP BY w ORDER BY w", [(2 * _slope(w),) for w in _W]),
    "vjp": ("SELECT vjp(AVG(w * y), w, w) AS d FROM t GROUP BY w ORDER BY w", [(w * _slope(w),) for w in _W]),
    "nested": (
        "SELECT grad(grad(w * AVG(w * y), w), w) AS d FROM t GROUP BY w ORDER BY w",
        [(2 * _slope(w),) for w in _W],
    ),
    "having": ("SELECT w FROM t GROUP BY w HAVING grad(AVG(w * y), w) > 0 ORDER BY w", _last_w()),
    "order_by": (
        "SELECT w FROM t GROUP BY w ORDER BY grad(AVG(w * y), w)",
        [(w,) for w in sorted(_W, key=_slope)],
    ),
    "window": ("SELECT jvp(SUM(x) OVER (), x, 1) AS d FROM t", [(float(len(T)),) for _ in T]),
    "window_by_own_cell": ("SELECT grad(SUM(x * x) OVER (), x) AS d FROM t ORDER BY id", [(2 * row.x,) for row in T]),
    "running_window": (
        "SELECT jvp(x * SUM(x * y) OVER (ORDER BY id), x, 1) AS d FROM t ORDER BY id",
        [(total + row.x * slope,) for row, total, slope in zip(T, _RUNNING, _RUNNING_Y, strict=True)],
    ),
    "running_window_by_own_cell": (
        "SELECT grad(x * SUM(x * y) OVER (ORDER BY id), x) AS d FROM t ORDER BY id",
        [(total + row.x * row.y,) for row, total in zip(T, _RUNNING, strict=True)],
    ),
    "lag": (
        "SELECT jvp(x * lag(x) OVER (ORDER BY id), x, 1) AS d FROM t ORDER BY id",
        [(None,), *((row.x + before.x,) for before, row in pairwise(T))],
    ),
    "lag_of_two_rows": (
        "SELECT jvp(lag(x * x, 2) OVER (ORDER BY id), x, 1) AS d FROM t ORDER BY id",
        [(None,), (None,), *((2 * row.x,) for row in T[:-2])],
    ),
    "lag_with_a_default": (
        "SELECT jvp(lag(x * x, 1, 0.5) OVER (ORDER BY id), x, 1) AS d FROM t ORDER BY id",
        [(0.0,), *((2 * row.x,) for row in T[:-1])],
    ),
    "lead": (
        "SELECT jvp(x * lead(x * x) OVER (ORDER BY id), x, 1) AS d FROM t ORDER BY id",
        [*((after.x * after.x + 2 * row.x * after.x,) for row, after in pairwise(T)), (None,)],
    ),
    "lag_by_own_cell": (
        "SELECT grad(x * lag(x) OVER (ORDER BY id), x) AS d FROM t ORDER BY id",
        [(None,), *((before.x,) for before, _ in pairwise(T))],
    ),
    "window_ordered_by_the_variable": (
        "SELECT grad(x * SUM(y) OVER (ORDER BY x), x) AS d FROM t ORDER BY x",
        list(zip(accumulate(row.y for row in _KEYS))),
    ),
    "window_in_jvp": (
        "SELECT jvp(y * AVG(x) OVER (PARTITION BY w), y, 1.0, x, 2.0) AS d FROM t ORDER BY id",
        [(sum(other.x for other in _group(row.w)) / len(_group(row.w)) + 2 * row.y,) for row in T],
    ),
    "group_key": (
        "SELECT grad(x * x, x) AS d FROM t GROUP BY x * x, x ORDER BY x",
        [(2 * row.x,) for row in _KEYS],
    ),
    "group_key_inside": (
        "SELECT grad(sin(x * x) + x, x) AS d FROM t GROUP BY x * x, x ORDER BY x",
        [(2 * row.x * math.cos(row.x * row.x) + 1,) for row in _KEYS],
    ),
    "group_key_function": (
        "SELECT grad(exp(w), w) AS d FROM t GROUP BY exp(w), w ORDER BY w",
        [(math.exp(w),) for w in _W],
    ),
    "group_key_with_an_aggregate": (
        "SELECT grad(x * x, x) AS d, COUNT(*) AS n FROM t GROUP BY x * x, x ORDER BY x",
        [(2 * row.x, 1) for row in _KEYS],
    ),
    "columns_whose_names_need_quotes": (
        'SELECT grad(AVG("The W" * y), "The W") AS d FROM (SELECT w AS "The W", y FROM t) AS q '
        'GROUP BY "The W" ORDER BY "The W"',
        [(_slope(w),) for w in _W],
    ),
    "alias_in_order_by": (
        "SELECT x * x AS s FROM t ORDER BY grad(x * x, x)",
        [(row.x * row.x,) for row in _KEYS],
    ),
}


@pytest.mark.parametrize(("statement", "expected"), CASES.values(), ids=CASES)
def test_computed_from_the_variable(ctx: SessionContext, statement: str, expected: list[tuple[object, ...]]) -> None:
    assert_same_rows(rows_of(query(ctx, statement)), expected)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "SELECT w, grad(w * w * SUM(y), w) AS d FROM t GROUP BY w ORDER BY w",
            [(w, 2 * w * sum(row.y for row in T if row.w == w)) for w in _W],
        ),
        (
            "SELECT w, grad(w * w * COUNT(*), w) AS d FROM t GROUP BY w ORDER BY w",
            [(w, 2 * w * sum(row.w == w for row in T)) for w in _W],
        ),
        (
            "SELECT id, grad(x * x * SUM(y) OVER (), x) AS d FROM t ORDER BY id",
            [(row.id, 2 * row.x * sum(other.y for other in T)) for row in T],
        ),
        (
            "SELECT id, grad(x * row_number() OVER (ORDER BY id), x) AS d FROM t ORDER BY id",
            [(row.id, float(number)) for number, row in enumerate(T, start=1)],
        ),
        (
            "SELECT w, grad(w * w, w) AS d FROM t GROUP BY w, x * x, x ORDER BY w, x",
            [(row.w, 2 * row.w) for row in sorted(T, key=lambda row: (row.w, row.x))],
        ),
        (
            "SELECT grad(w * w * (y * y), w) AS d FROM t GROUP BY w, y * y ORDER BY w, y * y",
            [(2 * w * square,) for w, square in sorted((row.w, row.y * row.y) for row in T)],
        ),
        (
            "SELECT grad(m * m, m) AS d FROM (SELECT g, SUM(x) AS m FROM t GROUP BY g) ORDER BY g",
            [(2 * sum(row.x for row in T if row.g == g),) for g in ("a", "b", "c")],
        ),
        (
            'SELECT grad("sum(t.x)" * "sum(t.x)", "sum(t.x)") AS d FROM (SELECT SUM(x) FROM t)',
            [(2 * sum(row.x for row in T),)],
        ),
    ],
    ids=[
        "aggregate_of_another",
        "count",
        "window_of_another",
        "row_number",
        "group_key_of_another",
        "group_key_of_another_as_factor",
        "variable_computed_below",
        "variable_computed_below_without_name",
    ],
)
def test_computed_from_other_columns(ctx: SessionContext, statement: str, expected: list[tuple[object, ...]]) -> None:
    """These are constants."""
    assert_same_rows(rows_of(query(ctx, statement)), expected)
