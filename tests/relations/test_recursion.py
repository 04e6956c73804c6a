"""Sensitivities through iterations, against JAX differentiating the same iterations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datafusion import SessionContext

from relations.tables import add_plan_tables
from support.cases import query

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


def _columns(session: SessionContext, statement: str) -> list[Any]:
    return [np.asarray(column.to_numpy(), dtype=np.float64) for column in query(session, statement).columns]


def _scan(step: Callable[[Any], Any], start: Any, count: int) -> Any:
    """All states of an iteration, the first included."""
    _, states = jax.lax.scan(lambda state, _: (step(state), step(state)), start, length=count)
    return jnp.concatenate([jnp.stack(start)[None], jnp.stack(states, axis=1)])


def test_harmonic_oscillator(session: SessionContext) -> None:
    """Position after each of 200 steps of symplectic Euler, by frequency and initial position."""
    session.from_pydict({"omega": [1.3], "q0": [0.7]}, name="params")
    found = _columns(
        session,
        """WITH RECURSIVE o AS (
             SELECT 0 AS step, omega, q0, q0 AS q, CAST(0 AS DOUBLE) AS p FROM params
             UNION ALL
             SELECT step + 1, omega, q0, q + 0.05 * (p - 0.05 * omega * omega * q), p - 0.05 * omega * omega * q
             FROM o WHERE step < 200)
           SELECT q, grad(q, omega), grad(q, q0), grad(p * p / 2 + omega * omega * q * q / 2, omega)
           FROM o ORDER BY step""",
    )

    def states(omega: Any, q0: Any) -> Any:
        def step(state: Any) -> Any:
            q, p = state
            p = p - 0.05 * omega * omega * q
            return q + 0.05 * p, p

        return _scan(step, (q0, 0.0 * q0), 200)

    def energy(omega: Any, q0: Any) -> Any:
        q, p = states(omega, q0).T
        return p * p / 2 + omega * omega * q * q / 2

    expected = [
        states(1.3, 0.7)[:, 0],
        jax.jacfwd(states, 0)(1.3, 0.7)[:, 0],
        jax.jacfwd(states, 1)(1.3, 0.7)[:, 0],
        jax.jacfwd(energy, 0)(1.3, 0.7),
    ]
    assert len(found[0]) == 201
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-10, atol=1e-10)


def test_epidemic(session: SessionContext) -> None:
    """The infected of a SIR model after each of 200 steps, by infection and recovery rate."""
    session.from_pydict({"beta": [0.45], "gamma": [0.12]}, name="params")
    found = _columns(
        session,
        """WITH RECURSIVE sir AS (
             SELECT 0 AS step, beta, gamma, CAST(0.99 AS DOUBLE) AS s, CAST(0.01 AS DOUBLE) AS i FROM params
             UNION ALL
             SELECT step + 1, beta, gamma, s - 0.5 * beta * s * i, i + 0.5 * (beta * s * i - gamma * i)
             FROM sir WHERE step < 200)
           SELECT grad(i, beta), grad(i, gamma), grad(1 - s - i, beta) FROM sir ORDER BY step""",
    )

    def states(beta: Any, gamma: Any) -> Any:
        def step(state: Any) -> Any:
            s, i = state
            return s - 0.5 * beta * s * i, i + 0.5 * (beta * s * i - gamma * i)

        return _scan(step, (0.99 + 0 * beta, 0.01 + 0 * beta), 200)

    by_beta, by_gamma = (jax.jacfwd(states, which)(0.45, 0.12) for which in (0, 1))
    for actual, wanted in zip(found, [by_beta[:, 1], by_gamma[:, 1], -by_beta.sum(axis=1)], strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-10)


def test_root_of_an_equation(session: SessionContext) -> None:
    """The root of x^3 + x = a by Newton's method: its derivative by a is 1 / (3 x^2 + 1), its second -6 x / (...)^3."""
    session.from_pydict({"a": [0.5, 2.0, 10.0]}, name="equations")
    a, x, first, second = _columns(
        session,
        """WITH RECURSIVE newton AS (
             SELECT 0 AS step, a, CAST(1 AS DOUBLE) AS x FROM equations
             UNION ALL
             SELECT step + 1, a, x - (x * x * x + x - a) / grad(x * x * x + x - a, x) FROM newton WHERE step < 12)
           SELECT a, x, grad(x, a), grad(grad(x, a), a) FROM newton WHERE step = 12 ORDER BY a""",
    )
    np.testing.assert_allclose(x**3 + x, a, rtol=1e-14)
    np.testing.assert_allclose(first, 1 / (3 * x**2 + 1), rtol=1e-12)
    np.testing.assert_allclose(second, -6 * x / (3 * x**2 + 1) ** 3, rtol=1e-10)


