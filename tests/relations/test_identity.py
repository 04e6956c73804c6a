"""Two references to one table are two variables, and a 0 is a 0."""

import pytest
from datafusion import SessionContext

from support.cases import query
from support.compare import assert_same_rows, rows_of
from support.errors import Refused, assert_refused, refusals

PAIRED = "t AS a JOIN t AS b ON a.id = b.id"
CASES = [
    Refused(
        "the_other_reference_of_a_table",
        "SELECT grad(a.x * a.x, b.x) FROM t AS a JOIN t AS b ON a.id = b.id",
        ["does not vary with b.x", "differentiate by a.x"],
    ),
    Refused(
        "the_variable_inside_a_correlated_subquery",
        "SELECT grad((SELECT AVG(x) FROM t AS u WHERE u.id > t.id), x) FROM t",
        ["correlated subquery", "write it as a join"],
    ),
    Refused(
        "the_other_reference_inside_a_subquery_below",
        "SELECT grad(m, x) FROM (SELECT x, (SELECT MAX(x) FROM t) AS m FROM t) AS q",
        ["reads the rows that x comes from", "in the call itself"],
    ),
    Refused(
        "the_other_reference_in_the_query_around",
        "SELECT (SELECT grad(AVG(r.w * r.x), t.w) FROM t AS r WHERE r.id = t.id) FROM t",
        ["does not vary with t.w", "every reference", "pass on the w"],
    ),
    Refused(
        "the_other_reference_of_the_query_around",
        "SELECT (SELECT SUM(grad(u.x * b.x, a.x)) FROM u) FROM t AS a CROSS JOIN t AS b",
        ["does not vary with a.x", "differentiate by b.x"],
    ),
    Refused(
        "the_other_reference_of_one_pair_beside_another",
        "SELECT jvp(a.p * c.y, c.y, 1.0, b.x, 1.0) FROM (SELECT id, x, x * x AS p FROM t) AS a "
        "JOIN t AS b ON a.id = b.id JOIN t AS c ON a.id = c.id",
        ["does not vary with b.x", "differentiate by a.x"],
    ),
    Refused(
        "the_other_reference_through_a_pair_and_beside_it",
        "SELECT jvp(r, a.p, 1.0, b.x, 1.0) FROM (SELECT id, p, p * x AS r FROM shared) AS a "
        "JOIN shared AS b ON a.id = b.id",
        ["does not vary with b.x", "pass on the x that a.r is computed from"],
    ),
    Refused(
        "the_other_reference_passed_on_together",
        "SELECT grad(p * 2, second) FROM (SELECT a.x AS first, b.x AS second, a.p FROM shared AS a "
        "JOIN shared AS b ON a.id = b.id) AS m",
        ["does not vary with m.second", "differentiate by m.first"],
    ),
    Refused(
        "the_other_reference_inside_a_recursion",
        "WITH RECURSIVE p AS (SELECT 0.5 AS w), r AS (SELECT 0 AS s, w, w AS x FROM p UNION ALL "
        "SELECT s + 1, w, w * x FROM r WHERE s < 3) SELECT grad(r.x, p.w) FROM r CROSS JOIN p",
        ["does not vary with p.w", "differentiate by r.w"],
    ),
    Refused(
        "the_other_reference_in_the_recursive_term",
        "WITH RECURSIVE r AS (SELECT 0 AS step, x, x AS z FROM t UNION ALL "
        "SELECT step + 1, r.x, grad(3 * r.x, t.x) FROM r CROSS JOIN t WHERE step < 3) SELECT z FROM r",
        ["does not vary with t.x", "a variable of its own"],
    ),
    Refused(
        "the_reference_of_the_iteration_before",
        "WITH RECURSIVE r AS (SELECT 0 AS step, CAST(1 AS DOUBLE) AS l, CAST(0 AS DOUBLE) AS d UNION ALL "
        "SELECT step + 1, r.l * t.x, grad(r.l * r.l, t.x) FROM r CROSS JOIN t WHERE step < 2) SELECT d FROM r",
        ["does not vary with t.x", "a variable of its own"],
    ),
    Refused(
        "the_other_reference_in_a_list",
        "WITH m AS (SELECT unnest([x, x * 2]) AS c FROM t) SELECT grad(c, t.x) FROM m CROSS JOIN t",
        ["comes out of a list"],
    ),
    Refused(
        "the_other_reference_read_by_the_recursive_term_alone",
        "WITH RECURSIVE r AS (SELECT 0 AS s, 1.0 AS z, x FROM t UNION ALL "
        "SELECT s + 1, 0.5 * z + 0.3 * x, x FROM r WHERE s < 3) SELECT grad(r.z, t.x) FROM r CROSS JOIN t",
        ["does not vary with t.x", "differentiate by r.x"],
    ),
]


