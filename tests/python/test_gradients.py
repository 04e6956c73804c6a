"""value_and_grad, gradient and hessian of the DataFrame API."""

import math
from typing import Any

import pytest
from datafusion import DataFrame, Expr, SessionContext, col, lit
from datafusion import functions as f

import xql_ffi

X, Y = [0.5, 1.5, -2.0], [2.0, -1.0, 0.25]


@pytest.fixture(scope="module")
def frame() -> DataFrame:
    return SessionContext().from_pydict({"x": X, "y": Y})


def _expression() -> Expr:
    return f.sin(col("x")) * col("y") * col("y")


def test_value_and_grad(frame: DataFrame) -> None:
    found = frame.select(*xql_ffi.value_and_grad(_expression(), ["x", "y"])).to_pydict()
    assert list(found) == ["value", "d_x", "d_y"]
    assert found["value"] == pytest.approx([math.sin(x) * y * y for x, y in zip(X, Y, strict=True)], rel=1e-14)
    assert found["d_x"] == pytest.approx([math.cos(x) * y * y for x, y in zip(X, Y, strict=True)], rel=1e-14)
    assert found["d_y"] == pytest.approx([2 * math.sin(x) * y for x, y in zip(X, Y, strict=True)], rel=1e-14)


def test_value_keeps_its_alias(frame: DataFrame) -> None:
    found = frame.select(*xql_ffi.value_and_grad((col("x") * col("x")).alias("loss"), "x")).to_pydict()
    assert found == {"loss": [x * x for x in X], "d_x": [2 * x for x in X]}


@pytest.mark.parametrize("wrt", ["y", col("y"), ["y"], (col("y"),)], ids=["name", "column", "list", "tuple"])
def test_one_column(frame: DataFrame, wrt: Any) -> None:
    (derivative,) = xql_ffi.gradient(_expression(), wrt)
    found = frame.select(derivative).to_pydict()
    assert found["d_y"] == pytest.approx([2 * math.sin(x) * y for x, y in zip(X, Y, strict=True)], rel=1e-14)


def test_gradient_is_in_the_order_of_the_columns(frame: DataFrame) -> None:
    found = frame.select(*xql_ffi.gradient(col("x") * lit(3.0) + col("y") * lit(5.0), ["y", "x"])).to_pydict()
    assert found == {"d_y": [5.0] * 3, "d_x": [3.0] * 3}
    assert list(found) == ["d_y", "d_x"]


def test_hessian(frame: DataFrame) -> None:
    rows = xql_ffi.hessian(_expression(), ["x", "y"])
    found = frame.select(*rows[0], *rows[1]).to_pydict()
    points = list(zip(X, Y, strict=True))
    expected = {
        "d_x_x": [-math.sin(x) * y * y for x, y in points],
        "d_x_y": [2 * math.cos(x) * y for x, y in points],
        "d_y_x": [2 * math.cos(x) * y for x, y in points],
        "d_y_y": [2 * math.sin(x) for x, _ in points],
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, rel=1e-14)


def test_hessian_of_three_columns() -> None:
    frame = SessionContext().from_pydict({"x": [2.0], "y": [3.0], "z": [5.0]})
    rows = xql_ffi.hessian(col("x") * col("y") * col("z"), ["x", "y", "z"])
    found = [[frame.select(element).to_pydict() for element in row] for row in rows]
    assert found == [
        [{"d_x_x": [0.0]}, {"d_x_y": [5.0]}, {"d_x_z": [3.0]}],
        [{"d_y_x": [5.0]}, {"d_y_y": [0.0]}, {"d_y_z": [2.0]}],
        [{"d_z_x": [3.0]}, {"d_z_y": [2.0]}, {"d_z_z": [0.0]}],
    ]


def test_hessian_differentiates_each_pair_once() -> None:
    calls: list[str] = []

    def counted(expr: Expr, column: Expr) -> Expr:
        calls.append(column.canonical_name())
        return xql_ffi.grad_capsule()(expr, column)

    xql_ffi.hessian(_expression(), ["x", "y"], grad=counted)
    assert calls == ["x", "y", "x", "y", "y"]  # both first derivatives, and three second ones


