"""grad, jvp, vjp and stop_gradient as functions of expressions."""

from typing import Any

import pyarrow as pa
import pytest
from datafusion import DataFrame, Expr, SessionContext, col, lit, udf
from datafusion import functions as f

import xql_ffi

X, Y = [0.5, 1.5, -2.0], [2.0, -1.0, 0.25]


@pytest.fixture
def frame() -> DataFrame:
    return SessionContext().from_pydict({"x": X, "y": Y})


def _values(frame: DataFrame, expr: Expr) -> list[float]:
    values: list[float] = frame.select(expr.alias("d")).to_pydict()["d"]
    return values


@pytest.mark.parametrize("wrt", ["x", col("x"), "X"], ids=str)
def test_grad(frame: DataFrame, wrt: Any) -> None:
    assert _values(frame, xql_ffi.grad(col("x") * col("x") * col("y"), wrt)) == [
        2 * x * y for x, y in zip(X, Y, strict=True)
    ]


def test_jvp(frame: DataFrame) -> None:
    derivative = xql_ffi.jvp(col("x") * col("y"), "x", 3, col("y"), col("x"))
    assert _values(frame, derivative) == [3 * y + x * x for x, y in zip(X, Y, strict=True)]


def test_vjp(frame: DataFrame) -> None:
    product = col("x") * col("y")
    assert _values(frame, xql_ffi.vjp(product, "x", 2.0)) == [2 * y for y in Y]
    assert _values(frame, xql_ffi.vjp(product, "x", col("y"))) == [y * y for y in Y]


def test_stop_gradient(frame: DataFrame) -> None:
    assert _values(frame, xql_ffi.grad(col("x") * xql_ffi.stop_gradient(col("x")), "x")) == X


def test_nested(frame: DataFrame) -> None:
    square = col("x") * col("x")
    assert _values(frame, xql_ffi.grad(xql_ffi.grad(square * col("x"), "x"), "x")) == [6 * x for x in X]
    assert _values(frame, xql_ffi.grad(xql_ffi.jvp(square, "x", col("y")), "x")) == [2 * y for y in Y]


def test_through_a_view() -> None:
    ctx = SessionContext()
    ctx.from_pydict({"x": X, "y": Y}, name="t")
    view = ctx.sql("SELECT x, x * y AS p FROM t")
    assert _values(view, xql_ffi.grad(col("p") * col("p"), "x")) == pytest.approx(
        [2 * x * y * y for x, y in zip(X, Y, strict=True)]
    )