@pytest.fixture(autouse=True, scope="module")
def _shared(ctx: SessionContext) -> None:
    """References to a view share the nodes of its plan."""
    query(ctx, "CREATE VIEW shared AS SELECT id, x, x * x AS p FROM t")


@refusals(CASES)
def test_another_reference(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT grad(m.y, m.w) AS d FROM (SELECT w, w * x AS p, y FROM t) AS m",
        "SELECT grad(b.y, a.x) AS d FROM t AS a JOIN t AS b ON a.id = b.id",
        "SELECT grad(u.x * u.x, t.x) AS d FROM t CROSS JOIN u",
        "SELECT grad(k * 1.5, w) AS d FROM (SELECT w, floor(w * x) AS f, CAST(w AS BIGINT) AS k FROM t) AS m",
        # The variable is what the subquery computes, and p is not computed from it.
        "SELECT grad(p, v) AS d FROM (SELECT 2 * w AS v, w * x AS p FROM t) AS m",
        "SELECT grad(f, w) AS d FROM (SELECT w, floor(w * x) AS f FROM t) AS m",
        "SELECT grad(grad(n * 1.5, a.x), b.x) AS d FROM (SELECT x, COUNT(x) OVER () AS n FROM t) AS a, t AS b",
        "SELECT grad(n * 1.5, w) AS d FROM (SELECT w, COUNT(w * x) AS n FROM t GROUP BY w) AS m",
        # Every iteration has a w of its own, which q is not computed from.
        "WITH RECURSIVE r AS (SELECT 0 AS step, w, w * w AS q FROM t UNION ALL "
        "SELECT step + 1, 2 * w, q FROM r WHERE step < 2) SELECT grad(q, w) AS d FROM r",
    ],
)
def test_what_does_not_vary(ctx: SessionContext, statement: str) -> None:
    assert {value for (value,) in rows_of(query(ctx, statement))} == {0.0}


def test_each_reference_of_its_own(ctx: SessionContext) -> None:
    found = query(
        ctx,
        """WITH m AS (SELECT id, w, w * w AS p FROM t)
           SELECT grad(a.p * b.p, a.w) AS da, grad(a.p * b.p, b.w) AS db, 2 * a.w * b.p AS ea, 2 * b.w * a.p AS eb
           FROM m AS a JOIN m AS b ON a.id = b.id + 1 ORDER BY a.id""",
    ).to_pydict()
    assert found["da"] == found["ea"]
    assert found["db"] == found["eb"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        # Of a pair that depends on nothing but what another names, the part is 0.
        ("jvp(a.x * b.y, a.x, 1.0, b.x, 1.0)", "b.y"),
        ("jvp(a.p * b.y, a.x, 1.0, b.x, 1.0)", "2 * a.x * b.y"),
        ("jvp(sin(a.p), a.p, 1.0, b.x, 1.0)", "cos(a.p)"),
        ("jvp(a.p * b.p, a.x, 1.0, b.x, 2.0)", "2 * a.x * b.p + 2 * 2 * b.x * a.p"),
    ],
)
def test_both_references_in_one_call(ctx: SessionContext, call: str, expected: str) -> None:
    found = query(
        ctx,
        f"SELECT {call} AS d, {expected} AS e FROM shared AS a JOIN shared AS s ON a.id = s.id + 1 "
        "JOIN (SELECT s.id, s.x, s.p, t.y FROM shared AS s JOIN t ON s.id = t.id) AS b ON s.id = b.id",
    ).to_pydict()
    assert found["d"] == pytest.approx(found["e"])


