"""Derivatives of window functions by the row's own cell: the diagonal of the Jacobian, as JAX has it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import pytest
from datafusion import SessionContext

from relations.stacks import (
    MOVING,
    SMOOTH,
    WHOLE,
    Cells,
    Expression,
    Rows,
    Stack,
    rows_of_a_table,
    rows_of_parameters,
)
from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import Refused, assert_refused, refusals
from xql_ffi import UnsupportedRelationError

SOURCES: dict[str, Callable[[], Rows]] = {
    "table": rows_of_a_table,
    "parameters_by_group": lambda: rows_of_parameters("p.k = d.g"),
    "parameters_everywhere": lambda: rows_of_parameters("true"),
}
KEYS: list[list[str]] = [[], ["g"], ["h"], ["g", "h"]]


def _assert_own(ctx: SessionContext, stack: Stack, value: Expression, order: int = 1) -> None:
    """Asserts the derivative of a value by the row's own cell, as good as sums over windows that slide are."""
    call, values = value.sql, value.values
    for _ in range(order):
        call, values = f"grad({call}, x)", stack.own(values)
    found = rows_of(query(ctx, stack.written(f"{call} AS d")))
    assert_same_rows(found, stack.rows_of(values, value.null), rel=1e-8, abs_=1e-10)


def _row_wise(stack: Stack) -> Expression:
    return stack.named(stack.mixed(*random.Random(stack.choices.random()).sample([stack.x, stack.y], 2)))


def _whole(stack: Stack, value: Expression, functions: Sequence[str], levels: int) -> tuple[Expression, list[str]]:
    """Windows over whole partitions, each of no fewer keys than that below."""
    keys: list[str] = stack.choices.choice(KEYS)
    for _ in range(levels):
        filtered = stack.choices.random() < 0.25
        window = stack.aggregate(
            stack.choices.choice(functions), value, stack.window(keys, whole=True), filtered=filtered
        )
        value = stack.named(stack.mixed(*stack.choices.sample([stack.x, value, stack.named(window)], 2)))
        keys = stack.choices.choice([wider for wider in KEYS if set(wider) >= set(keys)])
    return value, keys


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("source", SOURCES)
def test_whole_partitions(ctx: SessionContext, source: str, seed: int) -> None:
    stack = Stack(random.Random(f"whole {seed}"), SOURCES[source]())
    value, _ = _whole(stack, _row_wise(stack), WHOLE, 1 + seed % 3)
    _assert_own(ctx, stack, value)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("source", SOURCES)
def test_frames_that_move(ctx: SessionContext, source: str, seed: int) -> None:
    stack = Stack(random.Random(f"moving {seed}"), SOURCES[source]())
    value, keys = _whole(stack, _row_wise(stack), WHOLE, seed % 3)
    functions = MOVING
    if source != "table":
        functions = [name for name in MOVING if name not in ("min", "max")]
    if source == "parameters_by_group" and seed % 2:
        # All rows of a window have one cell.
        keys, functions = ["g", *(key for key in keys if key == "h")], MOVING
    # Where cells repeat, the row is to be in its frame.
    window = stack.window(keys, whole=False, around=functions is not MOVING)
    filtered = stack.choices.random() < 0.25
    moving = stack.aggregate(stack.choices.choice(functions), value, window, filtered=filtered)
    _assert_own(ctx, stack, stack.mixed(stack.x, stack.named(moving)))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("source", SOURCES)
def test_values_of_one_row(ctx: SessionContext, source: str, seed: int) -> None:
    stack = Stack(random.Random(f"choice {seed}"), SOURCES[source]())
    value, keys = _whole(stack, _row_wise(stack), WHOLE, seed % 2)
    _assert_own(ctx, stack, stack.mixed(stack.x, stack.named(stack.choice(value, keys))))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("source", SOURCES)
def test_second_order(ctx: SessionContext, source: str, seed: int) -> None:
    """The derivative of the derivative that each row has by its own cell."""
    stack = Stack(random.Random(f"second {seed}"), SOURCES[source]())
    value, keys = _whole(stack, _row_wise(stack), SMOOTH, 1 + seed % 2)
    if seed % 3 == 0:
        value = stack.named(stack.aggregate("sum", value, stack.window(keys, whole=False, around=True)))
    _assert_own(ctx, stack, value, 2)


