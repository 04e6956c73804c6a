"""Derivatives of what is computed from the iterations of a recursive query, against JAX through `lax.scan`."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from datafusion import SessionContext
from jax import lax

from support.cases import query
from support.compare import assert_same_rows, rows_of

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

STEPS = 200
Register = Callable[[SessionContext], SessionContext]


def _sir(state: Any, parameters: Any) -> Any:
    s, i = state
    beta, gamma = parameters
    infected, recovered = beta * s * i, gamma * i
    return jnp.stack([s - 0.5 * infected, i + 0.5 * (infected - recovered)])


SIR = f"""WITH RECURSIVE sir AS (
            SELECT 0 AS step, beta, gamma, CAST(0.99 AS DOUBLE) AS s, CAST(0.01 AS DOUBLE) AS i FROM params
            UNION ALL
            SELECT step + 1, beta, gamma, s - 0.5 * beta * s * i, i + 0.5 * (beta * s * i - gamma * i)
            FROM sir WHERE step < {STEPS})"""
_SIR_AT = [0.4, 0.13]


def test_calibration_of_sir(session: SessionContext) -> None:
    """The gradient and a second derivative of a loss over all iterations, joined with observations."""
    observed = [0.01 + 0.2 * math.exp(-(((step - 60) / 25) ** 2)) for step in range(STEPS + 1)]
    session.from_pydict({"beta": _SIR_AT[:1], "gamma": _SIR_AT[1:]}, name="params")
    session.from_pydict({"step": list(range(STEPS + 1)), "y": observed}, name="observed")
    found = query(
        session,
        f"""{SIR} SELECT AVG(power(i - y, 2)) AS loss, grad(AVG(power(i - y, 2)), beta) AS b,
              grad(AVG(power(i - y, 2)), gamma) AS g, grad(grad(AVG(power(i - y, 2)), beta), gamma) AS bg
            FROM sir JOIN observed ON sir.step = observed.step GROUP BY beta, gamma""",
    )

    def loss(parameters: Any) -> Any:
        start = jnp.asarray([0.99, 0.01])
        _, states = lax.scan(lambda state, _: (_sir(state, parameters),) * 2, start, None, length=STEPS)
        infected = jnp.concatenate([start[1:], states[:, 1]])
        return jnp.mean((infected - jnp.asarray(observed)) ** 2)

    at = jnp.asarray(_SIR_AT)
    slope, bend = jax.grad(loss)(at), jax.hessian(loss)(at)
    assert_same_rows(rows_of(found), [tuple(map(float, (loss(at), *slope, bend[0, 1])))], rel=1e-9)


def test_keplers_equation(session: SessionContext) -> None:
    """The root of E - e sin E = M by both of its constants."""
    session.from_pydict({"e": [0.1, 0.6], "m": [1.0, 2.5]}, name="orbits")
    found = query(
        session,
        """WITH RECURSIVE kepler AS (
             SELECT 0 AS step, e, m, m AS root FROM orbits
             UNION ALL
             SELECT step + 1, e, m, root - (root - e * sin(root) - m) / grad(root - e * sin(root) - m, root)
             FROM kepler WHERE step < 10)
           SELECT root, grad(root, m) AS by_m, grad(root, e) AS by_e FROM kepler WHERE step = 10 ORDER BY e""",
    )
    for e, m, (root, by_m, by_e) in zip([0.1, 0.6], [1.0, 2.5], rows_of(found), strict=True):
        assert isinstance(root, float)
        slope = 1 - e * math.cos(root)
        assert root - e * math.sin(root) == pytest.approx(m, rel=1e-14)
        assert (by_m, by_e) == pytest.approx((1 / slope, math.sin(root) / slope), rel=1e-12)


def test_hypergradient(session: SessionContext) -> None:
    """The loss after fifty steps of gradient descent by the rate of the steps, which are gradients themselves."""
    x, y = [0.5, 1.0, -1.5, 2.0], [2.0, -1.5, 0.25, 3.0]
    session.from_pydict({"x": x, "y": y}, name="d")
    session.from_pydict({"rate": [0.02, 0.05]}, name="rates")
    found = query(
        session,
        """WITH RECURSIVE fit AS (
             SELECT 0 AS step, rate, CAST(0 AS DOUBLE) AS a, CAST(0 AS DOUBLE) AS b FROM rates
             UNION ALL
             SELECT fit.step + 1, fit.rate,
                    fit.a - fit.rate * AVG(grad(power(sin(fit.a * d.x) + fit.b - d.y, 2), fit.a)),
                    fit.b - fit.rate * AVG(grad(power(sin(fit.a * d.x) + fit.b - d.y, 2), fit.b))
             FROM fit CROSS JOIN d WHERE fit.step < 50 GROUP BY fit.step, fit.rate, fit.a, fit.b)
           SELECT rate, AVG(power(sin(a * x) + b - y, 2)) AS loss, grad(AVG(power(sin(a * x) + b - y, 2)), rate) AS d
           FROM fit CROSS JOIN d WHERE step = 50 GROUP BY rate ORDER BY rate""",
    )

    def loss(parameters: Any) -> Any:
        return jnp.mean((jnp.sin(parameters[0] * jnp.asarray(x)) + parameters[1] - jnp.asarray(y)) ** 2)

    def trained(rate: Any) -> Any:
        step = lambda at, _: (at - rate * jax.grad(loss)(at), None)  # noqa: E731
        return loss(lax.scan(step, jnp.zeros(2), None, length=50)[0])

    expected = [(rate, float(trained(rate)), float(jax.grad(trained)(rate))) for rate in (0.02, 0.05)]
    assert_same_rows(rows_of(found), expected, rel=1e-10)
