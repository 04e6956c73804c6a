"""Relations that several parts of a statement read, which are one relation however their copies are rewritten.

Each copy of a CTE is a plan of its own: it scans other CTEs or writes them out, its subqueries are taken apart with
names of their own, and its derivatives are replaced. The cells by which is differentiated are those of all copies.
"""

from __future__ import annotations

import numpy as np
import pytest
from datafusion import SessionContext

from support import stock
from support.sessions import session

# What the gradients are: 3 * x * x, and 2 * x * e, which moves with e wherever `one` is read.
CUBES = "grad((SELECT SUM(x * x * x) FROM t), x)"
SQUARES = "grad((SELECT SUM(x * x * e) FROM t CROSS JOIN one), x)"
STEPS = """q AS (WITH RECURSIVE r AS (
    SELECT 0 AS s, k, w AS v FROM p UNION ALL SELECT s + 1, k, r.v * 2 FROM r WHERE s < 2)
    SELECT k, v FROM r WHERE s = 2)"""
OF_Q = "SELECT k, grad((SELECT SUM(v) FROM q), v) AS d FROM q ORDER BY k"
TWINS = "(WITH i AS (SELECT k, x * x AS w FROM t) SELECT * FROM i)"


@pytest.fixture
def ctx() -> SessionContext:
    return session({"t": {"k": [1, 2], "x": [1.0, 3.0]}, "u": {"k": [1, 2]}, "one": {"e": [2.0]}})


VALUES = {
    "a CTE that is computed once, below": (
        f"WITH p AS MATERIALIZED (SELECT k, x * x AS w FROM t), q AS (SELECT k, w * w AS v FROM p) {OF_Q}",
        [1.0, 1.0],
    ),
    "the same with derivatives": (
        f"""WITH p AS MATERIALIZED (SELECT k, grad(x * x, x) AS w FROM t),
        q AS (SELECT k, grad((SELECT SUM(w * w) FROM p), w) AS v FROM p) {OF_Q}""",
        [1.0, 1.0],
    ),
    "IN": (f"WITH q AS (SELECT k, x * x AS v FROM t WHERE k IN (SELECT k FROM u)) {OF_Q}", [1.0, 1.0]),
    "EXISTS": (
        """WITH q AS (SELECT k, x * x AS v FROM t a WHERE EXISTS (SELECT 1 FROM u WHERE u.k = a.k))
        SELECT k, grad(v * (SELECT SUM(v) FROM q), v) AS d FROM q ORDER BY k""",
        [11.0, 19.0],
    ),
    "a correlated subquery": (
        f"WITH q AS (SELECT k, x * (SELECT MAX(u.k) FROM u WHERE u.k = t.k) AS v FROM t) {OF_Q}",
        [1.0, 1.0],
    ),
    "a gradient of chosen rows": (
        f"WITH q AS (SELECT k, {CUBES} AS v FROM t WHERE k IN (SELECT k FROM u)) {OF_Q}",
        [1.0, 1.0],
    ),
    "two CTEs of one name and text": (
        f"WITH p AS {TWINS}, o AS {TWINS} SELECT k, grad((SELECT SUM(3 * o.w) FROM o), w) AS d FROM p ORDER BY k",
        [0.0, 0.0],
    ),
    "each with its own": (
        f"""WITH p AS {TWINS}, o AS {TWINS}
        SELECT k, grad((SELECT SUM(p.w * o.w) FROM p JOIN o ON p.k = o.k), w) AS d FROM p ORDER BY k""",
        [1.0, 9.0],
    ),
    "iterations of a gradient": (
        f"""WITH p AS (SELECT k, {SQUARES} AS w FROM t), {STEPS}
        SELECT q.k, grad(q.v, e) AS d FROM q CROSS JOIN one ORDER BY 1""",
        [8.0, 24.0],
    ),
    "iterations of a gradient, with the variable": (
        f"""WITH p AS (SELECT k, {SQUARES} AS w FROM t), {STEPS}
        SELECT q.k, grad(q.v * e, e) AS d FROM q CROSS JOIN one ORDER BY 1""",
        [32.0, 96.0],
    ),
    "recursions of one name with CTEs of one name": (
        """WITH a AS (WITH RECURSIVE r AS (SELECT 0 AS s, k, x AS z FROM t UNION ALL (
            WITH p AS (SELECT s, k, grad((SELECT SUM(z * z * z) FROM r), z) AS w FROM r)
            SELECT s + 1, k, w FROM p WHERE s < 1)) SELECT k, z FROM r WHERE s = 1),
        b AS (WITH RECURSIVE r AS (SELECT 0 AS s, k, 2 * x AS z FROM t UNION ALL (
            WITH p AS (SELECT s, k, grad((SELECT SUM(z * z * z) FROM r), z) AS w FROM r)
            SELECT s + 1, k, w FROM p WHERE s < 1)) SELECT k, z FROM r WHERE s = 1)
        SELECT a.k, a.z + b.z AS d FROM a JOIN b ON a.k = b.k ORDER BY 1""",
        [15.0, 135.0],
    ),
}