@pytest.mark.parametrize("seed", range(4))
def test_all_rows_together(ctx: SessionContext, seed: int) -> None:
    """Jvp along 1 sums a row of the Jacobian, of which grad is one entry."""
    stack = Stack(random.Random(f"together {seed}"), SOURCES["table"]())
    value, keys = _whole(stack, _row_wise(stack), SMOOTH, 1 + seed % 2)
    value = stack.named(stack.aggregate("sum", value, stack.window(keys, whole=False)))

    def along_ones(values: Callable[[Cells], Sequence[jax.Array]]) -> Callable[[Cells], Sequence[jax.Array]]:
        return lambda x: jax.jvp(lambda x: list(values(x)), (x,), (jnp.ones_like(x),))[1]

    listed = f"jvp({value.sql}, x, 1) AS a, jvp(grad({value.sql}, x), x, 1) AS b, grad(jvp({value.sql}, x, 1), x) AS c"
    expected = [
        stack.rows_of(values, value.null)
        for values in (
            along_ones(value.values),
            along_ones(stack.own(value.values)),
            stack.own(along_ones(value.values)),
        )
    ]
    found = rows_of(query(ctx, stack.written(listed)))
    rows = [tuple(part for column in row for part in column) for row in zip(*expected, strict=True)]
    assert_same_rows(found, rows, rel=1e-8, abs_=1e-10)


V = "(SELECT id, x, id % 2 AS g FROM (VALUES (1, 1.0), (2, 2.0), (3, 3.0), (4, 3.0)) AS v(id, x)) AS v"
W = """(SELECT d.id, p.k, p.w, d.x
        FROM (VALUES (1, 1.0), (2, 3.0)) AS d(id, x), (VALUES (1, 0.5), (2, 2.0)) AS p(k, w)) AS r"""
SOFTMAX = f"""(SELECT id, x, exp(z) / SUM(exp(z)) OVER () AS p
               FROM (SELECT id, x, x - MAX(x) OVER () AS z FROM {V}) AS m) AS s"""
RUNNING = f"(SELECT *, SUM(w * x) OVER (PARTITION BY k ORDER BY id) AS s FROM {W}) AS q"
COUNTED = f"(SELECT *, COUNT(*) OVER (ORDER BY id) * 1.0 AS n FROM {V}) AS q"
BRANCHES = f"(SELECT x, 2.0 AS a, 2.0 * x AS q FROM {V} UNION ALL SELECT x, 3.0, 3.0 * x FROM {V}) AS u"
GROUPS = f"""(SELECT x, AVG(s) AS s, CAST(COUNT(*) AS DOUBLE) AS n
              FROM (SELECT x, SUM(x * x) OVER () AS s FROM {V}) AS q GROUP BY x) AS u"""
# To 2**53 no 1 can be added.
FAR = "(VALUES (1.0, 0.0), (2.0, 9007199254740992.0)) AS v(x, t)"
BESIDE_MEAN = f"(SELECT *, AVG(x) OVER () AS m FROM {V}) AS q"
BESIDE_ONE = f"(SELECT v.*, m FROM {V} CROSS JOIN (SELECT AVG(x) AS m FROM {V}) AS a) AS q"