REFUSED = [
    Refused(
        "subquery_that_varies",
        "SELECT grad(x * (SELECT SUM(u.x * t.x) FROM u), x) FROM t",
        [r"SELECT sum\(u.x \* t.x\) FROM u\) reads t.x", "write it as a join"],
    ),
    Refused(
        "subquery_that_varies_below",
        "SELECT grad(m, x) FROM (SELECT x, (SELECT SUM(u.x * t.x) FROM u) AS m FROM t) AS q",
        [r"SELECT sum\(u.x \* t.x\) FROM u\) reads t.x", "write it as a join"],
    ),
    Refused(
        "lateral_that_varies",
        "SELECT grad(l.m, t.x) FROM t CROSS JOIN LATERAL (SELECT SUM(u.x * t.x) AS m FROM u) AS l",
        ["LATERAL", "Write it as a join"],
    ),
    Refused("distinct", "SELECT grad(SUM(DISTINCT w * x), w) FROM t GROUP BY w", ["distinct", "no derivative"]),
    Refused("median", "SELECT grad(approx_median(w * x), w) FROM t GROUP BY w", ["approx_median", "no derivative"]),
    Refused(
        "list",
        "SELECT grad(l[1], w) FROM (SELECT w, array_agg(w * x) AS l FROM t GROUP BY w) AS m",
        ["array_agg", "no derivative"],
    ),
    Refused(
        "unnested",
        "SELECT grad(e, w) FROM (SELECT w, unnest(make_array(w * x, w)) AS e FROM t) AS m",
        ["unnest|list|make_array"],
    ),
    Refused(
        "recursion_of_distinct_rows",
        "WITH RECURSIVE r AS (SELECT w, w AS x, 0 AS s FROM t UNION SELECT w, x * w, s + 1 FROM r WHERE s < 3) "
        "SELECT grad(x, w) FROM r",
        ["UNION ALL", "w"],
    ),
    Refused(
        "function_without_rule_below",
        "SELECT grad(p, w) FROM (SELECT w, factorial(CAST(w AS BIGINT)) * array_distance([w], [x]) AS p FROM t) AS m",
        ["array_distance"],
    ),
    Refused(
        "the_other_reference_in_one_branch_of_a_union",
        f"SELECT grad(f, x) FROM (SELECT x, x * x AS f FROM t UNION ALL SELECT a.x, b.x FROM {PAIRED})",
        ["in branch 2 of a UNION ALL", "f does not vary with x"],
    ),
    Refused(
        "the_other_reference_in_one_branch_of_a_union_further_down",
        "SELECT grad(s, x) FROM (SELECT x, SUM(f) AS s FROM (SELECT x, x AS f FROM t UNION ALL "
        f"(SELECT x, y AS f FROM t UNION ALL SELECT a.x, b.x FROM {PAIRED})) AS u GROUP BY x)",
        ["in branch 3 of a UNION ALL", "s does not vary with u.x"],
    ),
    Refused(
        "the_other_reference_in_one_branch_of_a_distinct_union",
        f"SELECT grad(f, x) FROM (SELECT x, x * x AS f FROM t UNION SELECT a.x, b.x FROM {PAIRED})",
        ["f does not vary with x"],
    ),
]


@refusals(REFUSED)
def test_what_cannot_be_followed(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


def test_a_branch_of_a_union_that_depends_on_both_references(ctx: SessionContext) -> None:
    """It has the derivative by the one that is named, as without the other branch."""
    branches = (
        "SELECT id, x, x * x AS f FROM t UNION ALL SELECT a.id, a.x, b.x * b.x FROM t AS a JOIN t AS b ON a.id = b.id"
    )
    found = query(ctx, f"SELECT grad(f * x, x) - x * x AS d FROM ({branches}) AS u ORDER BY id, d")
    expected = query(
        ctx, "SELECT d FROM (SELECT id, 0.0 AS d FROM t UNION ALL SELECT id, 2 * x * x FROM t) AS u ORDER BY id, d"
    )
    assert_same_rows(rows_of(found), rows_of(expected), abs_=1e-12)


@pytest.mark.parametrize("name", ["g", '"∂y/∂x"'])
def test_a_column_that_equals_a_tangent_is_a_variable(ctx: SessionContext, name: str) -> None:
    """The derivative of y by x does not vary with it."""
    columns = (
        f"WITH a AS (SELECT x, x * x * x AS z FROM t), b AS (SELECT x, x * z AS y, grad(x * z, x) AS {name} FROM a)"
    )
    by_itself = query(ctx, f"{columns} SELECT grad(grad(y, x), {name}) AS d, grad({name} * y, {name}) - y AS e FROM b")
    assert set(rows_of(by_itself)) == {(0.0, 0.0)}
    by_x = query(
        ctx, f"{columns} SELECT grad({name}, x) - 12 * x * x AS d, grad(grad(y, x), x) - 12 * x * x AS e FROM b"
    )
    assert_same_rows(rows_of(by_x), [(0.0, 0.0)] * by_x.num_rows, abs_=1e-12)


@pytest.mark.parametrize("function", ["SUM", "AVG"])
def test_an_aggregate_that_equals_a_tangent_is_a_variable(ctx: SessionContext, function: str) -> None:
    columns = f"SELECT w, {function}(w * x) AS s, {function}(x) AS g FROM t GROUP BY w"
    found = query(ctx, f"SELECT grad(grad(s, w), g) AS d FROM ({columns}) AS q")
    assert set(rows_of(found)) == {(0.0,)}