@pytest.mark.parametrize("what", VALUES)
def test_values(ctx: SessionContext, what: str) -> None:
    statement, expected = VALUES[what]
    np.testing.assert_allclose(ctx.sql(statement).to_pydict()["d"], expected, rtol=1e-12)


@pytest.mark.parametrize("contractions", ["true", "false"])
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (
            f"WITH p AS (SELECT k, {SQUARES} AS w FROM t) SELECT k, grad(w * e, e) AS d FROM p CROSS JOIN one",
            [8.0, 24.0],
        ),
        (
            f"""WITH p AS (SELECT k, {SQUARES} AS w FROM t), q AS (SELECT k, w, e FROM p CROSS JOIN one)
            SELECT k, grad(w, e) AS d FROM q""",
            [2.0, 6.0],
        ),
        (
            f"""WITH p AS (SELECT k, {SQUARES} * e AS w FROM t CROSS JOIN one)
            SELECT k, grad(w * e, e) AS d FROM p CROSS JOIN one""",
            [16.0, 48.0],
        ),
        (
            f"""WITH p AS (SELECT k, {SQUARES} AS w FROM t)
            SELECT a.k, grad(a.w * b.w * e, e) AS d FROM p AS a JOIN p AS b ON a.k = b.k CROSS JOIN one""",
            [48.0, 432.0],
        ),
    ],
)
def test_a_cell_beside_a_gradient(
    ctx: SessionContext, contractions: str, statement: str, expected: list[float]
) -> None:
    """It moves what the gradient has computed, wherever that is planned."""
    ctx.sql(f"SET xql.contractions = {contractions}")
    np.testing.assert_allclose(ctx.sql(f"{statement} ORDER BY 1").to_pydict()["d"], expected, rtol=1e-12)


def test_views_with_ctes_of_one_name(ctx: SessionContext) -> None:
    for view in ("p", "o"):
        ctx.sql(f"CREATE VIEW {view} AS WITH i AS (SELECT k, x * x AS w FROM t) SELECT * FROM i")
    query = "SELECT k, grad((SELECT SUM(p.w * o.w) FROM p JOIN o ON p.k = o.k), w) AS d FROM p ORDER BY k"
    np.testing.assert_allclose(ctx.sql(query).to_pydict()["d"], [1.0, 9.0], rtol=1e-12)


def test_a_cte_with_the_name_and_text_of_a_view(ctx: SessionContext) -> None:
    """They are two relations. In a plan as bytes nobody can tell."""
    ctx.sql("CREATE VIEW p AS SELECT k, x * x AS w FROM t")
    ctx.sql("CREATE VIEW q AS SELECT k, w FROM p")
    query = "WITH p AS (SELECT k, x * x AS w FROM t) SELECT p.k, grad((SELECT SUM(q.w) FROM q), p.w) AS d FROM p"
    if stock.ON_STOCK:
        with pytest.raises(Exception, match="reads a query of the same text by another name"):
            ctx.sql(query).collect()
    else:
        assert ctx.sql(query).to_pydict()["d"] == [0.0, 0.0]


