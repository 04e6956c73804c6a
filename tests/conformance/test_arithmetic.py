"""The evaluation of what JAX traces: that it is what JAX computes, and that its error bounds hold."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from conformance.arithmetic import Evaluation
from conformance.cases import Case, grad, value
from conformance.expressions import build, column
from conformance.generation import generated
from conformance.points import ORDINARY, points


def test_it_is_what_jax_computes() -> None:
    """At ordinary points, up to the rounding errors that it tells itself."""
    at = points(5)
    arguments = [array[:ORDINARY] for array in at.arguments]
    compared = 0
    for case in generated(12, 5):
        closed, _ = case.trace()
        own = Evaluation(12, 0).run(closed, arguments)
        theirs = jax.vmap(jaxpr_as_fun(closed))(*arguments)
        for (rounded, _), their in zip(own, theirs, strict=True):
            if not np.issubdtype(rounded.dtype, np.floating):
                continue
            mine = np.broadcast_to(rounded, (12, ORDINARY))
            spread = np.abs(mine - mine[0]).max(axis=0)
            sure = np.isfinite(mine).all(axis=0) & (spread < 1e-3 * np.abs(mine[0]) + 1e-12)
            difference = np.abs(mine[0] - np.asarray(their))
            relative = 1e-13 if mine.dtype == np.float64 else 1e-6
            assert np.all(difference[sure] <= (relative * np.abs(mine[0]) + 8 * spread + 1e-15)[sure]), case
            compared += int(sure.sum())
    assert compared > 600


def test_cancellation_is_noticed() -> None:
    """1 - cos(x) near 0 loses half of its digits, and the extended precision keeps more of them."""
    x = column("x")
    expression = build("1 - {0}", build("cos({0})", x))
    closed, _ = Case(expression, [value(expression)]).trace()
    at = points(0)
    at.numbers["x"][:] = 1e-5
    rounded, extended = Evaluation(12, 0).run(closed, at.arguments)[2]
    exact = 5e-11 * (1 - 1e-10 / 12)
    spread = np.abs(rounded - rounded[0]).max() / exact
    assert 1e-7 < spread < 1e-4
    assert abs(float(extended[0]) / exact - 1) < 1e-7


@pytest.mark.parametrize("at", [0.0, 1.0, 2.0, -3.0, 1e6])
def test_exact_operations_are_not_disturbed(at: float) -> None:
    """So that what happens at a tie or a jump can be told."""
    x = column("x")
    expression = build("floor({0})", build("{0} - 3", build("2 * {0}", build("abs({0})", x))))
    closed, _ = Case(expression, [value(expression), grad(expression, "x")]).trace()
    table = points(0)
    table.numbers["x"][:] = at
    rounded, _ = Evaluation(12, 0).run(closed, table.arguments)[2]
    assert np.all(rounded == 2 * abs(at) - 3)
