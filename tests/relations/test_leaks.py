"""A statement with derivatives has the columns, types and rows that it says, and nothing more."""

import pytest
from datafusion import SessionContext

from support.cases import plans, query
from support.compare import assert_same_rows, rows_of
from support.sessions import session
from support.tables import TABLES

MODEL = "(SELECT id, g, x, y, z, w, w * x AS p, w * z AS q FROM t) AS m"


@pytest.fixture(scope="module")
def plain() -> SessionContext:
    return session(TABLES, differentiates=False)


@pytest.mark.parametrize(
    "statement",
    [
        f"SELECT * FROM {MODEL} WHERE D(p * p, w) > -1000",
        f"SELECT * FROM {MODEL} ORDER BY D(p, w), id",
        f"SELECT *, D(p * q, w) AS d FROM {MODEL}",
        f"SELECT * FROM {MODEL} JOIN u ON m.id = u.id AND D(p, w) > -1000",
        f"SELECT g, COUNT(*) AS n, MAX(p) AS p FROM {MODEL} GROUP BY g, w HAVING D(MAX(p), w) > -1000",
        f"SELECT DISTINCT * FROM {MODEL} WHERE D(p, w) > -1000",
        f"SELECT *, SUM(D(p, w)) OVER (ORDER BY id) AS s FROM {MODEL}",
        f"SELECT * FROM {MODEL} WHERE EXISTS (SELECT * FROM {MODEL} WHERE D(p, w) > -1000)",
        f"SELECT x FROM {MODEL} WHERE D(p, w) > -1000 UNION ALL SELECT y FROM t",
        f"SELECT * FROM {MODEL} WHERE D(p * p, w) > -1000 LIMIT 3",
        f"SELECT g, D(SUM(p), w) AS d FROM {MODEL} GROUP BY g, w",
        f"SELECT D(stddev(q), w) AS d, D(MIN(q), w) AS e FROM {MODEL} GROUP BY w",
        "SELECT D(a, b) AS d FROM (SELECT CAST(x AS REAL) * CAST(y AS REAL) AS a, CAST(x AS REAL) AS b FROM "
        "(SELECT CAST(x AS REAL) AS x, y FROM t) AS s) AS m",
    ],
)
def test_schema_is_that_of_the_statement(plain: SessionContext, ctx: SessionContext, statement: str) -> None:
    """The same names, types, nullability and number of rows as with the expression in place of its derivative."""
    with_calls = query(ctx, statement.replace("D(", "grad("))
    expression = query(plain, _without_calls(statement))
    assert with_calls.schema == expression.schema
    assert with_calls.num_rows == expression.num_rows


def _without_calls(statement: str) -> str:
    """The statement with each `D(f, x)` replaced by `(f)`."""
    head, found, tail = statement.partition("D(")
    if not found:
        return statement
    depth = 1
    cut = None
    for position, character in enumerate(tail):
        depth += (character == "(") - (character == ")")
        if depth == 1 and character == ",":
            cut = position
        if depth == 0:
            return f"{head}({tail[:cut]}){_without_calls(tail[position + 1 :])}"
    raise AssertionError(statement)


def test_names_cannot_clash(ctx: SessionContext) -> None:
    found = query(
        ctx,
        """SELECT grad(p * "∂p/∂w", w) AS d FROM
           (SELECT id, w, w * x AS p, w * w AS "∂p/∂w", 1 AS "∂p/∂w #2" FROM t) AS m ORDER BY id""",
    )
    expected = query(ctx, "SELECT 3 * w * w * x AS d FROM t ORDER BY id")
    assert_same_rows(rows_of(found), rows_of(expected))


def test_a_query_without_calls_is_planned_as_ever(plain: SessionContext, ctx: SessionContext) -> None:
    for statement in (
        f"SELECT g, AVG(p) FROM {MODEL} GROUP BY g",
        f"SELECT * FROM {MODEL} WHERE x IN (SELECT x FROM u)",
        f"SELECT id, SUM(p) OVER (PARTITION BY g) FROM {MODEL}",
    ):
        assert plans(ctx, statement) == plans(plain, statement)


def test_one_tangent_for_all_calls(ctx: SessionContext) -> None:
    statement = f"""SELECT AVG(grad(power(p - y, 2), w)), MAX(grad(p * z, w)), SUM(vjp(p, w, y)), SUM(grad(p, w))
                    FROM {MODEL}"""
    verbose = query(ctx, f"EXPLAIN VERBOSE {statement}").to_pydict()
    plan = verbose["plan"][verbose["plan_type"].index("logical_plan after differentiate_relations")]
    assert plan.count("AS ∂p/∂w") == 1


def test_unused_tangents_are_pruned(ctx: SessionContext) -> None:
    plan = plans(ctx, f"SELECT x FROM (SELECT *, grad(p * p, w) AS d FROM {MODEL}) AS n")["logical_plan"]
    assert "∂" not in plan
