"""Formulas that are deep, long, or share what they are made of."""

import math
from collections.abc import Callable

import pytest
from datafusion import DataFrame, Expr, SessionContext, col, lit
from datafusion import functions as f


@pytest.fixture(scope="module")
def frame() -> DataFrame:
    return SessionContext().from_pydict({"x": [0.5, 1.25], "y": [2.0, 3.0]})


def _derivative(frame: DataFrame, expression: Expr) -> list[float]:
    from xql_ffi import grad_capsule

    found: list[float] = frame.select(grad_capsule()(expression, col("x")).alias("d")).to_pydict()["d"]
    return found


def _repeat(step: Callable[[Expr], Expr], times: int) -> Expr:
    expression = col("x")
    for _ in range(times):
        expression = step(expression)
    return expression


@pytest.mark.parametrize("depth", [45, 90])
def test_deep(frame: DataFrame, depth: int) -> None:
    """Deeper than nested messages of protocol buffers may be."""
    expected = []
    for x in (0.5, 1.25):
        slope = 1.0
        for _ in range(depth):
            slope *= math.cos(x)
            x = math.sin(x)  # noqa: PLW2901
        expected.append(slope)
    assert _derivative(frame, _repeat(f.sin, depth)) == pytest.approx(expected, rel=1e-10)


def test_long_sum(frame: DataFrame) -> None:
    expression = lit(0.0)
    for number in range(300):
        expression = expression + col("x") * lit(float(number))
    assert _derivative(frame, expression) == pytest.approx([sum(range(300))] * 2)


def test_long_sum_in_sql(register: Callable[[SessionContext], SessionContext]) -> None:
    ctx = register(SessionContext())
    ctx.from_pydict({"x": [0.5]}, name="q")
    terms = " + ".join(f"{number} * x" for number in range(200))
    assert ctx.sql(f"SELECT grad({terms}, x) AS d FROM q").to_pydict()["d"] == pytest.approx([sum(range(200))])


def test_shared_parts(frame: DataFrame) -> None:
    """x ** 256 by repeated squaring."""
    expected = [256 * x**255 for x in (0.5, 1.25)]
    assert _derivative(frame, _repeat(lambda e: e * e, 8)) == pytest.approx(expected)


def test_high_order(frame: DataFrame) -> None:
    from xql_ffi import grad_capsule

    expression = f.exp(col("x") * lit(0.5))
    for _ in range(8):
        expression = grad_capsule()(expression, col("x"))
    found = frame.select(expression.alias("d")).to_pydict()["d"]
    assert found == pytest.approx([math.exp(x / 2) / 256 for x in (0.5, 1.25)])


def test_many_derivatives_in_one_query(register: Callable[[SessionContext], SessionContext]) -> None:
    ctx = register(SessionContext())
    names = [f"w{number}" for number in range(40)]
    ctx.from_pydict({name: [float(number)] for number, name in enumerate(names)}, name="q")
    loss = " + ".join(f"power({name} - 1, 2)" for name in names)
    listed = ", ".join(f"grad({loss}, {name}) AS d_{name}" for name in names)
    found = ctx.sql(f"SELECT {listed} FROM q").to_pydict()
    assert [values[0] for values in found.values()] == pytest.approx([2 * (number - 1) for number in range(40)])
