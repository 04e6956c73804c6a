"""Derivatives in views, over views, and over other tables computed below."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from datafusion import SessionContext

from support.cases import Case, check, params
from support.tables import T

_SLOPES = "SELECT id, x, y, [[grad(sin(x) * y, x) := cos(x) * y]] AS d FROM t"

CASES = [
    Case(
        "in_a_view",
        (f"CREATE VIEW slopes AS {_SLOPES}", "SELECT id, d FROM slopes ORDER BY id"),
        [(row.id, math.cos(row.x) * row.y) for row in T],
    ),
    Case(
        "in_a_replaced_view",
        (
            "CREATE VIEW slopes AS SELECT 1 AS one",
            f"CREATE OR REPLACE VIEW slopes AS {_SLOPES}",
            "SELECT id, d FROM slopes ORDER BY id",
        ),
        [(row.id, math.cos(row.x) * row.y) for row in T],
    ),
    Case(
        "of_a_view_column",
        (
            "CREATE VIEW plain AS SELECT id, x AS a, y AS b FROM t",
            "SELECT id, [[grad(a * a * b, a) := 2 * a * b]] AS d FROM plain ORDER BY id",
        ),
        [(row.id, 2 * row.x * row.y) for row in T],
    ),
    Case(
        "of_a_computed_view_column",
        (
            "CREATE VIEW computed AS SELECT id, x * x AS a FROM t",
            "SELECT id, [[grad(a * a * a, a) := 3 * a * a]] AS d FROM computed ORDER BY id",
        ),
        [(row.id, 3 * row.x**4) for row in T],
    ),
    Case(
        "in_a_view_over_a_view",
        (
            f"CREATE VIEW slopes AS {_SLOPES}",
            "CREATE VIEW steeper AS "
            "SELECT id, x, d, [[grad(x * x * d, x) := 2 * x * d - x * x * sin(x) * y]] AS e FROM slopes",
            "SELECT id, e FROM steeper WHERE d > 0 ORDER BY id",
        ),
        [
            (row.id, 2 * row.x * math.cos(row.x) * row.y - row.x * row.x * math.sin(row.x) * row.y)
            for row in T
            if math.cos(row.x) * row.y > 0
        ],
    ),
    Case(
        "of_a_derivative_of_a_view",
        (
            f"CREATE VIEW slopes AS {_SLOPES}",
            "SELECT id, [[grad(d * d, d) := 2 * d]] AS e FROM slopes ORDER BY id",
        ),
        [(row.id, 2 * math.cos(row.x) * row.y) for row in T],
    ),
    Case(
        "view_joined_with_itself",
        (
            f"CREATE VIEW slopes AS {_SLOPES}",
            """SELECT l.id, [[grad(l.x * r.x * r.d, l.x) := r.x * r.d]] AS e
               FROM slopes AS l JOIN slopes AS r ON r.id = l.id + 1 ORDER BY l.id""",
        ),
        [(left.id, right.x * math.cos(right.x) * right.y) for left, right in pairwise(T)],
    ),
    Case(
        "in_a_common_table_expression",
        f"WITH slopes AS ({_SLOPES}) SELECT id, d FROM slopes ORDER BY id",
        [(row.id, math.cos(row.x) * row.y) for row in T],
    ),
    Case(
        "of_a_computed_column_of_a_common_table_expression",
        """WITH c AS (SELECT id, x + y AS a, x * y AS b FROM t)
           SELECT id, [[grad(sin(a) * b, a) := cos(a) * b]] AS d FROM c ORDER BY id""",
        [(row.id, math.cos(row.x + row.y) * row.x * row.y) for row in T],
    ),
    Case(
        "in_a_derived_table",
        f"SELECT id, d FROM ({_SLOPES}) AS slopes ORDER BY id",
        [(row.id, math.cos(row.x) * row.y) for row in T],
    ),
    Case(
        "of_an_aggregate_computed_below",
        """SELECT g, [[grad(m * m, m) := 2 * m]] AS d
           FROM (SELECT g, AVG(x) AS m FROM t GROUP BY g) AS means ORDER BY g""",
        [(g, 2 * sum(row.x for row in T if row.g == g) / sum(row.g == g for row in T)) for g in ("a", "b", "c")],
    ),
    Case(
        "of_columns_of_values",
        """SELECT a, [[grad(a * a * b, a) := 2 * a * b]] AS d
           FROM (VALUES (1.0, 2.0), (3.0, 4.0)) AS p(a, b) ORDER BY a""",
        [(1.0, 4.0), (3.0, 24.0)],
    ),
    Case(
        "over_pruned_files",
        (
            "COPY (SELECT * FROM t) TO '{dir}/t.parquet' STORED AS PARQUET",
            "SET datafusion.execution.parquet.pushdown_filters = true",
            "CREATE EXTERNAL TABLE files STORED AS PARQUET LOCATION '{dir}/t.parquet'",
            "SELECT id, [[grad(x * x * y, x) := 2 * x * y]] AS d FROM files "
            "WHERE [[grad(x * x, x) := 2 * x]] > 1.5 ORDER BY id",
        ),
        [(row.id, 2 * row.x * row.y) for row in T if 2 * row.x > 1.5],
    ),
    Case("of_no_rows", "SELECT id, [[grad(x * y, x) := y]] AS d FROM empty", []),
]


@params(CASES)
def test_views(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)
