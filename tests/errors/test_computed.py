"""Expressions that reach the variable through an aggregate, a window function or a group key of their own query.

The planner hands such values to the function as columns; taken as constants they would give a silent zero.
"""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import Refused, assert_refused, refusals
from support.tables import T

_W = sorted({row.w for row in T})

CASES = [
    Refused(
        "average",
        "SELECT grad(AVG(w * y), w) AS d FROM t GROUP BY w",
        [r"avg\((t\.)?w \* (t\.)?y\)", r"\bw\b", "aggregate"],
    ),
    Refused("average_without_group", "SELECT grad(AVG(x * y), x) AS d FROM t", [r"\bx\b"]),
    Refused("sum_of_the_variable", "SELECT grad(SUM(w), w) AS d FROM t GROUP BY w", [r"sum\((t\.)?w\)", "aggregate"]),
    Refused(
        "beside_the_variable",
        "SELECT grad(w * w + SUM(sin(w)), w) AS d FROM t GROUP BY w",
        [r"sum\(sin\((t\.)?w\)\)", "aggregate"],
    ),
    Refused(
        "inside_a_function",
        "SELECT grad(exp(MAX(w * x)), w) AS d FROM t GROUP BY w",
        [r"max\((t\.)?w \* (t\.)?x\)", "aggregate"],
    ),
    Refused(
        "filter_of_an_aggregate",
        "SELECT grad(w * SUM(y) FILTER (WHERE w > 1), w) AS d FROM t GROUP BY w",
        [r"sum\((t\.)?y\)", r"\bw\b"],
    ),
    Refused(
        "jvp", "SELECT jvp(AVG(w * y), w, 1.0) AS d FROM t GROUP BY w", [r"avg\((t\.)?w \* (t\.)?y\)", "aggregate"]
    ),
    Refused(
        "vjp", "SELECT vjp(AVG(w * y), w, 1.0) AS d FROM t GROUP BY w", [r"avg\((t\.)?w \* (t\.)?y\)", "aggregate"]
    ),
    Refused(
        "nested",
        "SELECT grad(grad(w * AVG(w * y), w), w) AS d FROM t GROUP BY w",
        [r"avg\((t\.)?w \* (t\.)?y\)", "aggregate"],
    ),
    Refused(
        "having",
        "SELECT w FROM t GROUP BY w HAVING grad(AVG(w * y), w) > 0",
        [r"avg\((t\.)?w \* (t\.)?y\)", "aggregate"],
    ),
    Refused(
        "order_by",
        "SELECT w FROM t GROUP BY w ORDER BY grad(AVG(w * y), w)",
        [r"avg\((t\.)?w \* (t\.)?y\)", "aggregate"],
    ),
    Refused("window", "SELECT grad(SUM(x) OVER (), x) AS d FROM t", [r"sum\((t\.)?x\)", "window"]),
    Refused(
        "running_window",
        "SELECT grad(x * SUM(x * y) OVER (ORDER BY id), x) AS d FROM t",
        [r"sum\((t\.)?x \* (t\.)?y\)", "window"],
    ),
    Refused("lag", "SELECT grad(x - lag(x) OVER (ORDER BY id), x) AS d FROM t", [r"lag\((t\.)?x\)", "window"]),
    Refused(
        "window_ordered_by_the_variable",
        "SELECT grad(x * SUM(y) OVER (ORDER BY x), x) AS d FROM t",
        [r"sum\((t\.)?y\)", "window", r"\bx\b"],
    ),
    Refused(
        "window_in_jvp",
        "SELECT jvp(y * AVG(x) OVER (PARTITION BY g), y, 1.0, x, 1.0) AS d FROM t",
        [r"avg\((t\.)?x\)", "window"],
    ),
    Refused("group_key", "SELECT grad(x * x, x) AS d FROM t GROUP BY x * x, x", [r"x \* (t\.)?x", "GROUP BY"]),
    Refused(
        "group_key_inside",
        "SELECT grad(sin(x * x) + x, x) AS d FROM t GROUP BY x * x, x",
        [r"x \* (t\.)?x", "GROUP BY"],
    ),
    Refused(
        "group_key_function", "SELECT grad(exp(w), w) AS d FROM t GROUP BY exp(w), w", [r"exp\((t\.)?w\)", "GROUP BY"]
    ),
    Refused(
        "group_key_with_an_aggregate",
        "SELECT grad(x * x, x) AS d, COUNT(*) AS n FROM t GROUP BY x * x, x",
        [r"x \* (t\.)?x", "GROUP BY"],
    ),
    Refused(
        "columns_whose_names_need_quotes",
        'SELECT grad(AVG("The W" * y), "The W") AS d FROM (SELECT w AS "The W", y FROM t) AS q GROUP BY "The W"',
        ["The W", "aggregate"],
    ),
]


@refusals(CASES)
def test_computed_from_the_variable(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


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
