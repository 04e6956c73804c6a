"""Generated formulas: derivatives of every order and kind against JAX in float64, and against differences."""

import itertools
from collections.abc import Callable

import jax
import numpy as np
import pytest
from datafusion import SessionContext
from hypothesis import HealthCheck, given, seed, settings

from support.formulas import POINTS, SEED, VARIABLES, Formula, add_points, assert_close, columns, formulas

_STEP = 1e-5
_POSITIONS = range(len(VARIABLES))
_QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def _examples(number: int) -> settings:
    return settings(max_examples=number, deadline=None, suppress_health_check=_QUIET, print_blob=True, database=None)


@pytest.fixture(scope="module")
def points(register: Callable[[SessionContext], SessionContext]) -> SessionContext:
    """The points, and for each variable the points to either side."""
    ctx = register(SessionContext())
    add_points(ctx)
    for position, variable in enumerate(VARIABLES):
        for side, step in (("up", _STEP), ("down", -_STEP)):
            moved = POINTS.copy()
            moved[position] += step
            add_points(ctx, f"{variable}_{side}", moved)
    return ctx


@seed(SEED)
@_examples(150)
@given(formula=formulas(smooth=False, leaves=7))
def test_value_and_first_order(points: SessionContext, formula: Formula) -> None:
    found = columns(points, [formula.sql, *(f"grad({formula.sql}, {v})" for v in VARIABLES)])
    assert_close(found[0], jax.vmap(formula.jax)(*POINTS), "the value itself")
    gradient = jax.vmap(jax.grad(formula.jax, argnums=tuple(_POSITIONS)))(*POINTS)
    for variable, actual, expected in zip(VARIABLES, found[1:], gradient, strict=True):
        assert_close(actual, expected, f"by {variable}")


@seed(SEED)
@_examples(60)
@given(formula=formulas(smooth=False, leaves=4))
def test_second_order(points: SessionContext, formula: Formula) -> None:
    pairs = list(itertools.product(_POSITIONS, repeat=2))
    calls = [f"grad(grad({formula.sql}, {VARIABLES[a]}), {VARIABLES[b]})" for a, b in pairs]
    hessian = jax.vmap(jax.hessian(formula.jax, argnums=tuple(_POSITIONS)))(*POINTS)
    for (a, b), actual in zip(pairs, columns(points, calls), strict=True):
        assert_close(actual, hessian[a][b], f"by {VARIABLES[a]} and {VARIABLES[b]}", rtol=1e-7)


@seed(SEED)
@_examples(20)
@given(formula=formulas(smooth=True, leaves=2))
def test_third_order(points: SessionContext, formula: Formula) -> None:
    orders = [(0, 0, 0), (0, 0, 1), (1, 0, 1), (2, 1, 0)]
    calls = [f"grad(grad(grad({formula.sql}, {VARIABLES[a]}), {VARIABLES[b]}), {VARIABLES[c]})" for a, b, c in orders]
    for order, actual in zip(orders, columns(points, calls), strict=True):
        derivative = formula.jax
        for position in order:
            derivative = jax.grad(derivative, argnums=position)
        assert_close(actual, jax.vmap(derivative)(*POINTS), f"by {order}", rtol=1e-6)


@seed(SEED)
@_examples(60)
@given(formula=formulas(smooth=False, leaves=5))
def test_jvp_and_vjp(points: SessionContext, formula: Formula) -> None:
    """With tangents and cotangents that depend on the variables themselves, and are taken as they are."""
    f = formula.sql
    along, one, product = columns(points, [f"jvp({f}, x, y, z, 0.5)", f"jvp({f}, y, x)", f"vjp({f}, x, z * x)"])
    x, y, z = POINTS
    tangents = (y, np.zeros_like(x), np.full_like(x, 0.5))
    assert_close(along, jax.vmap(lambda p, t: jax.jvp(formula.jax, p, t)[1])((x, y, z), tangents), "jvp")
    gradient = jax.vmap(jax.grad(formula.jax, argnums=(0, 1)))(*POINTS)
    assert_close(one, gradient[1] * x, "jvp by y")
    assert_close(product, gradient[0] * z * x, "vjp by x")


@seed(SEED)
@_examples(60)
@given(formula=formulas(smooth=True, leaves=6))
def test_central_differences(points: SessionContext, formula: Formula) -> None:
    """DataFusion's own values decide, whatever JAX takes the functions for."""
    (values,) = columns(points, [formula.sql])
    gradient = columns(points, [f"grad({formula.sql}, {v})" for v in VARIABLES])
    curvature = [jax.vmap(jax.grad(jax.grad(formula.jax, v), v))(*POINTS) for v in _POSITIONS]
    for variable, actual, bend in zip(VARIABLES, gradient, curvature, strict=True):
        (up,) = columns(points, [formula.sql], f"{variable}_up")
        (down,) = columns(points, [formula.sql], f"{variable}_down")
        # Where the formula bends so much that differences are coarse, they say little.
        tolerance = 1e-6 * (1 + np.abs(values) + np.abs(actual) + np.abs(np.asarray(bend)))
        assert np.all(np.abs((up - down) / (2 * _STEP) - actual) <= tolerance), f"by {variable} (seed {SEED})"
