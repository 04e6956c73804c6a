"""Derivatives in and over set operations."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from datafusion import SessionContext

from support.cases import Case, check, params, query
from support.compare import assert_same_rows, rows_of
from support.tables import T, U, V

CASES = [
    Case(
        "union_all",
        """SELECT id, [[grad(x * x, x) := 2 * x]] AS d FROM u
           UNION ALL SELECT id + 10, [[grad(x * y, x) := y]] FROM v ORDER BY id""",
        [*((row.id, 2 * row.x) for row in U), *((row.id + 10, row.y) for row in V)],
    ),
    Case(
        "union_all_of_the_same_table",
        """SELECT 'x' AS by, id, [[grad(x * x * y, x) := 2 * x * y]] AS d FROM u
           UNION ALL SELECT 'y', id, [[grad(x * x * y, y) := x * x]] FROM u ORDER BY by, id""",
        [*(("x", row.id, 2 * row.x * row.y) for row in U), *(("y", row.id, row.x * row.x) for row in U)],
    ),
    Case(
        "union",
        """SELECT [[grad(w * w, w) := 2 * w]] AS d FROM t
           UNION SELECT [[grad(3 * w, w) := CAST(3 AS DOUBLE)]] FROM t ORDER BY d""",
        [(2.0,), (3.0,), (4.0,), (6.0,)],
    ),
    Case(
        "union_by_name",
        """SELECT id, [[grad(x * x, x) := 2 * x]] AS d FROM u
           UNION ALL BY NAME SELECT [[grad(x * y, x) := y]] AS d, id + 10 AS id FROM v ORDER BY id""",
        [*((row.id, 2 * row.x) for row in U), *((row.id + 10, row.y) for row in V)],
    ),
    Case(
        "intersect",
        "SELECT [[grad(x * x, x) := 2 * x]] AS d FROM t INTERSECT SELECT x FROM t ORDER BY d",
        [(d,) for d in sorted({2 * row.x for row in T} & {row.x for row in T})],
    ),
    Case(
        "except",
        "SELECT x AS d FROM t EXCEPT SELECT [[grad(x * x, x) := 2 * x]] FROM t ORDER BY d",
        [(d,) for d in sorted({row.x for row in T} - {2 * row.x for row in T})],
    ),
    Case(
        "over_a_union",
        """SELECT id, [[grad(x * x * y, x) := 2 * x * y]] AS d
           FROM (SELECT id, x, y FROM u UNION ALL SELECT id + 10, x, y FROM v) AS both ORDER BY id""",
        [*((row.id, 2 * row.x * row.y) for row in U), *((row.id + 10, 2 * row.x * row.y) for row in V)],
    ),
    Case(
        "over_a_union_of_derivatives",
        """SELECT id, [[grad(d * d, d) := 2 * d]] AS e
           FROM (SELECT id, [[grad(x * x, x) := 2 * x]] AS d FROM u
                 UNION ALL SELECT id + 10, [[grad(x * y, x) := y]] FROM v) AS both ORDER BY id""",
        [*((row.id, 4 * row.x) for row in U), *((row.id + 10, 2 * row.y) for row in V)],
    ),
    Case(
        "union_ordered_by_derivative",
        """SELECT id FROM (SELECT id, x FROM u UNION ALL SELECT id + 10, x FROM v) AS both
           ORDER BY [[grad(x * x, x) := 2 * x]]""",
        [
            (number,)
            for number, _ in sorted(
                [*((row.id, row.x) for row in U), *((row.id + 10, row.x) for row in V)], key=lambda pair: pair[1]
            )
        ],
    ),
]


@params(CASES)
def test_union(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)


@pytest.mark.parametrize(
    "equal",
    [
        "SELECT DISTINCT x, CASE id WHEN 1 THEN x * x ELSE x END AS v FROM rows",
        "SELECT x, x * x AS v FROM rows WHERE id = 1 UNION SELECT x, x AS v FROM rows WHERE id > 1",
    ],
)
def test_equal_rows_whose_derivatives_differ_have_none(
    register: Callable[[SessionContext], SessionContext], equal: str
) -> None:
    ctx = register(SessionContext())
    ctx.from_pydict({"id": [1, 2, 3], "x": [0.0, 0.0, 2.0]}, name="rows")
    found = query(ctx, f"SELECT x, grad(v, x) AS d FROM ({equal}) AS q ORDER BY x")
    assert_same_rows(rows_of(found), [(0.0, math.nan), (2.0, 1.0)])