def test_rules(frame: DataFrame) -> None:
    double = udf(lambda x: x, [pa.float64()], pa.float64(), "immutable", "twice")
    rules = [xql_ffi.rule("twice(x)", "2")]
    for derivative in (
        xql_ffi.grad(double(col("x")), "x", rules=rules),
        xql_ffi.jvp(double(col("x")), "x", 1.0, rules=rules),
        xql_ffi.vjp(double(col("x")), "x", 1.0, rules=rules),
    ):
        assert _values(frame, derivative) == [2.0] * 3


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: xql_ffi.grad("x * x", "x"), TypeError, "make it of columns"),  # type: ignore[arg-type]
        (lambda: xql_ffi.grad(col("x"), lit(2.0)), TypeError, "a variable must be a column"),
        (lambda: xql_ffi.grad(col("x"), 3), TypeError, "3 is not one"),  # type: ignore[arg-type]
        (lambda: xql_ffi.jvp(col("x")), ValueError, "each followed by its tangent"),
        (lambda: xql_ffi.jvp(col("x"), "x", 1.0, "y"), ValueError, r"jvp\(f, 'x', 1.0, 'y', col\('u'\)\)"),
        (lambda: xql_ffi.jvp(col("x"), "x", "y"), TypeError, r"jvp takes expressions.*col\('y'\)"),
        (lambda: xql_ffi.vjp(col("x"), "x", "y"), TypeError, "vjp takes expressions"),  # type: ignore[arg-type]
        (lambda: xql_ffi.stop_gradient(1.0), TypeError, "stop_gradient takes expressions"),  # type: ignore[arg-type]
        (lambda: xql_ffi.grad(col("x"), "x", rules=xql_ffi.rule("f(x)", "1")), TypeError, "list of rules"),  # type: ignore[arg-type]
    ],
)
def test_errors_name_the_fix(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_jacobian(frame: DataFrame) -> None:
    rows = xql_ffi.jacobian([(col("x") * col("y")).alias("p"), f.sin(col("x")), col("y")], ["x", "y"])
    found = frame.select(*rows[0], *rows[1], *rows[2]).to_pydict()
    assert list(found) == ["d_p_x", "d_p_y", "d_1_x", "d_1_y", "d_y_x", "d_y_y"]
    assert found["d_p_x"] == Y
    assert found["d_p_y"] == X
    assert found["d_1_y"] == found["d_y_x"] == [0.0] * 3
    assert found["d_y_y"] == [1.0] * 3


@pytest.mark.parametrize(
    ("exprs", "error", "says"),
    [
        (col("x"), TypeError, r"write jacobian\(\[f, g\]"),
        (["x"], TypeError, "jacobian takes expressions"),
        ([col("a").alias("b"), col("c").alias("b")], ValueError, "two derivatives would be called d_b_x"),
    ],
    ids=["one", "text", "one name"],
)
def test_errors_of_jacobian(exprs: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        xql_ffi.jacobian(exprs, "x")


def test_hvp_is_the_hessian_times_the_vector(frame: DataFrame) -> None:
    loss = f.sin(col("x")) * col("y") * col("y")
    rows = xql_ffi.hessian(loss, ["x", "y"])
    hessian = frame.select(*rows[0], *rows[1]).to_pydict()
    # The vector counts as constant though it is a column.
    found = frame.select(*xql_ffi.hvp(loss, ["x", "y"], [2.0, col("x")])).to_pydict()
    assert list(found) == ["hvp_x", "hvp_y"]
    for name in ("x", "y"):
        expected = [2 * a + b * x for a, b, x in zip(hessian[f"d_{name}_x"], hessian[f"d_{name}_y"], X, strict=True)]
        assert found[f"hvp_{name}"] == pytest.approx(expected)


def test_hvp_needs_a_component_for_each_column() -> None:
    with pytest.raises(ValueError, match="the vector of hvp must have a component for each column: 2, not 1"):
        xql_ffi.hvp(col("x"), ["x", "y"], [1.0])


# -------------------------------------------------------------------------------------------------- as JAX is called


def square(x: Any) -> Any:
    return x * x


AS_IN_JAX: list[Any] = [
    lambda: xql_ffi.grad(lambda x: x * x),  # type: ignore[call-arg, arg-type]
    lambda: xql_ffi.grad(square),  # type: ignore[call-arg, arg-type]
    lambda: xql_ffi.grad(square, argnums=0),  # type: ignore[call-arg, arg-type]
    lambda: xql_ffi.grad(square, "x"),  # type: ignore[arg-type]
    lambda: xql_ffi.grad(expr=square, wrt="x"),  # type: ignore[arg-type]
    lambda: xql_ffi.jvp(square, (1.0,), (1.0,)),  # type: ignore[arg-type]
    lambda: xql_ffi.vjp(square, 1.0),  # type: ignore[call-arg, arg-type]
    lambda: xql_ffi.stop_gradient(square),  # type: ignore[arg-type]
    lambda: xql_ffi.value_and_grad(square),  # type: ignore[call-arg, arg-type]
    lambda: xql_ffi.gradient(square, "x"),  # type: ignore[arg-type]
    lambda: xql_ffi.hessian(square),  # type: ignore[call-overload]
    lambda: xql_ffi.jacobian(square),  # type: ignore[call-overload]
    lambda: xql_ffi.jacobian([square], "x"),  # type: ignore[list-item]
    lambda: xql_ffi.hvp(square, "x", [1.0]),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("call", AS_IN_JAX)
def test_a_function_of_python_is_no_expression(call: Any) -> None:
    with pytest.raises(TypeError, match=r"takes expressions over columns.*grad\(f\(col\('x'\)\), 'x'\)"):
        call()


def test_the_advice_works(frame: DataFrame) -> None:
    assert _values(frame, xql_ffi.grad(square(col("x")), "x")) == [2 * x for x in X]
