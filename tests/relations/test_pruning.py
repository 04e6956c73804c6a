"""Recursive queries whose columns DataFusion 54 removes although they are read, or takes for NOT NULL.

That is mended in statements that differentiate. Others stay as they are.
"""

from collections.abc import Callable

import pytest
from datafusion import SessionContext

from support.cases import plans, query
from support.compare import rows_of

CARRIED = pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            """WITH RECURSIVE r AS (
                 SELECT 1 AS s, 2.0 AS b, 3.0 AS c UNION ALL SELECT s + 1, b, c + b FROM r WHERE s < 3)
               SELECT c, grad(c * c, c) AS d FROM r ORDER BY c""",
            [(3.0, 6.0), (5.0, 10.0), (7.0, 14.0)],
        ),
        # Left alone, DataFusion takes c for b here.
        (
            """WITH RECURSIVE r AS (
                 SELECT 1.0 AS a, 2.0 AS b, 30.0 AS c UNION ALL SELECT a + b, b, 40.0 FROM r WHERE a < 4)
               SELECT a, c, grad(a * c, a) AS d FROM r ORDER BY a""",
            [(1.0, 30.0, 30.0), (3.0, 40.0, 40.0), (5.0, 40.0, 40.0)],
        ),
        (
            """WITH RECURSIVE r AS (SELECT 1 AS s, 2.0 AS b UNION ALL SELECT s + 1, b * b FROM r WHERE s < 4)
               SELECT (SELECT MAX(b) FROM r) AS m, grad(x * x, x) AS d FROM (VALUES (1.5)) AS t(x)""",
            [(256.0, 3.0)],
        ),
    ],
    ids=["out_of_bounds", "another_column", "in_a_subquery"],
)


@CARRIED
def test_columns_are_kept(
    statement: str, expected: list[tuple[object, ...]], register: Callable[[SessionContext], SessionContext]
) -> None:
    ctx = register(SessionContext())
    assert rows_of(query(ctx, statement)) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            "SELECT AVG(x) AS m, AVG(grad(x * x, x)) AS d FROM r GROUP BY k",
            [(1.5, 3.0)],
        ),
        (
            "SELECT s, x, coalesce(x, -1.0) AS y, x IS NULL AS missing, grad(x * x, x) AS d FROM r ORDER BY s",
            [(1, 1.0, 1.0, False, 2.0), (2, 2.0, 2.0, False, 4.0), (3, None, -1.0, True, None)],
        ),
    ],
    ids=["aggregated", "tested"],
)
def test_nullable_in_later_iterations(
    statement: str, expected: list[tuple[object, ...]], register: Callable[[SessionContext], SessionContext]
) -> None:
    """DataFusion takes x for NOT NULL, as it is in the static term."""
    recursive = """WITH RECURSIVE r AS (
      SELECT 1 AS s, 1.0 AS x, 'k' AS k
      UNION ALL
      SELECT s + 1, CASE WHEN s < 2 THEN 2.0 * x END, k FROM r WHERE s < 3)"""
    assert rows_of(query(register(SessionContext()), f"{recursive} {statement}")) == expected


def test_nothing_is_executed_for_it(register: Callable[[SessionContext], SessionContext]) -> None:
    """Whatever partitions a plan has, they are of its recursive term."""
    statement = """WITH RECURSIVE r AS (
                     SELECT 1 AS s, 2.0 AS b UNION ALL SELECT s + 1, grad(b * b, b) FROM r WHERE s < 4)
                   SELECT b FROM r"""
    physical = plans(register(SessionContext()), statement)["physical_plan"]
    outside, _, _ = physical.partition("RecursiveQueryExec")
    assert outside.split()[0] == "ProjectionExec:"
    assert "Repartition" not in outside
