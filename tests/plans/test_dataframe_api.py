"""Derivatives in the DataFrame API: the capsules are callable on expressions."""

import math
from collections.abc import Callable

import pytest
from datafusion import DataFrame, Expr, SessionContext, col, lit, udf
from datafusion import functions as f
from datafusion.expr import Window

from support.cases import assert_no_call
from support.compare import Rows, assert_same_rows, rows_of
from support.tables import T, U, V
from xql_ffi import grad_capsule, jvp_capsule, vjp_capsule

_V = {row.id: row for row in V}


def _slope(x: str = "x", y: str = "y") -> Expr:
    return grad_capsule()(col(x) * col(x) * col(y), col(x))


def _select(t: DataFrame) -> DataFrame:
    return t.sort(col("id")).select(col("id"), _slope().alias("d"))


def _select_function(t: DataFrame) -> DataFrame:
    grad = grad_capsule()
    return t.sort(col("id")).select(grad(f.sin(col("x")), col("x")).alias("d"))


def _select_without_alias(t: DataFrame) -> DataFrame:
    return t.sort(col("id")).select(_slope())


def _filter(t: DataFrame) -> DataFrame:
    return t.filter(_slope() > lit(0.0)).sort(col("id")).select(col("id"))


def _with_column(t: DataFrame) -> DataFrame:
    return t.with_column("d", _slope()).sort(col("id")).select(col("id"), col("d") + lit(1.0))


def _aggregate(t: DataFrame) -> DataFrame:
    return t.aggregate([col("g")], [f.sum(_slope()).alias("d")]).sort(col("g"))


def _aggregate_by(t: DataFrame) -> DataFrame:
    by = grad_capsule()(col("w") * col("w"), col("w")).alias("d")
    return t.aggregate([by], [f.count(col("id")).alias("n")]).sort(col("d"))


def _of_an_aggregate(t: DataFrame) -> DataFrame:
    mean = f.avg(col("w") * col("y"))
    derivative = grad_capsule()(mean * mean, col("w")) + f.max(col("w"))
    return t.aggregate([col("w")], [f.count(col("id")).alias("n"), derivative.alias("d")]).sort(col("w"))


def _sort(t: DataFrame) -> DataFrame:
    return t.sort(_slope().sort(ascending=False)).select(col("id"))


def _window(t: DataFrame) -> DataFrame:
    running = f.sum(_slope()).over(Window(partition_by=[col("g")]))
    return t.select(col("id"), running.alias("d")).sort(col("id"))


def _union(t: DataFrame) -> DataFrame:
    d = t.select(col("id"), _slope().alias("d"))
    return d.union(t.select(col("id") + lit(10), _slope("y", "x").alias("d"))).sort(col("id"))


def _nested(t: DataFrame) -> DataFrame:
    grad = grad_capsule()
    return t.sort(col("id")).select(grad(grad(f.power(col("x"), lit(3.0)), col("x")), col("x")).alias("d"))


def _jvp(t: DataFrame) -> DataFrame:
    d = jvp_capsule()(col("x") * col("y"), col("x"), lit(2.0), col("y"), col("w"))
    return t.sort(col("id")).select(d.alias("d"))


def _vjp(t: DataFrame) -> DataFrame:
    return t.sort(col("id")).select(vjp_capsule()(col("x") * col("y"), col("x"), col("w")).alias("d"))


def _case(t: DataFrame) -> DataFrame:
    branches = f.when(col("x") > lit(0.0), col("x") * col("x")).otherwise(col("x") * col("y"))
    return t.sort(col("id")).select(grad_capsule()(branches, col("x")).alias("d"))


def _udf(t: DataFrame) -> DataFrame:
    return t.sort(col("id")).select(udf(grad_capsule())(f.exp(col("x")), col("x")).alias("d"))


def _select_exprs(t: DataFrame) -> DataFrame:
    return t.sort(col("id")).select_exprs("id", "grad(x * x * y, x) AS d")


def _parsed(t: DataFrame) -> DataFrame:
    return t.sort(col("id")).select(t.parse_sql_expr("grad(x * x * y, x)").alias("d"))


def _text_filter(t: DataFrame) -> DataFrame:
    return t.filter("grad(x * x * y, x) > 0").sort("id").select("id")


def _over_a_derivative(t: DataFrame) -> DataFrame:
    below = t.sort(col("id")).with_column("d", _slope())
    return below.select(grad_capsule()(col("d") * col("d"), col("d")).alias("e"))


_SLOPES = [2 * row.x * row.y for row in T]
_W = sorted({row.w for row in T})


def _mean(w: float) -> float:
    """The average of y."""
    values = [row.y for row in T if row.w == w]
    return sum(values) / len(values)