def test_learning_rate(session: SessionContext) -> None:
    """The loss after 50 steps of gradient descent, by the learning rate and by a regularization weight."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=40)
    y = 1.7 * x - 0.4 + 0.1 * rng.normal(size=40)
    session.from_pydict({"x": x.tolist(), "y": y.tolist()}, name="data")
    session.from_pydict({"rate": [0.03], "decay": [0.1]}, name="params")
    found = _columns(
        session,
        """WITH RECURSIVE fit AS (
             SELECT 0 AS step, rate, decay, CAST(0 AS DOUBLE) AS a, CAST(0 AS DOUBLE) AS b FROM params
             UNION ALL
             SELECT step + 1, rate, decay,
                    a - rate * grad(AVG(power(a * x + b - y, 2)) + decay * a * a, a),
                    b - rate * grad(AVG(power(a * x + b - y, 2)), b)
             FROM fit CROSS JOIN data WHERE step < 50 GROUP BY step, rate, decay, a, b)
           SELECT grad(AVG(power(a * x + b - y, 2)), rate), grad(AVG(power(a * x + b - y, 2)), decay)
           FROM fit CROSS JOIN data WHERE step = 50 GROUP BY rate, decay""",
    )

    def loss(parameters: Any) -> Any:
        return jnp.mean((parameters[0] * x + parameters[1] - y) ** 2)

    def after(rate: Any, decay: Any) -> Any:
        def step(parameters: Any, _: Any) -> Any:
            gradient = jax.grad(lambda p: loss(p) + decay * p[0] * p[0])(parameters)
            return parameters - rate * gradient, None

        final, _ = jax.lax.scan(step, jnp.zeros(2) * rate, length=50)
        return loss(final)

    expected = [jax.grad(after, which)(0.03, 0.1) for which in (0, 1)]
    np.testing.assert_allclose([column[0] for column in found], expected, rtol=1e-9)


def test_what_varies_is_found_over_several_iterations(session: SessionContext) -> None:
    """The variable reaches c only by way of a and b."""
    session.from_pydict({"w": [0.5]}, name="params")
    (found,) = _columns(
        session,
        """WITH RECURSIVE chain AS (
             SELECT 0 AS step, w, CAST(0 AS DOUBLE) AS a, CAST(0 AS DOUBLE) AS b, CAST(0 AS DOUBLE) AS c FROM params
             UNION ALL
             SELECT step + 1, w, w * w, a * 3, b + c FROM chain WHERE step < 5)
           SELECT grad(c, w) AS d FROM chain ORDER BY step""",
    )
    slope = 3 * 2 * 0.5
    assert found.tolist() == [0.0, 0.0, 0.0, slope, 2 * slope, 3 * slope]


def test_tangent_that_is_null_only_in_later_iterations(session: SessionContext) -> None:
    """DataFusion takes ln(w) to be possibly NULL, and 1 / w not to be, when that is written out."""
    add_plan_tables(session)
    found = _columns(
        session,
        """WITH RECURSIVE r AS (SELECT 0 AS step, w, x FROM (SELECT p.w, ln(p.w) AS x FROM p CROSS JOIN p AS q) AS s
                                UNION ALL SELECT step + 1, w, 0.5 * x FROM r WHERE step < 1)
           SELECT w, grad(AVG(x), w) FROM r GROUP BY step, w ORDER BY step, w""",
    )
    w, derivative = found
    np.testing.assert_allclose(derivative, [1 / w[0], 1 / w[1], 0.5 / w[2], 0.5 / w[3]])


def test_column_that_is_not_null_by_the_test_that_its_tangent_has_too(session: SessionContext) -> None:
    add_plan_tables(session)
    found = query(
        session,
        """WITH RECURSIVE r AS (SELECT 0 AS step, id, x, y, y AS a FROM d
                                UNION ALL SELECT step + 1, id, x, y, 0.5 * a + 0.3 * coalesce(x, y) FROM r
                                WHERE step < 2)
           SELECT x, grad(AVG(a), x) AS d FROM r GROUP BY id, x ORDER BY id""",
    ).to_pydict()
    assert found["d"] == pytest.approx([0.0 if x is None else (0.3 + 0.45) / 3 for x in found["x"]])


# Columns that are whole numbers in the first rows, and what a step computes of floats for them.
ROUNDED = {
    "a number": ("0", "0.5 * q + w"),
    "one that is written as a whole one": ("0", "CAST(q + 10 * w AS BIGINT)"),
    "a branch": ("1", "CASE WHEN step > 0 THEN w * q ELSE 2.5 END"),
    "a smaller type": ("CAST(0 AS SMALLINT)", "q + w"),
}
WHOLE = {
    "a count": ("0", "q + 1"),
    "floors": ("0", "q + CAST(floor(10 * w) AS BIGINT)"),
    "conditions": ("0", "CASE WHEN w > 0.5 THEN q + 1 ELSE 0 END"),
}
READ = (
    "SELECT grad(q * w, w) AS d FROM r WHERE step = 2",
    "SELECT grad((SELECT SUM(q * w) FROM r), w) AS d FROM p",
    "SELECT jvp(SUM(q + w), w, 1.0) AS d FROM r GROUP BY w",
)


def _iterated(first: str, step: str, read: str) -> str:
    return f"""WITH RECURSIVE r AS (SELECT 0 AS step, w, {first} AS q FROM p
        UNION ALL SELECT step + 1, w, {step} FROM r WHERE step < 2) {read}"""


@pytest.mark.parametrize("name", ROUNDED)
def test_steps_that_are_rounded_are_refused(session: SessionContext, name: str) -> None:
    """The derivative would be 0 without a word, as each step is made a whole number."""
    session.from_pydict({"w": [0.7]}, name="p")
    for read in READ:
        with pytest.raises(Exception, match=r"r: its column q is \w+, as it is in the first rows .* `0\.0 AS q`"):
            query(session, _iterated(*ROUNDED[name], read))


def test_steps_that_are_whole_numbers(session: SessionContext) -> None:
    session.from_pydict({"w": [0.7]}, name="p")
    found = [[query(session, _iterated(*case, read)).to_pydict()["d"] for read in READ] for case in WHOLE.values()]
    assert found == [
        [[2.0], [3.0], [3.0]],
        [[14.0], [21.0], [3.0]],
        [[2.0], [3.0], [3.0]],
    ]


def test_derivatives_beside_steps_that_are_rounded(session: SessionContext) -> None:
    """They do not pass through the iterations."""
    session.from_pydict({"w": [0.7]}, name="p")
    rounded = _iterated(*ROUNDED["a number"], "SELECT (SELECT COUNT(*) FROM r) AS n, grad(w * w, w) AS d FROM p")
    with pytest.raises(Exception, match="its column q"):
        query(session, rounded)
    beside = _iterated(*ROUNDED["a number"], "SELECT d FROM (SELECT w, grad(w * w, w) AS d FROM p) AS g CROSS JOIN r")
    assert query(session, beside).to_pydict()["d"] == [1.4] * 3
