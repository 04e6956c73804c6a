"""Derivatives in the arguments of aggregates and window functions, and beside them."""

import statistics
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

from datafusion import SessionContext

from support.cases import Case, check, params
from support.tables import T, Row

_GROUPS = ("a", "b", "c")


def _group(g: str) -> list[Row]:
    return [row for row in T if row.g == g]


def _slopes(rows: list[Row]) -> list[float]:
    return [2 * row.x * row.y for row in rows]


_SLOPE = "[[grad(x * x * y, x) := 2 * x * y]]"
_Z = [row.z for row in T if row.z is not None]

CASES = [
    Case("sum", f"SELECT SUM({_SLOPE}) AS d FROM t", [(sum(_slopes(T)),)]),
    Case(
        "several_aggregates_by_group",
        f"SELECT g, AVG({_SLOPE}) AS a, MIN({_SLOPE}) AS b, MAX({_SLOPE}) AS c, COUNT({_SLOPE}) AS n "
        "FROM t GROUP BY g ORDER BY g",
        [
            (g, statistics.fmean(_slopes(_group(g))), min(_slopes(_group(g))), max(_slopes(_group(g))), len(_group(g)))
            for g in _GROUPS
        ],
    ),
    Case(
        "standard_deviation",
        f"SELECT stddev({_SLOPE}) AS d, abs(AVG({_SLOPE})) * stddev(x) AS e FROM t",
        [
            (
                statistics.stdev(_slopes(T)),
                abs(statistics.fmean(_slopes(T))) * statistics.stdev(row.x for row in T),
            )
        ],
    ),
    Case(
        "average_over_nulls_is_the_derivative_of_the_average",
        "SELECT AVG([[grad(z * z * x, x) := CASE WHEN z IS NOT NULL THEN z * z END]]) AS d, "
        "COUNT([[grad(z * z * x, x) := CASE WHEN z IS NOT NULL THEN z * z END]]) AS n FROM t",
        [(sum(z * z for z in _Z) / len(_Z), len(_Z))],
    ),
    Case(
        "filter",
        f"SELECT SUM(x) FILTER (WHERE {_SLOPE} > 0) AS a, SUM({_SLOPE}) FILTER (WHERE x > 0) AS b FROM t",
        [
            (
                sum(row.x for row in T if 2 * row.x * row.y > 0),
                sum(2 * row.x * row.y for row in T if row.x > 0),
            )
        ],
    ),
    Case(
        "distinct",
        "SELECT COUNT(DISTINCT [[grad(w * w, w) := 2 * w]]) AS n, SUM(DISTINCT [[grad(w * w, w) := 2 * w]]) AS d FROM t",
        [(3, 12.0)],
    ),
    Case(
        "ordered_aggregate",
        f"SELECT array_agg(id ORDER BY {_SLOPE} DESC) AS a, array_agg({_SLOPE} ORDER BY id) AS b FROM t",
        [([row.id for row in sorted(T, key=lambda row: -2 * row.x * row.y)], _slopes(T))],
    ),
    Case(
        "jvp_and_vjp",
        "SELECT g, SUM([[jvp(x * y, x, 1.0, y, x) := y + x * x]]) AS a, AVG([[vjp(x * y, x, w) := w * y]]) AS b "
        "FROM t GROUP BY g ORDER BY g",
        [
            (
                g,
                sum(row.y + row.x * row.x for row in _group(g)),
                statistics.fmean(row.w * row.y for row in _group(g)),
            )
            for g in _GROUPS
        ],
    ),
    Case(
        "aggregate_of_no_rows",
        "SELECT SUM([[grad(x * x, x) := 2 * x]]) AS d, COUNT([[grad(x * x, x) := 2 * x]]) AS n FROM empty",
        [(None, 0)],
    ),
    Case(
        "running_sum",
        f"SELECT id, SUM({_SLOPE}) OVER (ORDER BY id) AS d FROM t ORDER BY id",
        [(row.id, total) for row, total in zip(T, accumulate(_slopes(T)), strict=True)],
    ),
    Case(
        "window_by_partition",
        f"SELECT id, AVG({_SLOPE}) OVER (PARTITION BY g) AS d FROM t ORDER BY id",
        [(row.id, statistics.fmean(_slopes(_group(row.g)))) for row in T],
    ),
    Case(
        "window_frame",
        f"SELECT id, SUM({_SLOPE}) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS d FROM t ORDER BY id",
        [(row.id, sum(_slopes(T[max(0, i - 1) : i + 2]))) for i, row in enumerate(T)],
    ),
    Case(
        "lag",
        f"SELECT id, lag({_SLOPE}) OVER (ORDER BY id) AS d FROM t ORDER BY id",
        [(row.id, before) for row, before in zip(T, [None, *_slopes(T)[:-1]], strict=True)],
    ),
    Case(
        "window_ordered_by_derivative",
        f"SELECT id, rank() OVER (ORDER BY {_SLOPE}) AS r FROM t ORDER BY id",
        [(row.id, 1 + sum(slope < 2 * row.x * row.y for slope in _slopes(T))) for row in T],
    ),
    Case(
        "window_partitioned_by_derivative",
        "SELECT id, COUNT(*) OVER (PARTITION BY [[grad(w * w, w) := 2 * w]]) AS n FROM t ORDER BY id",
        [(row.id, sum(other.w == row.w for other in T)) for row in T],
    ),
    Case(
        "named_window",
        f"SELECT id, SUM({_SLOPE}) OVER win AS d FROM t WINDOW win AS (PARTITION BY g) ORDER BY id",
        [(row.id, sum(_slopes(_group(row.g)))) for row in T],
    ),
    Case(
        "beside_an_aggregate_of_another_column",
        "SELECT id, [[grad(x * x, x) := 2 * x]] - AVG([[grad(x * x, x) := 2 * x]]) OVER () AS d FROM t ORDER BY id",
        [(row.id, 2 * row.x - statistics.fmean(2 * other.x for other in T)) for row in T],
    ),
    Case(
        "window_over_an_aggregate_of_derivatives",
        f"SELECT g, SUM(SUM({_SLOPE})) OVER (ORDER BY g) AS d FROM t GROUP BY g ORDER BY g",
        list(zip(_GROUPS, accumulate(sum(_slopes(_group(g))) for g in _GROUPS), strict=True)),
    ),
    Case(
        "arithmetic_of_aggregates",
        f"SELECT g, SUM({_SLOPE} * x) / SUM(x * x) + 1 AS d FROM t GROUP BY g ORDER BY g",
        [
            (
                g,
                sum(2 * row.x * row.y * row.x for row in _group(g)) / sum(row.x * row.x for row in _group(g)) + 1,
            )
            for g in _GROUPS
        ],
    ),
]


@params(CASES)
def test_aggregates_windows(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)
