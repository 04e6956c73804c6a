"""Derivatives in subqueries, also by a column of the outer query, and of expressions that contain subqueries."""

from collections.abc import Callable
from pathlib import Path

from datafusion import SessionContext

from support.cases import Case, check, params
from support.tables import T, U, V

_V = {row.id: row for row in V}
_MAX_Y = max(row.y for row in V)
_MEAN_SLOPE = sum(2 * row.x * row.y for row in V) / len(V)

CASES = [
    Case(
        "scalar_subquery_as_constant",
        "SELECT id, [[grad(x * x * (SELECT MAX(y) FROM v), x) := 2 * x * (SELECT MAX(y) FROM v)]] AS d "
        "FROM t ORDER BY id",
        [(row.id, 2 * row.x * _MAX_Y) for row in T],
    ),
    Case(
        "scalar_subquery_as_exponent",
        "SELECT id, [[grad(power(x, (SELECT MIN(k) FROM t WHERE k > 2)), x) := 3 * x * x]] AS d FROM t ORDER BY id",
        [(row.id, 3 * row.x * row.x) for row in T],
    ),
    Case(
        "scalar_subquery_as_tangent",
        "SELECT id, [[jvp(x * x * y, x, (SELECT MAX(y) FROM v)) := 2 * x * y * (SELECT MAX(y) FROM v)]] AS d "
        "FROM t ORDER BY id",
        [(row.id, 2 * row.x * row.y * _MAX_Y) for row in T],
    ),
    Case(
        "correlated_scalar_subquery_as_constant",
        """SELECT id, [[grad(x * x * (SELECT MAX(v.y) FROM v WHERE v.id = u.id), x)
                        := 2 * x * (SELECT MAX(v.y) FROM v WHERE v.id = u.id)]] AS d
           FROM u ORDER BY id""",
        [(row.id, 2 * row.x * _V[row.id].y if row.id in _V else None) for row in U],
    ),
    Case(
        "in_a_scalar_subquery",
        "SELECT id, x - (SELECT AVG([[grad(x * x * y, x) := 2 * x * y]]) FROM v) AS d FROM t ORDER BY id",
        [(row.id, row.x - _MEAN_SLOPE) for row in T],
    ),
    Case(
        "in_the_filter_of_a_scalar_subquery",
        "SELECT (SELECT MAX(id) FROM v WHERE [[grad(x * x, x) := 2 * x]] > 1.0) AS m",
        [(max(row.id for row in V if 2 * row.x > 1),)],
    ),
    Case(
        "in_a_correlated_scalar_subquery",
        """SELECT u.id, (SELECT MAX([[grad(v.x * v.x * v.y, v.x) := 2 * v.x * v.y]])
                         FROM v WHERE v.id = u.id) AS d
           FROM u ORDER BY u.id""",
        [(row.id, 2 * _V[row.id].x * _V[row.id].y if row.id in _V else None) for row in U],
    ),
    Case(
        "variable_of_the_outer_query_in_a_scalar_subquery",
        """SELECT u.id, (SELECT MAX([[grad(v.y * u.x, u.x) := v.y]]) FROM v WHERE v.id = u.id) AS d
           FROM u ORDER BY u.id""",
        [(row.id, _V[row.id].y if row.id in _V else None) for row in U],
    ),
    Case(
        "variable_of_the_outer_query_in_the_filter_of_a_scalar_subquery",
        """SELECT u.id, (SELECT MAX(v.y) FROM v WHERE v.id = u.id AND [[grad(v.x * u.x, u.x) := v.x]] > 0) AS d
           FROM u ORDER BY u.id""",
        [(row.id, _V[row.id].y if row.id in _V and _V[row.id].x > 0 else None) for row in U],
    ),
    Case(
        "exists_with_a_variable_of_the_outer_query",
        """SELECT u.id FROM u
           WHERE EXISTS (SELECT 1 FROM v WHERE v.id = u.id AND [[grad(u.x * u.x * v.x, u.x) := 2 * u.x * v.x]] < 0)
           ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and 2 * row.x * _V[row.id].x < 0],
    ),
    Case(
        "not_exists_with_a_variable_of_the_outer_query",
        """SELECT u.id FROM u
           WHERE NOT EXISTS (
             SELECT 1 FROM v WHERE v.id = u.id AND [[grad(u.x * u.x * v.x, u.x) := 2 * u.x * v.x]] < 0)
           ORDER BY u.id""",
        [(row.id,) for row in U if not (row.id in _V and 2 * row.x * _V[row.id].x < 0)],
    ),
    Case(
        "exists_with_a_variable_of_the_subquery",
        """SELECT u.id FROM u
           WHERE EXISTS (SELECT 1 FROM v WHERE v.id = u.id AND [[grad(v.x * v.x * u.y, v.x) := 2 * v.x * u.y]] < 0)
           ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and 2 * _V[row.id].x * row.y < 0],
    ),
    Case(
        "exists_without_equality",
        """SELECT u.id FROM u
           WHERE EXISTS (SELECT 1 FROM v WHERE v.y > [[grad(u.x * u.x * u.x, u.x) := 3 * u.x * u.x]])
           ORDER BY u.id""",
        [(row.id,) for row in U if any(other.y > 3 * row.x**2 for other in V)],
    ),
    Case(
        "in_subquery_of_derivatives",
        "SELECT id FROM t WHERE x IN (SELECT [[grad(x * x, x) := 2 * x]] FROM t) ORDER BY id",
        [(row.id,) for row in T if row.x in [2 * other.x for other in T]],
    ),
    Case(
        "not_in_subquery_of_derivatives",
        "SELECT id FROM t WHERE x NOT IN (SELECT [[grad(x * x, x) := 2 * x]] FROM t) ORDER BY id",
        [(row.id,) for row in T if row.x not in [2 * other.x for other in T]],
    ),
    Case(
        "derivative_in_subquery",
        "SELECT id FROM t WHERE [[grad(x * x, x) := 2 * x]] IN (SELECT x FROM t) ORDER BY id",
        [(row.id,) for row in T if 2 * row.x in [other.x for other in T]],
    ),
    Case(
        "in_subquery_with_a_variable_of_the_outer_query",
        """SELECT u.id FROM u
           WHERE u.id IN (SELECT v.id FROM v WHERE v.y > [[grad(u.x * u.x, u.x) := 2 * u.x]]) ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and _V[row.id].y > 2 * row.x],
    ),
    Case(
        "compared_with_a_correlated_subquery",
        """SELECT u.id FROM u
           WHERE [[grad(u.x * u.x, u.x) := 2 * u.x]] > (SELECT AVG(v.x) FROM v WHERE v.id = u.id) ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and 2 * row.x > _V[row.id].x],
    ),
    Case(
        "compared_with_any",
        "SELECT id FROM t WHERE [[grad(x * x, x) := 2 * x]] > ANY (SELECT z FROM t) ORDER BY id",
        [(row.id,) for row in T if any(2 * row.x > other.z for other in T if other.z is not None)],
    ),
    Case(
        "lateral_with_a_variable_of_the_outer_query",
        """SELECT u.id, l.y FROM u JOIN LATERAL (
             SELECT v.y AS y FROM v WHERE v.id = u.id AND [[grad(u.x * v.x, u.x) := v.x]] > 0) AS l ON TRUE
           ORDER BY u.id""",
        [(row.id, _V[row.id].y) for row in U if row.id in _V and _V[row.id].x > 0],
    ),
    Case(
        "two_levels_of_outer_queries",
        """SELECT u.id FROM u WHERE EXISTS (
             SELECT 1 FROM v WHERE v.id = u.id AND EXISTS (
               SELECT 1 FROM t WHERE t.id = v.id AND [[grad(v.x * v.x * t.y, v.x) := 2 * v.x * t.y]] < 0))
           ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and any(t.id == row.id and 2 * _V[row.id].x * t.y < 0 for t in T)],
    ),
    Case(
        "nested_with_a_variable_of_the_outer_query",
        """SELECT u.id FROM u WHERE EXISTS (
             SELECT 1 FROM v WHERE v.id = u.id
             AND [[grad(grad(u.x * u.x * u.x * v.x, u.x), u.x) := 6 * u.x * v.x]] > 0)
           ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and 6 * row.x * _V[row.id].x > 0],
    ),
    Case(
        "mixed_derivative_by_outer_and_inner",
        """SELECT u.id FROM u WHERE EXISTS (
             SELECT 1 FROM v WHERE v.id = u.id
             AND [[grad(grad(u.x * u.x * v.x * v.x, u.x), v.x) := 4 * u.x * v.x]] > 0)
           ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and 4 * row.x * _V[row.id].x > 0],
    ),
    Case(
        "jvp_over_outer_and_inner",
        """SELECT u.id FROM u WHERE EXISTS (
             SELECT 1 FROM v WHERE v.id = u.id
             AND [[jvp(u.x * v.x, u.x, 1.0, v.x, 2.0) := v.x + 2 * u.x]] > 0)
           ORDER BY u.id""",
        [(row.id,) for row in U if row.id in _V and _V[row.id].x + 2 * row.x > 0],
    ),
]


@params(CASES)
def test_subqueries(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)
