"""Gradients by row through recursive queries of larger models, against JAX in double precision."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from datafusion import SessionContext, udf

import xql_ffi
from by_row.test_named_cases import add, assert_gradient, numbers
from by_row.test_recursions import gradient

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


def test_a_network_with_long_short_term_memory(session: SessionContext) -> None:
    """By weights, by the inputs and by the states at the start.

    Hochreiter, S. and Schmidhuber, J. (1997), with the gate that forgets of Gers, F. A. et al. (2000).
    """
    samples, times, inputs, units = 3, 5, 2, 3
    gates = ("forgets", "takes", "proposes", "shows")
    data, target = numbers(30, samples, times, inputs), numbers(31, samples, units)
    weights, recurrent = numbers(32, len(gates), inputs, units) / 2, numbers(33, len(gates), units, units) / 2
    bias, start = numbers(34, len(gates), units), numbers(35, samples, units) / 2
    add(session, "x", data, "s", "t", "i")
    add(session, "y", target, "s", "o")
    add(session, "w", weights, "gate", "i", "o")
    add(session, "u", recurrent, "gate", "i", "o")
    add(session, "b", bias, "gate", "o")
    add(session, "start", start, "s", "o")
    sums = ", ".join(f"SUM(val) FILTER (WHERE gate = {gate}) AS {name}" for gate, name in enumerate(gates))
    ctes = f"""h AS (SELECT 0 AS t, s, o, val, 2 * val AS cell FROM start
        UNION ALL SELECT * FROM (
            WITH part AS (
                    SELECT h.t, h.s, u.o, u.gate, h.val * u.val AS val FROM h JOIN u ON u.i = h.o
                    UNION ALL SELECT x.t, x.s, w.o, w.gate, x.val * w.val FROM x JOIN w ON w.i = x.i
                        JOIN (SELECT t, s FROM h WHERE o = 0) now ON now.t = x.t AND now.s = x.s
                    UNION ALL SELECT h.t, h.s, b.o, b.gate, b.val FROM h JOIN b ON b.o = h.o),
                sums AS (SELECT t, s, o, {sums} FROM part WHERE t < {times} GROUP BY t, s, o),
                cells AS (SELECT z.t, z.s, z.o, z.shows,
                        h.cell / (1 + exp(-z.forgets)) + tanh(z.proposes) / (1 + exp(-z.takes)) AS cell
                    FROM sums z JOIN h ON h.t = z.t AND h.s = z.s AND h.o = z.o)
            SELECT t + 1, s, o, tanh(cell) / (1 + exp(-shows)), cell FROM cells) q),
        loss AS (SELECT AVG(power(h.val - y.val, 2)) AS l
            FROM h JOIN y ON y.s = h.s AND y.o = h.o WHERE h.t = {times})"""

    def loss(data: jax.Array, weights: jax.Array, recurrent: jax.Array, bias: jax.Array, start: jax.Array) -> jax.Array:
        h, cell = start, 2 * start
        for t in range(times):
            z = jnp.einsum("si,gio->gso", data[:, t], weights) + jnp.einsum("si,gio->gso", h, recurrent)
            forgets, takes, proposes, shows = z + bias[:, None]
            cell = jax.nn.sigmoid(forgets) * cell + jax.nn.sigmoid(takes) * jnp.tanh(proposes)
            h = jax.nn.sigmoid(shows) * jnp.tanh(cell)
        return jnp.mean((h - target) ** 2)

    expected = jax.grad(loss, argnums=(0, 1, 2, 3, 4))(data, weights, recurrent, bias, start)
    cases = {
        "x": ("s", "t", "i"), "w": ("gate", "i", "o"), "u": ("gate", "i", "o"), "b": ("gate", "o"), "start": ("s", "o"),
    }  # fmt: skip
    for (table, axes), by in zip(cases.items(), expected, strict=True):
        assert_gradient(session, gradient(ctes, table, *axes), by, axes)


def test_shallow_water(session: SessionContext) -> None:
    """Waves in a channel with walls, by the surface at the start and by the depth of the ground.

    h_t + (h u)_x = 0 and u_t + u u_x + g (h + ground)_x = 0 on a staggered grid (Arakawa's C): heights in the middle of
    cells, speeds on the edges between them. Speeds are moved by the new heights (forward-backward).
    """
    cells, steps, step, gravity = 10, 8, 0.1, 9.81
    heights, ground = 1 + 0.1 * numbers(40, cells), 0.1 * numbers(41, cells)
    add(session, "heights", heights, "cell")
    add(session, "ground", ground, "cell")
    # Edge e is on the right of cell e; there are walls at both ends.
    ctes = f"""r AS (SELECT 0 AS step, cell, val AS h, CAST(0 AS DOUBLE) AS u FROM heights
        UNION ALL SELECT * FROM (
            WITH flux AS (SELECT a.step, a.cell, a.u * (a.h + b.h) / 2 AS val
                    FROM r a JOIN r b ON b.step = a.step AND b.cell = a.cell + 1 WHERE a.step < {steps}),
                change AS (SELECT step, cell, -val AS val FROM flux UNION ALL SELECT step, cell + 1, val FROM flux),
                moved AS (SELECT step, cell, SUM(val) AS val FROM change GROUP BY step, cell),
                level AS (SELECT r.step, r.cell, r.u, r.h + {step} * m.val AS h
                    FROM r JOIN moved m ON m.step = r.step AND m.cell = r.cell),
                surface AS (SELECT l.step, l.cell, l.h + g.val AS val FROM level l JOIN ground g ON g.cell = l.cell),
                slope AS (SELECT a.step, a.cell, b.val - a.val AS val
                    FROM surface a JOIN surface b ON b.step = a.step AND b.cell = a.cell + 1),
                speeds AS (SELECT step, cell, u, lag(u, 1, 0) OVER (PARTITION BY step ORDER BY cell) AS before,
                        lead(u, 1, 0) OVER (PARTITION BY step ORDER BY cell) AS after, h FROM level)
            SELECT v.step + 1, v.cell, v.h, CASE WHEN s.val IS NULL THEN 0
                ELSE v.u - {step} * (v.u * (v.after - v.before) / 2 + {gravity} * s.val) END
            FROM speeds v LEFT JOIN slope s ON s.step = v.step AND s.cell = v.cell) q),
        loss AS (SELECT SUM(h * u * (cell + 1) + h * h) AS l FROM r WHERE step % 4 = 0)"""

    def loss(h: jax.Array, ground: jax.Array) -> jax.Array:
        u, total = jnp.zeros(cells), jnp.sum(h * h)
        for n in range(1, steps + 1):
            flux = u[:-1] * (h[:-1] + h[1:]) / 2
            h = h.at[:-1].add(-step * flux).at[1:].add(step * flux)
            surface = h + ground
            wide = jnp.pad(u, 1)
            moved = u - step * u * (wide[2:] - wide[:-2]) / 2
            u = moved.at[:-1].add(-step * gravity * (surface[1:] - surface[:-1])).at[-1].set(0.0)
            if n % 4 == 0:
                total += jnp.sum(h * u * jnp.arange(1, cells + 1) + h * h)
        return total

    by_heights, by_ground = jax.grad(loss, argnums=(0, 1))(heights, ground)
    assert_gradient(session, gradient(ctes, "heights", "cell"), by_heights, ["cell"])
    assert_gradient(session, gradient(ctes, "ground", "cell"), by_ground, ["cell"])


def softplus(values: pa.Array) -> pa.Array:
    return pc.ln(pc.add(1.0, pc.exp(values)))


def hypot(x: pa.Array, y: pa.Array) -> pa.Array:
    return pc.sqrt(pc.add(pc.multiply(x, x), pc.multiply(y, y)))


@pytest.fixture
def ruled() -> SessionContext:
    """A session with two functions in Python, and the rules of the user for them."""
    double = pa.float64()
    ctx = SessionContext()
    ctx.register_udf(udf(softplus, [double], double, "immutable", "softplus"))
    ctx.register_udf(udf(hypot, [double, double], double, "immutable", "hypot"))
    rules = [
        xql_ffi.rule("softplus(x)", "1 / (1 + exp(-x))"),
        xql_ffi.rule("hypot(x, y)", "x / hypot(x, y)", "y / hypot(x, y)"),
    ]
    return xql_ffi.register(ctx, rules=rules)


def in_every_iteration(steps: int) -> str:
    return f"""r AS (SELECT 0 AS step, i, hypot(val, 1.0) AS val FROM b
        UNION ALL SELECT * FROM (
            WITH p AS (SELECT r.step, m.o, SUM(softplus(m.val * r.val)) AS val
                FROM m JOIN r ON r.i = m.i WHERE r.step < {steps} GROUP BY r.step, m.o)
            SELECT p.step + 1, p.o, hypot(p.val, b.val) / 4 FROM p JOIN b ON b.i = p.o) q),
        loss AS (SELECT SUM(softplus(val) * (i + 1)) AS l FROM r WHERE step = {steps})"""


def model_of_rules(steps: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    def loss(matrix: jax.Array, start: jax.Array) -> jax.Array:
        x = jnp.hypot(start, 1.0)
        for _ in range(steps):
            x = jnp.hypot(jnp.sum(jax.nn.softplus(matrix * x[:, None]), axis=0), start) / 4
        return jnp.sum(jax.nn.softplus(x) * jnp.arange(1, len(start) + 1))

    return loss


def test_rules_of_the_user_in_every_iteration(ruled: SessionContext) -> None:
    """In the static term, in the recursive one and outside."""
    size, steps = 4, 6
    matrix, start = numbers(50, size, size), numbers(51, size)
    add(ruled, "m", matrix, "i", "o")
    add(ruled, "b", start, "i")
    by_matrix, by_start = jax.grad(model_of_rules(steps), argnums=(0, 1))(matrix, start)
    assert_gradient(ruled, gradient(in_every_iteration(steps), "m", "i", "o"), by_matrix, ["i", "o"])
    assert_gradient(ruled, gradient(in_every_iteration(steps), "b", "i"), by_start, ["i"])


def test_a_function_without_a_rule_is_refused_by_its_name(ruled: SessionContext) -> None:
    double = pa.float64()
    ruled.register_udf(udf(softplus, [double], double, "immutable", "unknown"))
    add(ruled, "m", numbers(52, 2, 2), "i", "o")
    add(ruled, "b", numbers(53, 2), "i")
    statement = gradient(in_every_iteration(2).replace("SUM(softplus(", "SUM(unknown("), "m", "i", "o")
    with pytest.raises(xql_ffi.MissingRuleError, match="unknown"):
        ruled.sql(statement).collect()


def test_newtons_method_for_systems_of_every_row(session: SessionContext) -> None:
    """The root of x + x³ / p = q in every row, by both parameters, with the method's own slope by `grad`.

    Rows stop by their own values. At a root, the implicit function theorem has the derivatives.
    """
    p, q = 0.5 + np.abs(numbers(54, 7)), 3 * numbers(55, 7)
    add(session, "p", p, "k")
    add(session, "q", q, "k")
    residue = "x + x * x * x / p - q"
    ctes = f"""r AS (SELECT 0 AS step, p.k, p.val AS p, q.val AS q, CAST(0.5 AS DOUBLE) AS x FROM p JOIN q ON p.k = q.k
        UNION ALL SELECT step + 1, k, p, q, x - ({residue}) / grad({residue}, x)
            FROM r WHERE abs({residue}) > 1e-7 AND step < 50),
        last AS (SELECT k, MAX(step) AS step FROM r GROUP BY k),
        loss AS (SELECT SUM(r.x * (r.k + 1)) AS l FROM r JOIN last ON r.k = last.k AND r.step = last.step)"""

    def steps(p: jax.Array, q: jax.Array) -> jax.Array:
        total = jnp.zeros(())
        for k in range(7):
            x: jax.Array | float = 0.5
            while abs(x + x * x * x / p[k] - q[k]) > 1e-7:
                x = x - (x + x * x * x / p[k] - q[k]) / (1 + 3 * x * x / p[k])
            total += (k + 1) * x
        return total

    by_p, by_q = jax.grad(steps, argnums=(0, 1))(jnp.asarray(p), jnp.asarray(q))
    assert_gradient(session, gradient(ctes, "p", "k"), by_p, ["k"])
    assert_gradient(session, gradient(ctes, "q", "k"), by_q, ["k"])


def test_two_recursions_that_read_the_variable(session: SessionContext) -> None:
    """The least statement of the case below: 1 + p + p² twice, by p."""
    add(session, "p", np.array([0.5]), "i")
    step = "{0} AS (SELECT 0 AS t, 1.0 AS v UNION ALL SELECT t + 1, v * val FROM {0} CROSS JOIN p WHERE t < 2)"
    sums = ", ".join(f"{step.format(name)}, l{name} AS (SELECT SUM(v) AS l FROM {name})" for name in "ab")
    ctes = f"""{sums},
        loss AS (SELECT la.l + lb.l AS l FROM la CROSS JOIN lb)"""
    assert_gradient(session, gradient(ctes, "p", "i"), [4.0], ["i"])


def test_both_passes_of_a_hidden_markov_model(session: SessionContext) -> None:
    """What the chances of the states are at each time, from a recursion forward and one back, by the emissions."""
    states, kinds = 3, 4
    seen = [1, 0, 3, 2, 1]
    transitions, emissions = numbers(56, states, states), numbers(57, states, kinds)
    wanted = numbers(58, len(seen), states)
    add(session, "transitions", transitions, "i", "o")
    add(session, "emissions", emissions, "o", "kind")
    add(session, "wanted", wanted, "t", "o")
    session.from_pydict({"t": list(range(len(seen))), "kind": seen}, name="seen")
    ctes = f"""e AS (SELECT s.t, e.o, exp(e.val) AS val FROM emissions e JOIN seen s ON s.kind = e.kind),
        a AS (SELECT t, o, val FROM e WHERE t = 0
            UNION ALL SELECT * FROM (
                WITH n AS (SELECT a.t + 1 AS t, k.o, SUM(a.val * exp(k.val)) AS val
                    FROM a JOIN transitions k ON k.i = a.o GROUP BY a.t, k.o)
                SELECT n.t, n.o, n.val * e.val FROM n JOIN e ON e.t = n.t AND e.o = n.o) q),
        b AS (SELECT t, o, CAST(1 AS DOUBLE) AS val FROM e WHERE t = {len(seen) - 1}
            UNION ALL SELECT b.t - 1, k.i, SUM(exp(k.val) * e.val * b.val)
                FROM b JOIN e ON e.t = b.t AND e.o = b.o JOIN transitions k ON k.o = b.o
                WHERE b.t > 0 GROUP BY b.t, k.i),
        both AS (SELECT a.t, a.o, a.val * b.val AS val FROM a JOIN b ON b.t = a.t AND b.o = a.o),
        whole AS (SELECT t, SUM(val) AS val FROM both GROUP BY t),
        loss AS (SELECT SUM(w.val * both.val / whole.val) AS l
            FROM both JOIN whole ON whole.t = both.t JOIN wanted w ON w.t = both.t AND w.o = both.o)"""

    def loss(transitions: jax.Array, emissions: jax.Array) -> jax.Array:
        k, e = jnp.exp(transitions), jnp.exp(emissions[:, jnp.array(seen)].T)
        forward, back = [e[0]], [jnp.ones(states)]
        for t in range(1, len(seen)):
            forward.append((forward[-1] @ k) * e[t])
            back.insert(0, k @ (e[len(seen) - t] * back[0]))
        both = jnp.stack(forward) * jnp.stack(back)
        return jnp.sum(wanted * both / both.sum(axis=1, keepdims=True))

    by_transitions, by_emissions = jax.grad(loss, argnums=(0, 1))(transitions, emissions)
    assert_gradient(session, gradient(ctes, "transitions", "i", "o"), by_transitions, ["i", "o"])
    assert_gradient(session, gradient(ctes, "emissions", "o", "kind"), by_emissions, ["o", "kind"])


def test_the_greatest_eigenvalue_by_power_iteration(session: SessionContext) -> None:
    """Until it changes no more: at the end its derivative by the matrix is the product of both eigenvectors."""
    size = 4
    matrix = np.abs(numbers(59, size, size)) + 0.5
    add(session, "m", matrix, "i", "o")
    one, none = "CAST(1 AS DOUBLE)", "CAST(0 AS DOUBLE)"
    ctes = f"""r AS (SELECT DISTINCT 0 AS step, i, {one} AS val, {none} AS l, {one} AS change FROM m
        UNION ALL SELECT * FROM (
            WITH p AS (SELECT r.step, m.i, r.l, SUM(m.val * r.val) AS val
                    FROM m JOIN r ON r.i = m.o WHERE r.change > 1e-14 GROUP BY r.step, m.i, r.l),
                n AS (SELECT step, i, l AS before, val, sqrt(SUM(val * val) OVER (PARTITION BY step)) AS norm FROM p)
            SELECT step + 1, i, val / norm, norm, abs(norm - before) FROM n) q),
        last AS (SELECT MAX(step) AS step FROM r),
        loss AS (SELECT MAX(r.l) AS l FROM r JOIN last ON last.step = r.step)"""
    values, right = np.linalg.eig(matrix)
    others, left = np.linalg.eig(matrix.T)
    v, u = right[:, values.real.argmax()].real, left[:, others.real.argmax()].real
    # The eigenvector is found to its last digits, and so is the derivative of the norm of its product.
    statement = gradient(ctes, "m", "i", "o")
    found = {(row["i"], row["o"]): row["d"] for row in session.sql(statement).to_pylist()}
    expected = np.outer(u, v) / (u @ v)
    np.testing.assert_allclose([found[i, o] for i in range(size) for o in range(size)], expected.ravel(), rtol=1e-6)