@pytest.mark.parametrize(
    ("call", "by_hand", "source"),
    [
        ("grad(SUM(x * x) OVER (), x)", "2 * x", V),
        ("vjp(AVG(x * x) OVER (PARTITION BY g), x, id)", "id * x", V),
        # Of the greatest values each has an even share.
        ("grad(MAX(x) OVER (), x)", "CASE WHEN x = 3 THEN 0.5 ELSE 0.0 END", V),
        ("grad(p, x)", "p * (1 - p)", SOFTMAX),
        ("grad(grad(p, x), x)", "p * (1 - p) * (1 - 2 * p)", SOFTMAX),
        # Parameters that a join repeats over the data.
        ("grad(SUM(w * x) OVER (PARTITION BY k ORDER BY id), w)", "SUM(x) OVER (PARTITION BY k ORDER BY id)", W),
        ("grad(SUM(w * w * x) OVER (), w)", "8 * w", W),
        ("grad(MAX(w * x) OVER (PARTITION BY k ORDER BY id), w)", "x", W),
        # Rows of one cell that tie are one.
        ("grad(MAX(w) OVER (), w)", "CASE k WHEN 2 THEN 1.0 ELSE 0.0 END", W),
        # Windows on windows that move, over one cell each.
        ("grad(SUM(s) OVER (PARTITION BY k ORDER BY id), w)", "CASE id WHEN 1 THEN 1.0 ELSE 5.0 END", RUNNING),
        # Another window, of what does not vary.
        ("grad(SUM(x * n) OVER (PARTITION BY g), x)", "n", COUNTED),
        # In different branches the rows are different ones.
        ("grad(SUM(q) OVER (), x)", "a", BRANCHES),
        ("grad(lag(q) OVER (ORDER BY x, a), x)", "CASE WHEN x = 1 AND a = 2 THEN NULL ELSE 0.0 END", BRANCHES),
        # A row that is in its own frame, since it is too far away for the distance to count.
        (
            "grad(SUM(x * x) OVER (ORDER BY t RANGE BETWEEN 1.0 FOLLOWING AND 2.0 FOLLOWING), x)",
            "CASE WHEN t > 0 THEN 2 * x END",
            FAR,
        ),
        # Along the window below, the greatest value has the mean of the tangents of those that tie.
        ("grad(MAX(x - m) OVER (), x)", "CASE WHEN x = 3 THEN 0.5 ELSE 0.0 END - 0.25", BESIDE_MEAN),
        # Rows of one group have a value in common.
        ("grad(SUM(x * x) OVER (), x)", "2 * x", f"(SELECT DISTINCT x FROM {V}) AS u"),
        (
            "grad(SUM(x * x * (g + 1)) OVER (), x)",
            "SUM(2 * x * (g + 1)) OVER (PARTITION BY x)",
            f"(SELECT DISTINCT x, g FROM {V}) AS u",
        ),
        (
            "grad(SUM(x * x * n) OVER (), x)",
            "SUM(2 * x * n) OVER (PARTITION BY x)",
            f"(SELECT x, g, COUNT(*) + g AS n FROM {V} GROUP BY x, g) AS u",
        ),
        ("grad(s, x)", "2 * x * n", GROUPS),
        # What is one row repeats none.
        ("grad(MAX(x - m) OVER (ORDER BY id), x)", "CASE id WHEN 4 THEN 0.5 ELSE 1.0 END", BESIDE_ONE),
    ],
)
def test_by_hand(ctx: SessionContext, call: str, by_hand: str, source: str) -> None:
    found = rows_of(query(ctx, f"SELECT {call} AS d, CAST({by_hand} AS DOUBLE) AS h FROM {source}"))
    assert found
    assert_same_rows([(d,) for d, _ in found], [(h,) for _, h in found], rel=1e-12)


def test_clauses(ctx: SessionContext) -> None:
    found = query(ctx, f"SELECT id FROM {V} QUALIFY grad(SUM(x * x) OVER (PARTITION BY g), x) > 3 ORDER BY id")
    assert rows_of(found) == [(2,), (3,), (4,)]
    found = query(ctx, f"SELECT id FROM {V} ORDER BY -grad(SUM(x * x) OVER (), x), id LIMIT 2")
    assert rows_of(found) == [(3,), (4,)]


def test_in_a_recursive_term(ctx: SessionContext) -> None:
    found = query(
        ctx,
        f"""WITH RECURSIVE r AS (SELECT 0 AS step, id, x FROM {V}
            UNION ALL SELECT step + 1, id, x - 0.25 * grad(SUM(x * x) OVER (), x) FROM r WHERE step < 2)
            SELECT id, x FROM r WHERE step = 2 ORDER BY id""",
    )
    assert_same_rows(rows_of(found), [(1, 0.25), (2, 0.5), (3, 0.75), (4, 0.75)])


