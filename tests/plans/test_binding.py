"""The variable is the column that SQL binds, whatever it is called."""

from collections.abc import Callable
from pathlib import Path

from datafusion import SessionContext

from support.cases import Case, check, params
from support.tables import T, U, V

_V = {row.id: row for row in V}
_PAIRS = [(row, _V[row.id]) for row in U if row.id in _V]

CASES = [
    Case(
        "columns_of_one_name_in_two_tables",
        "SELECT u.id, [[grad(u.x * v.x, u.x) := v.x]] AS d, [[grad(u.x * v.x, v.x) := u.x]] AS e "
        "FROM u JOIN v ON u.id = v.id ORDER BY u.id",
        [(left.id, right.x, left.x) for left, right in _PAIRS],
    ),
    Case(
        "one_table_twice",
        "SELECT a.id, [[grad(a.x * a.x * b.x, a.x) := 2 * a.x * b.x]] AS d, "
        "[[grad(a.x * a.x * b.x, b.x) := a.x * a.x]] AS e "
        "FROM t AS a JOIN t AS b ON b.id = a.id + 1 ORDER BY a.id",
        [(left.id, 2 * left.x * right.x, left.x**2) for left, right in zip(T, T[1:], strict=False)],
    ),
    Case(
        "bare_and_qualified_name_of_one_column",
        "SELECT id, [[grad(x * t.x, x) := 2 * x]] AS d, [[grad(x * t.x, t.x) := 2 * x]] AS e FROM t ORDER BY id",
        [(row.id, 2 * row.x, 2 * row.x) for row in T],
    ),
    Case(
        "fully_qualified_name",
        "SELECT id, [[grad(x * datafusion.public.t.x, public.t.x) := 2 * x]] AS d FROM datafusion.public.t ORDER BY id",
        [(row.id, 2 * row.x) for row in T],
    ),
    Case(
        "upper_case_names",
        "SELECT ID, [[GRAD(X * X, X) := 2 * X]] AS D FROM T ORDER BY ID",
        [(row.id, 2 * row.x) for row in T],
    ),
    Case(
        "quoted_names",
        """SELECT "X", [[grad("X" * "X" * "a b.c", "X") := 2 * "X" * "a b.c"]] AS d,
                  [[grad("X" * "X" * "a b.c", q."a b.c") := "X" * "X"]] AS e
           FROM (SELECT x AS "X", y AS "a b.c" FROM t) AS q ORDER BY "X" """,
        [(row.x, 2 * row.x * row.y, row.x**2) for row in sorted(T, key=lambda row: row.x)],
    ),
    Case(
        "quoted_names_that_differ_in_case",
        """SELECT id, [[grad("a" * "A" * "A", "A") := 2 * "a" * "A"]] AS d
           FROM (SELECT id, x AS "a", y AS "A" FROM t) AS q ORDER BY id""",
        [(row.id, 2 * row.x * row.y) for row in T],
    ),
    Case(
        "unicode_and_keywords_as_names",
        """SELECT id, [[grad("ß°" * "select" * "select", "select") := 2 * "ß°" * "select"]] AS d
           FROM (SELECT id, x AS "ß°", y AS "select" FROM t) AS q ORDER BY id""",
        [(row.id, 2 * row.x * row.y) for row in T],
    ),
    Case(
        "a_column_called_like_the_function",
        """SELECT id, [[grad("grad" * "grad", "grad") := 2 * "grad"]] AS d
           FROM (SELECT id, x AS "grad" FROM t) AS q ORDER BY id""",
        [(row.id, 2 * row.x) for row in T],
    ),
    Case(
        "alias_of_the_table_hides_its_name",
        "SELECT q.id, [[grad(q.x * q.x, q.x) := 2 * q.x]] AS d FROM t AS q ORDER BY q.id",
        [(row.id, 2 * row.x) for row in T],
    ),
    Case(
        "names_swapped_below",
        "SELECT id, [[grad(x * x * y, x) := 2 * x * y]] AS d FROM (SELECT id, y AS x, x AS y FROM t) AS q ORDER BY id",
        [(row.id, 2 * row.y * row.x) for row in T],
    ),
    Case(
        "the_derivative_named_like_its_variable",
        "SELECT id, [[grad(x * x, x) := 2 * x]] AS x FROM t ORDER BY id",
        [(row.id, 2 * row.x) for row in T],
    ),
    Case(
        "column_of_the_inner_query_hides_that_of_the_outer",
        """SELECT u.id FROM u WHERE EXISTS (
             SELECT 1 FROM v WHERE v.id = u.id AND [[grad(x * u.x, x) := u.x]] > 0) ORDER BY u.id""",
        [(left.id,) for left, _ in _PAIRS if left.x > 0],
    ),
    Case(
        "columns_of_one_name_of_the_inner_and_the_outer_query",
        """SELECT u.id FROM u WHERE EXISTS (
             SELECT 1 FROM v WHERE v.id = u.id AND [[grad(v.x * u.x * u.x, u.x) := 2 * v.x * u.x]] > 0) ORDER BY u.id""",
        [(left.id,) for left, right in _PAIRS if 2 * right.x * left.x > 0],
    ),
    Case(
        "column_by_position_of_using",
        "SELECT id, [[grad(u.x * u.x * v.y, u.x) := 2 * u.x * v.y]] AS d FROM u JOIN v USING (id) ORDER BY id",
        [(left.id, 2 * left.x * right.y) for left, right in _PAIRS],
    ),
    Case(
        "struct_field_beside_the_variable",
        """SELECT id, [[grad(x * x * s['a'], x) := 2 * x * s['a']]] AS d
           FROM (SELECT id, x, named_struct('a', y) AS s FROM t) AS q ORDER BY id""",
        [(row.id, 2 * row.x * row.y) for row in T],
    ),
]


@params(CASES)
def test_binding(case: Case, register: Callable[[SessionContext], SessionContext], tmp_path: Path) -> None:
    check(case, register, tmp_path)