def test_columns_of_one_name_in_two_tables() -> None:
    ctx = SessionContext()
    ctx.from_pydict({"x": [2.0]}, name="u")
    ctx.from_pydict({"x": [3.0]}, name="v")
    frame = ctx.sql("SELECT * FROM u CROSS JOIN v")
    found = frame.select(*xql_ffi.gradient(col("u.x") * col("v.x"), ["u.x", "v.x"])).to_pydict()
    assert found == {"d_u_x": [3.0], "d_v_x": [2.0]}


@pytest.mark.parametrize("helper", [xql_ffi.gradient, xql_ffi.hessian, xql_ffi.value_and_grad])
def test_another_operator_is_used(frame: DataFrame, helper: Any) -> None:
    grad = xql_ffi.grad_capsule()

    def tenfold(expr: Expr, column: Expr) -> Expr:
        return grad(expr, column) * lit(10.0)

    found = helper(col("x") * col("x"), "x", grad=tenfold)
    last = found[0][0] if isinstance(found[0], list) else found[-1]
    factor = 100 if helper is xql_ffi.hessian else 10
    expected = [2.0] * 3 if helper is xql_ffi.hessian else [2 * x for x in X]
    assert frame.select(last.alias("d")).to_pydict()["d"] == pytest.approx([factor * e for e in expected])


@pytest.mark.parametrize("helper", [xql_ffi.gradient, xql_ffi.hessian, xql_ffi.value_and_grad])
@pytest.mark.parametrize(
    ("expr", "wrt", "error", "says"),
    [
        ("x * x", "x", TypeError, "make it of columns"),
        (3.0, "x", TypeError, r"lit\(3\.0\)"),
        (col("x"), [], ValueError, "at least one column"),
        (col("x"), ["x", col("x")], ValueError, "column x is given more than once"),
        (col("x"), col("x") + lit(1.0), TypeError, "with_column"),
        (col("x"), [3], TypeError, "3 is not one"),
    ],
    ids=["text", "number", "no column", "column twice", "no column but an expression", "no column but a number"],
)
def test_errors_name_the_fix(helper: Any, expr: Any, wrt: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        helper(expr, wrt)


@pytest.mark.parametrize(
    ("name", "alias", "expected"),
    [
        ("x", "d_x", 105.0),
        ("X", "d_x", 105.0),
        ("named.x", "d_x", 105.0),
        ("NAMED.X", "d_x", 105.0),
        ('"x"', "d_x", 105.0),
        ('"X"', "d_X", 70.0),
        ('named."X"', "d_X", 70.0),
        (col('"X"'), "d_X", 70.0),
        ("the y", "d_the y", 42.0),
        ('"a.b"', "d_a.b", 30.0),
    ],
    ids=str,
)
def test_how_names_are_read(name: Any, alias: str, expected: float) -> None:
    ctx = SessionContext()
    ctx.from_pydict({"x": [2.0], "X": [3.0], "the y": [5.0], "a.b": [7.0]}, name="named")
    expr = col("x") * col('"X"') * col('"the y"') * col('"a.b"')
    assert ctx.table("named").select(*xql_ffi.gradient(expr, name)).to_pydict() == {alias: [expected]}


def test_a_point_in_a_name_is_not_that_of_a_table() -> None:
    assert len(xql_ffi.gradient(col("a.b"), ['"a.b"', "a.b"])) == 2


@pytest.mark.parametrize(
    ("helper", "wrt", "name"),
    [
        (xql_ffi.hessian, ["a", "b_a", "a_b"], "d_a_b_a"),
        (xql_ffi.gradient, ["u.x", "v.x", "u_x"], "d_u_x"),
        (xql_ffi.value_and_grad, ["u.x", "v.x", "u_x"], "d_u_x"),
        (xql_ffi.hessian, ["u.x", "v.x", "u_x"], "d_u_x"),
        (xql_ffi.gradient, ["s.t.x", "s_t.x"], "d_s_t_x"),
    ],
)
def test_two_derivatives_of_one_name(helper: Any, wrt: list[str], name: str) -> None:
    with pytest.raises(ValueError, match=rf"two derivatives would be called {name}: rename a column first"):
        helper(col("a"), wrt)


def test_other_columns_that_look_alike_are_told_apart() -> None:
    rows = xql_ffi.hessian(col("a") * col("a_b"), ["a", "a_b"])
    assert [element.schema_name() for row in rows for element in row] == ["d_a_a", "d_a_a_b", "d_a_b_a", "d_a_b_a_b"]