def test_above_a_recursive_query(ctx: SessionContext) -> None:
    """The cells are those of the rows that it starts with."""
    found = query(
        ctx,
        """WITH RECURSIVE r AS (SELECT 0 AS step, k, w, 1.0 AS y FROM (VALUES (1, 0.5), (2, 2.0)) AS p(k, w)
           UNION ALL SELECT step + 1, k, w, y * w FROM r WHERE step < 2)
           SELECT w, grad(AVG(y) OVER (), w) AS a, grad(SUM(y) OVER (PARTITION BY k ORDER BY step), w) AS b,
                  grad(lag(y) OVER (PARTITION BY k ORDER BY step), w) AS c FROM r ORDER BY k, step""",
    )
    expected = [(w, (1 + 2 * w) / 6, b, c) for w in (0.5, 2.0) for b, c in ((0.0, None), (1.0, 0.0), (1 + 2 * w, 1.0))]
    assert_same_rows(rows_of(found), expected)


WAYS_OUT = [r"jvp\(\.\.\., x, 1\)", r"grad\(\(SELECT \.\.\.\), x\)"]
REFUSED = [
    Refused(
        "running_sum_of_a_running_sum",
        f"SELECT grad(SUM(s) OVER (ORDER BY id), x) FROM (SELECT *, SUM(x) OVER (ORDER BY id) AS s FROM {V}) AS q",
        ["by the row's own x", *WAYS_OUT],
    ),
    Refused(
        "fewer_keys_above",
        f"SELECT grad(SUM(x * s) OVER (), x) FROM (SELECT *, AVG(x) OVER (PARTITION BY g) AS s FROM {V}) AS q",
        ["whole partitions of the same keys", *WAYS_OUT],
    ),
    Refused(
        "a_greatest_value_of_rows_that_follow",
        f"SELECT grad(MAX(x) OVER (ORDER BY id RANGE BETWEEN 1 FOLLOWING AND 2 FOLLOWING), x) FROM {V}",
        ["by the row's own x is not known", r"jvp\(\.\.\., x, 1\)"],
    ),
    Refused(
        "a_direction_through_groups",
        f"SELECT jvp(SUM(x * x) OVER (), x, x) FROM (SELECT x FROM {V} GROUP BY x) AS q",
        ["direction .* is not the same in all rows", "Aggregate"],
    ),
    Refused(
        "a_direction_through_distinct",
        f"SELECT jvp(SUM(x * x) OVER (), x, x) FROM (SELECT DISTINCT x FROM {V}) AS q",
        ["direction .* is not the same in all rows", "Distinct"],
    ),
    Refused(
        "inside_of_a_recursive_query",
        f"""WITH RECURSIVE r AS (SELECT 0 AS step, id, x, x AS y FROM {V}
            UNION ALL SELECT step + 1, id, x, x * AVG(y) OVER () FROM r WHERE step < 2) SELECT grad(y, x) FROM r""",
        ["recursive query", r"jvp\(\.\.\., x, 1\)"],
    ),
]


@refusals(REFUSED)
def test_refused(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT grad(MAX(w * x) OVER (ORDER BY id), w) AS d FROM {W}",
        f"SELECT grad(grad(MAX(w * w * x) OVER (ORDER BY id), w), w) AS d FROM {W}",
        f"SELECT grad(SUM(s) OVER (ORDER BY id), w) AS d FROM {RUNNING}",
    ],
)
def test_several_cells_in_a_window(ctx: SessionContext, statement: str) -> None:
    """Where only the rows tell that a window has one cell, others are an error when the query runs."""
    with pytest.raises(UnsupportedRelationError, match=r"^rows \d+ to \d+ of w in one window.*PARTITION BY"):
        ctx.sql(statement).collect()


def test_a_union_of_constants_repeats_cells(ctx: SessionContext) -> None:
    """DataFusion counts no rows of a SELECT without FROM."""
    constants = "(SELECT 1.0 AS f UNION ALL SELECT 2.0) AS q"
    found = ctx.sql(f"SELECT id, grad(SUM(f * x) OVER (), x) AS d FROM {V} CROSS JOIN {constants}").to_pydict()["d"]
    assert found == [3.0] * len(found)
    assert found
