"""Plans of Substrait: statements with derivatives as plain plans, and plans with calls of the operators."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from datafusion import SessionContext
from datafusion.substrait import Producer

import xql_ffi
from python.test_documented_statements import CASES, ERROR
from python.test_documented_statements import TABLES as PAGES
from support import sessions

TABLES: dict[str, dict[str, list[Any]]] = {
    "t": {"k": [1, 2, 3, 4], "g": [1, 1, 2, 2], "x": [1.0, 2.0, 3.0, 4.0], "y": [0.5, -0.25, 4.0, 1.0]},
    "w": {"k": [1, 2], "val": [0.75, -0.5]},
}
# Statements and what is in their last column, in its order.
VALUES = {
    "SELECT k, grad(sin(x) * x, y) AS d FROM t": [0.0] * 4,
    "SELECT k, grad(x * x * y, x) AS d FROM t ORDER BY k": [1.0, -1.0, 24.0, 8.0],
    "SELECT k, jvp(x * y, x, 2.0, y, 1.0) AS d FROM t": [2.0, 1.5, 11.0, 6.0],
    "SELECT k, vjp(x * x, x, y) AS d FROM t": [1.0, -1.0, 24.0, 8.0],
    "SELECT k, grad(CASE WHEN x > y THEN x * x ELSE y END, x) AS d FROM t": [2.0, 4.0, 0.0, 8.0],
    "SELECT k, grad(power(x, 3), x) AS d FROM t WHERE grad(x * x, x) > 5": [27.0, 48.0],
    "SELECT g, SUM(grad(x * x * x, x)) AS d FROM t GROUP BY g ORDER BY g": [15.0, 75.0],
    "SELECT k, grad((SELECT SUM(x * x * x) FROM t), x) AS d FROM t": [3.0, 12.0, 27.0, 48.0],
    "SELECT k, grad(SUM(x * x) OVER (PARTITION BY g), x) AS d FROM t": [2.0, 4.0, 6.0, 8.0],
    """WITH z AS (SELECT t.k, SUM(x * val) AS z FROM t JOIN w ON t.g = w.k GROUP BY t.k),
        loss AS (SELECT SUM(z * z) AS l FROM z)
    SELECT k, grad((SELECT l FROM loss), val) AS d FROM w""": [7.5, -25.0],
    "SELECT AVG(grad(e, x)) AS d FROM (SELECT x, y, exp(x * 0) * x AS e FROM t UNION ALL SELECT x, k, y FROM t) AS u": [
        0.5
    ],
}


def last(frame: Any) -> list[Any]:
    *_, column = frame.to_pydict().values()
    return sorted(column)


def rounded(value: Any) -> str:
    return f"{value + 0.0:.8g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("statement", VALUES)
def test_values(statement: str, registered: bool) -> None:
    plan = xql_ffi.to_substrait(sessions.session(TABLES, differentiates=registered), statement)
    # It is read where nothing is known of derivatives.
    found = xql_ffi.from_substrait(sessions.session(TABLES, differentiates=False), plan)
    assert last(found) == pytest.approx(sorted(VALUES[statement]), rel=1e-12)
    for name in (b"grad", b"jvp", b"vjp", b"xql"):
        assert name not in plan


@pytest.mark.parametrize("statement", VALUES)
def test_calls_in_a_plan(statement: str) -> None:
    """As another writer of Substrait has them: by their names, as functions of an extension."""
    writer, reader = sessions.session(TABLES), sessions.session(TABLES)
    plan = Producer.to_substrait_plan(writer.sql(statement).logical_plan(), writer).encode()
    assert b"grad" in plan or b"jvp" in plan or b"vjp" in plan
    assert last(xql_ffi.from_substrait(reader, plan)) == pytest.approx(sorted(VALUES[statement]), rel=1e-12)


def test_what_is_no_query_that_is_computed_once() -> None:
    statement = """SELECT 'AS MATERIALIZED (' AS "as materialized (", grad(x * x, x) AS d FROM t"""
    ctx = sessions.session(TABLES)
    assert last(xql_ffi.from_substrait(ctx, xql_ffi.to_substrait(ctx, statement))) == last(ctx.sql(statement))


def test_a_query_that_several_parts_read() -> None:
    """A plan has it as often, and does not say that it was one. Parts that say the same are one."""
    statement = """WITH p AS (SELECT x + 1 AS v FROM t), z AS (SELECT SUM(v) AS z FROM p)
    SELECT grad((SELECT SUM(v * z.z) FROM p CROSS JOIN z), v) AS d FROM p"""
    ctx = sessions.session(TABLES)
    assert last(ctx.sql(statement)) == [28.0] * 4
    assert last(xql_ffi.from_substrait(ctx, xql_ffi.to_substrait(ctx, statement))) == [28.0] * 4
    rows = "(SELECT x + 1 AS v FROM t)"
    in_two = f"SELECT grad((SELECT SUM(v * v) FROM {rows} AS p), v) AS d FROM {rows} AS q"
    plan = Producer.to_substrait_plan(ctx.sql(in_two).logical_plan(), ctx).encode()
    assert last(xql_ffi.from_substrait(ctx, plan)) == [4.0, 6.0, 8.0, 10.0]


@pytest.mark.parametrize(
    ("statement", "error", "why"),
    [
        ("CREATE TABLE made AS SELECT grad(x * x, x) AS d FROM t", ValueError, "DDL not supported"),
        ("SELECT grad(x, k) AS d FROM t", xql_ffi.VariableError, "k is Int64"),
        (
            """WITH RECURSIVE r AS (SELECT 0 AS s, x AS v, x FROM t UNION ALL SELECT s + 1, v * x, x FROM r WHERE s < 2)
            SELECT grad(v, x) AS d FROM r""",
            xql_ffi.HostError,
            "has no recursive queries",
        ),
        (
            "WITH p AS MATERIALIZED (SELECT x FROM t) SELECT a.x FROM p AS a JOIN p AS b ON a.x = b.x",
            xql_ffi.HostError,
            "AS MATERIALIZED",
        ),
        (
            "SELECT SUM(x) OVER (ORDER BY k RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM t",
            xql_ffi.HostError,
            "RANGE",
        ),
        ("SELECT SUM(grad(x * x, x)) FILTER (WHERE k > 1) OVER (ORDER BY k) FROM t", xql_ffi.HostError, "FILTER"),
        ("SELECT lead(x) IGNORE NULLS OVER (ORDER BY k) FROM t", xql_ffi.HostError, "IGNORE NULLS"),
        ("SELECT COUNT(DISTINCT g) OVER () FROM t", xql_ffi.HostError, "DISTINCT"),
        ("SELECT a.k FROM t a JOIN s.t b ON a.k = b.k", xql_ffi.HostError, "for one table"),
        ("EXPLAIN SELECT grad(x * x, x) AS d FROM t", xql_ffi.HostError, "has no Explain"),
        ("SELECT grad(erf(x) * erf(x), x) AS d FROM t", xql_ffi.HostError, "erf is a function of xql-ffi"),
    ],
)
def test_refused(statement: str, error: type[Exception], why: str) -> None:
    ctx = xql_ffi.register(sessions.session(TABLES, differentiates=False), functions=True)
    ctx.sql("CREATE SCHEMA s").collect()
    ctx.sql("CREATE TABLE s.t AS SELECT * FROM t").collect()
    with pytest.raises(error, match=why) as raised:
        xql_ffi.to_substrait(ctx, statement)
    assert len(str(raised.value)) < 500
    assert not ctx.table_exist("made")


def test_a_plan_that_is_too_deep_to_be_read() -> None:
    ctes = ", ".join(f"a{n + 1} AS (SELECT x * 2 AS x FROM a{n})" for n in range(120))
    ctx = sessions.session(TABLES)
    plan = xql_ffi.to_substrait(ctx, f"WITH a0 AS (SELECT x FROM t), {ctes} SELECT x FROM a120")
    with pytest.raises(xql_ffi.HostError, match="deeper than DataFusion's reader"):
        xql_ffi.from_substrait(ctx, plan)


def test_functions_whose_derivatives_are_plain() -> None:
    ctx = xql_ffi.register(sessions.session(TABLES, differentiates=False), functions=True)
    plan = xql_ffi.to_substrait(ctx, "SELECT grad(erf(x), x) AS d FROM t WHERE k = 1")
    found = last(xql_ffi.from_substrait(sessions.session(TABLES), plan))
    assert found == pytest.approx([0.4151074974205947], rel=1e-12)


def test_what_is_no_session_and_no_plan() -> None:
    ctx = sessions.session(TABLES)
    with pytest.raises(TypeError, match="to_substrait takes a SessionContext"):
        xql_ffi.to_substrait({"t": pa.schema({"x": pa.float64()})}, "SELECT grad(x * x, x) FROM t")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a string"):
        xql_ffi.to_substrait(ctx, 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is bytes"):
        xql_ffi.from_substrait(ctx, "SELECT 1")  # type: ignore[arg-type]
    with pytest.raises(xql_ffi.HostError, match="Substrait"):
        xql_ffi.from_substrait(ctx, b"no plan")
    plan = xql_ffi.to_substrait(ctx, "SELECT grad(x * x, x) AS d FROM t")
    with pytest.raises(xql_ffi.HostError, match="No table named 't'"):
        xql_ffi.from_substrait(SessionContext(), plan)


def test_statements_of_the_pages() -> None:
    """Those that Substrait carries give what they give in the session; the others are refused in a sentence."""
    ctx = sessions.session(PAGES)
    carried, lacking = 0, 0
    for case in CASES:
        statement, said = case.values
        if said == ERROR:
            continue
        try:
            plan = xql_ffi.to_substrait(ctx, str(statement))
        except ValueError as error:
            lacking += isinstance(error, xql_ffi.HostError) and len(str(error)) < 500
            continue
        expected = ctx.sql(str(statement)).to_pydict()
        found = xql_ffi.from_substrait(sessions.session(PAGES, differentiates=False), plan).to_pydict()
        for column, values in zip(found.values(), expected.values(), strict=True):
            assert sorted(map(rounded, column)) == sorted(map(rounded, values))
        carried += 1
    assert carried > 40
    assert lacking