CASES: list[tuple[Callable[[DataFrame], DataFrame], Rows]] = [
    (_select, [(row.id, 2 * row.x * row.y) for row in T]),
    (_select_function, [(math.cos(row.x),) for row in T]),
    (_select_without_alias, [(slope,) for slope in _SLOPES]),
    (_filter, [(row.id,) for row in T if 2 * row.x * row.y > 0]),
    (_with_column, [(row.id, 2 * row.x * row.y + 1) for row in T]),
    (_aggregate, [(g, sum(2 * row.x * row.y for row in T if row.g == g)) for g in ("a", "b", "c")]),
    (_aggregate_by, [(2 * w, sum(row.w == w for row in T)) for w in _W]),
    (_of_an_aggregate, [(w, sum(row.w == w for row in T), 2 * w * _mean(w) ** 2 + w) for w in _W]),
    (_sort, [(row.id,) for row in sorted(T, key=lambda row: -2 * row.x * row.y)]),
    (_window, [(row.id, sum(2 * o.x * o.y for o in T if o.g == row.g)) for row in T]),
    (
        _union,
        [*((row.id, 2 * row.x * row.y) for row in T), *((row.id + 10, 2 * row.x * row.y) for row in T)],
    ),
    (_nested, [(6 * row.x,) for row in T]),
    (_jvp, [(2 * row.y + row.w * row.x,) for row in T]),
    (_vjp, [(row.w * row.y,) for row in T]),
    (_case, [(2 * row.x if row.x > 0 else row.y,) for row in T]),
    (_udf, [(math.exp(row.x),) for row in T]),
    (_select_exprs, [(row.id, 2 * row.x * row.y) for row in T]),
    (_parsed, [(slope,) for slope in _SLOPES]),
    (_text_filter, [(row.id,) for row in T if 2 * row.x * row.y > 0]),
    (_over_a_derivative, [(2 * slope,) for slope in _SLOPES]),
]


@pytest.mark.parametrize(("build", "expected"), CASES, ids=[build.__name__.strip("_") for build, _ in CASES])
def test_dataframe(ctx: SessionContext, build: Callable[[DataFrame], DataFrame], expected: Rows) -> None:
    frame = build(ctx.table("t"))
    assert_no_call([frame.optimized_logical_plan().display_indent(), frame.execution_plan().display_indent()])
    assert_same_rows(rows_of(frame.to_arrow_table()), expected)


def test_join_on(ctx: SessionContext) -> None:
    u, v = ctx.table("u"), ctx.table("v")
    slope = grad_capsule()(u.col("x") * u.col("x") * v.col("x"), u.col("x"))
    joined = u.join_on(v, u.col("id") == v.col("id"), slope > lit(0.0), how="inner")
    result = joined.select(u.col("id"), slope.alias("d")).sort(u.col("id"))
    expected = [(row.id, 2 * row.x * _V[row.id].x) for row in U if row.id in _V]
    assert_same_rows(rows_of(result.to_arrow_table()), [pair for pair in expected if pair[1] > 0])


def test_capsules_work_in_sessions_that_never_registered_them() -> None:
    """A DataFrame expression carries its function; no session needs to know it by name."""
    frame = SessionContext().from_pydict({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    assert_same_rows(rows_of(frame.select(_slope()).to_arrow_table()), [(6.0,), (16.0,)])


def test_functions_found_in_the_session(ctx: SessionContext) -> None:
    assert {"grad", "jvp", "vjp"} <= set(ctx.udfs())
    grad = ctx.udf("grad")
    assert grad.name == "grad"
    result = ctx.table("t").sort(col("id")).select(grad(f.cos(col("x")), col("x")))
    assert_same_rows(rows_of(result.to_arrow_table()), [(-math.sin(row.x),) for row in T])


def test_view_of_a_dataframe(register: Callable[[SessionContext], SessionContext]) -> None:
    ctx = register(SessionContext())
    frame = ctx.from_pydict({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    ctx.register_view("slopes", frame.select(_slope().alias("d")))
    assert_same_rows(rows_of(ctx.sql("SELECT d FROM slopes ORDER BY d").to_arrow_table()), [(6.0,), (16.0,)])


def test_cached(ctx: SessionContext) -> None:
    cached = _select(ctx.table("t")).cache()
    assert cached.to_pydict()["d"] == pytest.approx(_SLOPES)
    assert cached.to_pydict()["d"] == pytest.approx(_SLOPES)


def test_aggregates_in_sessions_that_never_registered_them() -> None:
    frame = SessionContext().from_pydict({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    derivative = grad_capsule()(f.avg(col("x") * col("y")), col("x"))
    grouped = frame.aggregate([col("x")], [derivative.alias("d")])
    assert_same_rows(rows_of(grouped.sort(col("x")).to_arrow_table()), [(1.0, 3.0), (2.0, 4.0)])
