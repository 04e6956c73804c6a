"""`stop_gradient`: a value with derivative 0, wherever it stands."""

from __future__ import annotations

import pytest
from datafusion import SessionContext, col

import xql_ffi
from xql_ffi import grad_capsule, register, stop_gradient_capsule

T = "(VALUES (1, 2.0, 3.0), (2, 0.5, -1.0), (3, NULL, 4.0)) AS t(k, x, y)"


@pytest.fixture
def ctx() -> SessionContext:
    """A session with the operators and a table."""
    ctx = register(SessionContext())
    ctx.sql(f"CREATE TABLE t AS SELECT * FROM {T}").collect()
    return ctx


def values(ctx: SessionContext, sql: str) -> list[object]:
    """The last column of a statement."""
    table = ctx.sql(sql).to_arrow_table()
    column: list[object] = table.column(table.num_columns - 1).to_pylist()
    return column


def test_it_is_its_argument_of_any_type(ctx: SessionContext) -> None:
    row = ctx.sql(f"SELECT stop_gradient(x), stop_gradient(k), stop_gradient('a' || k) FROM {T} ORDER BY k").to_pydict()
    assert list(row.values()) == [[2.0, 0.5, None], [1, 2, 3], ["a1", "a2", "a3"]]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("stop_gradient(x) * x", [2.0, 0.5, None]),
        ("stop_gradient(x * x) + y", [0.0, 0.0, None]),
        ("exp(x - stop_gradient(x))", [1.0, 1.0, None]),
        ("stop_gradient(1 / (x - 2)) * 0 + x * x", [4.0, 1.0, None]),
        ("CASE WHEN stop_gradient(x) > 1 THEN x * y ELSE x END", [3.0, 1.0, None]),
    ],
)
def test_in_an_expression(ctx: SessionContext, expression: str, expected: list[float | None]) -> None:
    assert values(ctx, f"SELECT grad({expression}, x) AS d FROM t ORDER BY k") == expected


def test_in_a_derivative_of_a_derivative(ctx: SessionContext) -> None:
    assert values(ctx, "SELECT grad(grad(stop_gradient(x) * x * x, x), x) FROM t WHERE k < 3 ORDER BY k") == [4.0, 1.0]
    assert values(ctx, "SELECT grad(stop_gradient(grad(x * x * x, x)) * x, x) FROM t WHERE k < 3 ORDER BY k") == [
        12.0,
        0.75,
    ]


def test_through_relations(ctx: SessionContext) -> None:
    sql = """WITH a AS (SELECT k, x, y, x * y AS p, stop_gradient(x * y) AS s FROM t)
        SELECT k, grad(p * s + stop_gradient(p) * x, x) AS d FROM a WHERE k < 3 ORDER BY k"""
    # y * s + p
    assert values(ctx, sql) == [3.0 * 6.0 + 6.0, -1.0 * -0.5 - 0.5]
    sql = """SELECT grad(AVG(w * t.y * stop_gradient(w)), w) FROM (VALUES (2.0)) AS p(w) CROSS JOIN t GROUP BY w"""
    assert values(ctx, sql) == pytest.approx([2.0 * 2.0])


def test_of_what_only_it_reads_nothing_is_asked(ctx: SessionContext) -> None:
    """A column that has no derivative, here a text made of the variable, may be read."""
    sql = """WITH a AS (SELECT k, x, CAST(x AS VARCHAR) AS s FROM t)
        SELECT grad(x * CAST(stop_gradient(s) AS DOUBLE), x) FROM a WHERE k < 3 ORDER BY k"""
    assert values(ctx, sql) == [2.0, 0.5]


def test_by_row(ctx: SessionContext) -> None:
    """Half of a consistency loss: the target is no function of the parameters."""
    sql = """WITH m AS (SELECT stop_gradient(AVG(x)) AS x FROM t)
        SELECT k, grad((SELECT SUM(power(t.x - m.x, 2)) FROM t CROSS JOIN m), x) FROM t ORDER BY k"""
    assert values(ctx, sql) == [1.5, -1.5, None]
    sql = "SELECT k, grad((SELECT SUM(x) FROM t) * stop_gradient((SELECT SUM(x) FROM t)), x) FROM t ORDER BY k"
    assert values(ctx, sql) == [2.5, 2.5, None]


def test_nothing_of_it_runs(ctx: SessionContext) -> None:
    sql = "SELECT grad(stop_gradient(x) * x, x) AS d, stop_gradient(y) AS y FROM t"
    physical = ctx.sql(f"EXPLAIN {sql}").to_pydict()["plan"][-1]
    assert "stop_gradient" not in physical
    assert ctx.sql(sql).schema().names == ["d", "y"]
    assert ctx.sql("SELECT stop_gradient(y) FROM t").schema().names == ["stop_gradient(t.y)"]


def test_in_the_dataframe_api() -> None:
    ctx = SessionContext()
    ctx.register_udf(grad_capsule())
    ctx.register_udf(stop_gradient_capsule())
    stop = stop_gradient_capsule()
    frame = ctx.from_pydict({"x": [2.0, 3.0]})
    assert frame.select(grad_capsule()(stop(col("x")) * col("x"), col("x")).alias("d")).to_pydict() == {"d": [2.0, 3.0]}
    with pytest.raises(TypeError, match="stop_gradient takes expressions"):
        stop("x")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="argument"):
        ctx.sql("SELECT stop_gradient() AS d").collect()
    assert "stop_gradient_capsule" in xql_ffi.__all__
