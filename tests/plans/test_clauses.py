"""Derivatives in every clause of a query and in every position of an expression."""

import math
from collections.abc import Callable
from pathlib import Path

from datafusion import SessionContext

from support.cases import Case, check, params
from support.tables import T, U, V

_V = {row.id: row for row in V}
_BY_SLOPE = sorted(T, key=lambda row: 2 * row.x * row.y)
_W = sorted({row.w for row in T})

CASES = [
    Case(
        "where",
        "SELECT id FROM t WHERE [[grad(x * x * y, x) := 2 * x * y]] > 0 ORDER BY id",
        [(row.id,) for row in T if 2 * row.x * row.y > 0],
    ),
    Case(
        "where_between",
        "SELECT id FROM t WHERE [[grad(x * x, x) := 2 * x]] BETWEEN -2 AND 2 ORDER BY id",
        [(row.id,) for row in T if -2 <= 2 * row.x <= 2],
    ),
    Case(
        "where_in_list",
        "SELECT id FROM t WHERE 1.0 IN ([[grad(x * x, x) := 2 * x]], x, [[grad(x * y, x) := y]]) ORDER BY id",
        [(row.id,) for row in T if 1.0 in (2 * row.x, row.x, row.y)],
    ),
    Case(
        "where_is_null",
        "SELECT id FROM t WHERE [[grad(z * z, z) := 2 * z]] IS NULL ORDER BY id",
        [(row.id,) for row in T if row.z is None],
    ),
    Case(
        "where_not_and_or",
        """SELECT id FROM t WHERE NOT ([[grad(x * x, x) := 2 * x]] > 0)
           OR ([[grad(x * y, y) := x]] > 1 AND y < 0) ORDER BY id""",
        [(row.id,) for row in T if not 2 * row.x > 0 or (row.x > 1 and row.y < 0)],
    ),
    Case(
        "having_on_an_aggregate",
        "SELECT g FROM t GROUP BY g HAVING AVG([[grad(x * x * y, x) := 2 * x * y]]) > 0 ORDER BY g",
        [(g,) for g in ("a", "b", "c") if sum(2 * row.x * row.y for row in T if row.g == g) > 0],
    ),
    Case(
        "having_on_a_group_column",
        "SELECT w, COUNT(*) AS n FROM t GROUP BY w HAVING [[grad(w * w, w) := 2 * w]] > 3 ORDER BY w",
        [(w, sum(row.w == w for row in T)) for w in _W if 2 * w > 3],
    ),
    Case(
        "of_group_columns",
        "SELECT w, [[grad(w * w * w, w) := 3 * w * w]] AS d FROM t GROUP BY w ORDER BY w",
        [(w, 3 * w * w) for w in _W],
    ),
    Case(
        "of_a_group_column_times_an_aggregate_of_another",
        "SELECT w, [[grad(w * w * SUM(y), w) := 2 * w * SUM(y)]] AS d FROM t GROUP BY w ORDER BY w",
        [(w, 2 * w * sum(row.y for row in T if row.w == w)) for w in _W],
    ),
    Case(
        "group_by",
        """SELECT [[grad(w * w, w) := 2 * w]] AS d, COUNT(*) AS n, SUM(x) AS s
           FROM t GROUP BY [[grad(w * w, w) := 2 * w]] ORDER BY d""",
        [(2 * w, sum(row.w == w for row in T), sum(row.x for row in T if row.w == w)) for w in _W],
    ),
    Case(
        "group_by_position",
        "SELECT [[grad(w * w, w) := 2 * w]] AS d, COUNT(*) AS n FROM t GROUP BY 1 ORDER BY 1",
        [(2 * w, sum(row.w == w for row in T)) for w in _W],
    ),
    Case(
        "group_by_rollup",
        "SELECT [[grad(w * w, w) := 2 * w]] AS d, COUNT(*) AS n FROM t "
        "GROUP BY ROLLUP ([[grad(w * w, w) := 2 * w]]) ORDER BY d NULLS LAST",
        [*((2 * w, sum(row.w == w for row in T)) for w in _W), (None, len(T))],
    ),
    Case(
        "order_by",
        "SELECT id FROM t ORDER BY [[grad(x * x * y, x) := 2 * x * y]]",
        [(row.id,) for row in _BY_SLOPE],
    ),
    Case(
        "order_by_descending_with_limit",
        "SELECT id, x FROM t ORDER BY [[grad(x * x * y, x) := 2 * x * y]] DESC LIMIT 2",
        [(row.id, row.x) for row in _BY_SLOPE[::-1][:2]],
    ),
    Case(
        "order_by_the_name_of_the_derivative",
        "SELECT id, [[grad(x * x * y, x) := 2 * x * y]] AS d FROM t ORDER BY d",
        [(row.id, 2 * row.x * row.y) for row in _BY_SLOPE],
    ),
    Case(
        "distinct",
        "SELECT DISTINCT [[grad(w * w, w) := 2 * w]] AS d FROM t ORDER BY d",
        [(2 * w,) for w in _W],
    ),
    Case(
        "distinct_on",
        "SELECT DISTINCT ON ([[grad(w * w, w) := 2 * w]]) w, id FROM t ORDER BY [[grad(w * w, w) := 2 * w]], id",
        [(w, min(row.id for row in T if row.w == w)) for w in _W],
    ),
    Case(
        "qualify",
        """SELECT id FROM t
           QUALIFY ROW_NUMBER() OVER (ORDER BY [[grad(x * x * y, x) := 2 * x * y]] DESC) = 1""",
        [(_BY_SLOPE[-1].id,)],
    ),
    Case(
        "join_on",
        """SELECT u.id, v.id AS other FROM u JOIN v ON [[grad(u.x * u.x, u.x) := 2 * u.x]] > v.x
           ORDER BY u.id, v.id""",
        [(left.id, right.id) for left in U for right in V if 2 * left.x > right.x],
    ),
    Case(
        "join_on_equality_of_derivatives",
        """SELECT l.id, r.id AS other FROM t AS l
           JOIN t AS r ON [[grad(l.w * l.w, l.w) := 2 * l.w]] = [[grad(r.w * r.w, r.w) := 2 * r.w]] AND l.id < r.id
           ORDER BY l.id, r.id""",
        [(left.id, right.id) for left in T for right in T if left.w == right.w and left.id < right.id],
    ),
    Case(
        "join_on_both_sides",
        """SELECT u.id FROM u JOIN v ON u.id = v.id AND [[grad(u.x * u.x * v.x, u.x) := 2 * u.x * v.x]] > 0
           ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and 2 * row.x * _V[row.id].x > 0],
    ),
    Case(
        "left_join_on",
        """SELECT u.id, v.y FROM u LEFT JOIN v ON u.id = v.id AND [[grad(u.x * v.x * v.x, v.x) := 2 * u.x * v.x]] > 0
           ORDER BY u.id""",
        [(row.id, _V[row.id].y if row.id in _V and 2 * row.x * _V[row.id].x > 0 else None) for row in U],
    ),
    Case(
        "left_semi_join_on",
        "SELECT u.id FROM u LEFT SEMI JOIN v ON [[grad(u.x * u.x, u.x) := 2 * u.x]] > v.y ORDER BY u.id",
        [(row.id,) for row in U if any(2 * row.x > other.y for other in V)],
    ),
    Case(
        "over_a_join",
        "SELECT u.id, [[grad(u.x * sin(v.y), u.x) := sin(v.y)]] AS d FROM u JOIN v USING (id) ORDER BY u.id",
        [(row.id, math.sin(_V[row.id].y)) for row in U if row.id in _V],
    ),
    Case(
        "case_condition",
        "SELECT id, CASE WHEN [[grad(x * x, x) := 2 * x]] > 0 THEN 'up' ELSE 'down' END AS way FROM t ORDER BY id",
        [(row.id, "up" if row.x > 0 else "down") for row in T],
    ),
    Case(
        "case_result",
        """SELECT id, CASE WHEN x > 0 THEN [[grad(x * x, x) := 2 * x]] ELSE [[grad(x * y, x) := y]] END AS d
           FROM t ORDER BY id""",
        [(row.id, 2 * row.x if row.x > 0 else row.y) for row in T],
    ),
    Case(
        "case_with_operand",
        "SELECT id, CASE [[grad(w * w, w) := 2 * w]] WHEN 2.0 THEN 'two' WHEN 4.0 THEN 'four' END AS n "
        "FROM t ORDER BY id",
        [(row.id, {1.0: "two", 2.0: "four"}.get(row.w)) for row in T],
    ),
    Case(
        "arguments_of_functions",
        "SELECT id, round(abs([[grad(x * y * y, y) := 2 * x * y]]), 1) + coalesce([[grad(z * z, z) := 2 * z]], -1.0) "
        "AS d FROM t ORDER BY id",
        [(row.id, round(abs(2 * row.x * row.y) + 1e-9, 1) + (-1.0 if row.z is None else 2 * row.z)) for row in T],
    ),
    Case(
        "cast",
        "SELECT id, CAST([[grad(x * x, x) := 2 * x]] AS VARCHAR) AS text, "
        "CAST([[grad(w * w, w) := 2 * w]] AS BIGINT) AS whole FROM t ORDER BY id",
        [(row.id, str(2 * row.x), int(2 * row.w)) for row in T],
    ),
    Case(
        "struct_and_array",
        "SELECT id, named_struct('d', [[grad(x * x, x) := 2 * x]]) AS s, "
        "make_array([[grad(x * y, x) := y]], [[grad(x * y, y) := x]]) AS l FROM t ORDER BY id",
        [(row.id, {"d": 2 * row.x}, [row.y, row.x]) for row in T],
    ),
    Case(
        "unnest",
        "SELECT unnest(make_array([[grad(x * y, x) := y]], [[grad(x * y, y) := x]])) AS d FROM t WHERE id = 1",
        [(2.0,), (0.5,)],
    ),
    Case(
        "limit_and_offset",
        "SELECT id, [[grad(x * x, x) := 2 * x]] AS d FROM t ORDER BY id LIMIT 2 OFFSET 1",
        [(row.id, 2 * row.x) for row in T[1:3]],
    ),
    Case(
        "the_same_derivative_many_times",
        "SELECT id, [[grad(sin(x), x) := cos(x)]] AS a, [[grad(sin(x), x) := cos(x)]] + 1 AS b, "
        "[[grad(sin(x), x) := cos(x)]] * [[grad(sin(x), x) := cos(x)]] AS c FROM t ORDER BY id",
        [(row.id, math.cos(row.x), math.cos(row.x) + 1, math.cos(row.x) ** 2) for row in T],
    ),
]


@params(CASES)
def test_clauses(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)