@pytest.mark.parametrize("w", ["x * x", CUBES])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, grad((SELECT SUM(g) FROM g), w) AS d FROM p",
        "SELECT p.k, grad(g.g, p.w) AS d FROM g JOIN p ON g.k = p.k",
    ],
)
def test_a_gradient_through_the_rows_by_which_it_is_differentiated(ctx: SessionContext, w: str, query: str) -> None:
    g = "g AS (SELECT k, grad((SELECT SUM(w * w * w) FROM p), x) AS g FROM t)"
    with pytest.raises(Exception, match="goes through rows that are computed from it"):
        ctx.sql(f"WITH p AS (SELECT k, {w} AS w FROM t), {g} {query}").collect()


@pytest.mark.parametrize(
    ("w", "query", "message"),
    [
        (CUBES, "SELECT q.k, grad(q.v, t.x) AS d FROM q JOIN t ON q.k = t.k", "2 cells of x"),
        (
            "x * x",
            "SELECT q.k, grad(q.v + p.w, t.x) AS d FROM q JOIN p ON q.k = p.k JOIN t ON t.k = p.k",
            "the iterations of q have none",
        ),
    ],
)
def test_iterations_beside_a_variable_of_several_rows(ctx: SessionContext, w: str, query: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        ctx.sql(f"WITH p AS (SELECT k, {w} AS w FROM t), {STEPS} {query}").collect()


@pytest.mark.parametrize("contractions", ["true", "false"])
@pytest.mark.parametrize(
    "query",
    [
        """, q AS (SELECT 0 AS s, k, w AS v FROM p UNION ALL SELECT s + 1, k, v * e FROM q CROSS JOIN one WHERE s < 1)
        SELECT q.k, grad(q.v, one.e) AS d FROM q CROSS JOIN one WHERE s = 1""",
        """, q AS (SELECT 0 AS s, k, w * e AS v FROM p CROSS JOIN one
            UNION ALL SELECT s + 1, k, v * 1 FROM q WHERE s < 1)
        SELECT q.k, grad(q.v, one.e) AS d FROM q CROSS JOIN one WHERE s = 1""",
        """, q AS (SELECT k, w * e AS v FROM p CROSS JOIN one)
        SELECT k, grad(y, e) AS d FROM (SELECT q.k, q.v AS y, e FROM q CROSS JOIN one) AS o""",
    ],
)
def test_a_gradient_beside_another_reference(ctx: SessionContext, contractions: str, query: str) -> None:
    """The gradient moves with the cell, the other reference does not: neither is the derivative that is meant."""
    ctx.sql(f"SET xql.contractions = {contractions}")
    with pytest.raises(Exception, match="is a variable of its own"):
        ctx.sql(f"WITH RECURSIVE p AS (SELECT k, {SQUARES} AS w FROM t) {query}").collect()


def test_a_gradient_of_chosen_rows_is_differentiated() -> None:
    """By the rows of a CTE with an uncorrelated subquery: 2 * 3 v^2 * 6 v."""
    ctx = session({"t": {"k": [1, 2], "x": [1.0, 3.0]}, "u": {"z": [10.0]}})
    query = """WITH q AS (SELECT k, x * x AS v FROM t WHERE x < (SELECT MAX(z) FROM u)),
        s AS (SELECT grad((SELECT SUM(v * v * v) FROM q), v) AS g FROM q)
    SELECT k, grad((SELECT SUM(g * g) FROM s), v) AS d FROM q ORDER BY k"""
    np.testing.assert_allclose(ctx.sql(query).to_pydict()["d"], [36.0, 26244.0], rtol=1e-12)
