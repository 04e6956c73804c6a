"""Gradients by row of what people compute, against JAX in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datafusion import SessionContext
from numpy.typing import NDArray

from support.cases import query

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Array = NDArray[np.float64]
Register = Callable[[SessionContext], SessionContext]


def numbers(seed: int, *shape: int) -> Array:
    return np.round(np.random.default_rng(seed).normal(size=shape), 4)


def add(session: SessionContext, name: str, values: Array, *axes: str) -> None:
    """A table with a row for each number of an array, in an order that is not that of the array."""
    places = np.random.default_rng(values.size).permutation(values.size)
    indexes = np.unravel_index(places, values.shape)
    columns = {axis: index.tolist() for axis, index in zip(axes, indexes, strict=True)}
    session.from_pydict({**columns, "val": values[indexes].tolist()}, name=name)


def assert_gradient(
    session: SessionContext, statement: str, expected: Any, axes: Sequence[str], *, column: str = "d"
) -> None:
    """Asserts that a statement has the derivative of each number of an array in its row."""
    expected = np.asarray(expected)
    found = np.full(expected.shape, np.nan)
    rows = query(session, statement).to_pylist()
    assert len(rows) == expected.size
    for row in rows:
        found[tuple(row[axis] for axis in axes)] = row[column]
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12 * max(1.0, np.abs(expected).max()))


# A network of two layers

LAYERS = """
    a AS (SELECT x.n, w1.o, SUM(x.val * w1.val) AS val FROM x JOIN w1 ON x.i = w1.i GROUP BY x.n, w1.o),
    h AS (SELECT n, o, tanh(val) AS val FROM a),
    z AS (SELECT h.n, w2.o, SUM(h.val * w2.val) AS val FROM h JOIN w2 ON h.o = w2.i GROUP BY h.n, w2.o),
    top AS (SELECT n, MAX(val) AS val FROM z GROUP BY n),
    e AS (SELECT z.n, z.o, exp(z.val - top.val) AS val FROM z JOIN top ON z.n = top.n),
    total AS (SELECT n, SUM(val) AS val FROM e GROUP BY n),
    p AS (SELECT e.n, e.o, e.val / total.val AS val FROM e JOIN total ON e.n = total.n)"""
LOSS = f"WITH {LAYERS}, loss AS (SELECT AVG(-ln(p.val)) AS l FROM p JOIN y ON p.n = y.n AND p.o = y.label)"
# The backward pass as one writes it by hand.
BY_HAND = f"""WITH {LAYERS},
    dz AS (SELECT p.n, p.o, (p.val - CASE WHEN p.o = y.label THEN 1 ELSE 0 END) / 5 AS val FROM p JOIN y ON p.n = y.n),
    dw2 AS (SELECT h.o AS i, dz.o, SUM(h.val * dz.val) AS val FROM h JOIN dz ON h.n = dz.n GROUP BY h.o, dz.o),
    dh AS (SELECT dz.n, w2.i AS o, SUM(dz.val * w2.val) AS val FROM dz JOIN w2 ON dz.o = w2.o GROUP BY dz.n, w2.i),
    da AS (SELECT h.n, h.o, dh.val * (1 - h.val * h.val) AS val FROM h JOIN dh ON h.n = dh.n AND h.o = dh.o),
    dw1 AS (SELECT x.i, da.o, SUM(x.val * da.val) AS val FROM x JOIN da ON x.n = da.n GROUP BY x.i, da.o)"""


def test_network_of_two_layers(session: SessionContext) -> None:
    x, w1, w2, labels = numbers(1, 5, 4), numbers(2, 4, 3), numbers(3, 3, 2), np.array([0, 1, 1, 0, 1])
    add(session, "x", x, "n", "i")
    add(session, "w1", w1, "i", "o")
    add(session, "w2", w2, "i", "o")
    session.from_pydict({"n": list(range(5)), "label": labels.tolist()}, name="y")

    def loss(w1: jax.Array, w2: jax.Array) -> jax.Array:
        return -jnp.mean(jax.nn.log_softmax(jnp.tanh(x @ w1) @ w2)[jnp.arange(5), labels])

    expected = jax.grad(loss, (0, 1))(w1, w2)
    for name, gradient in zip(("w1", "w2"), expected, strict=True):
        statement = f"{LOSS} SELECT i, o, grad((SELECT l FROM loss), val) AS d FROM {name}"
        assert_gradient(session, statement, gradient, ("i", "o"))
        assert_gradient(session, f"{BY_HAND} SELECT i, o, val AS d FROM d{name}", gradient, ("i", "o"))
    # Both at once, in the rows of both.
    both = f"""{LOSS} SELECT w1.i, w1.o, w2.i AS j, w2.o AS q, grad((SELECT l FROM loss), w1.val) AS d1,
        grad((SELECT l FROM loss), w2.val) AS d2 FROM w1 CROSS JOIN w2"""
    whole = np.broadcast_to(np.asarray(expected[0])[:, :, None, None], (4, 3, 3, 2))
    assert_gradient(session, both, whole, ("i", "o", "j", "q"), column="d1")
    whole = np.broadcast_to(np.asarray(expected[1]), (4, 3, 3, 2))
    assert_gradient(session, both, whole, ("i", "o", "j", "q"), column="d2")


def test_softmax_with_max(session: SessionContext) -> None:
    """The shift by the maximum has no part in the derivative, also where two values are the greatest."""
    z = np.array([0.5, 2.0, -1.25, 2.0, 0.75])
    add(session, "z", z, "i")

    def value(z: jax.Array) -> jax.Array:
        return jnp.sum(jax.nn.softmax(z) * jnp.arange(5.0))

    expected = jax.grad(value)(z)
    subqueries = """WITH e AS (SELECT i, exp(val - (SELECT MAX(val) FROM z)) AS val FROM z)
        SELECT SUM(i * val / (SELECT SUM(val) FROM e)) FROM e"""
    windows = """SELECT SUM(i * val) FROM (SELECT i, val / SUM(val) OVER () AS val
        FROM (SELECT i, exp(val - MAX(val) OVER ()) AS val FROM z) AS e) AS p"""
    joins = """SELECT SUM(e.i * e.val) / SUM(e.val)
        FROM (SELECT z.i, exp(z.val - t.val) AS val FROM z CROSS JOIN (SELECT MAX(val) AS val FROM z) AS t) AS e"""
    for loss in (subqueries, windows, joins):
        assert_gradient(session, f"SELECT i, grad(({loss}), val) AS d FROM z", expected, ("i",))


def test_attention_with_a_causal_mask(session: SessionContext) -> None:
    size, width = 5, 3
    q, k, v, g = (numbers(seed, size, width) for seed in (4, 5, 6, 7))
    for name, values in (("q", q), ("k", k), ("v", v), ("g", g)):
        add(session, name, values, "t", "c")

    def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        scores = jnp.where(jnp.tril(jnp.ones((size, size))) > 0, q @ k.T / jnp.sqrt(width), -jnp.inf)
        return jnp.sum(jax.nn.softmax(scores) @ v * g)

    text = f"""WITH s AS (SELECT q.t, k.t AS u, SUM(q.val * k.val) / sqrt({width}.0) AS val
                   FROM q JOIN k ON q.c = k.c AND k.t <= q.t GROUP BY q.t, k.t),
        e AS (SELECT t, u, exp(val - MAX(val) OVER (PARTITION BY t)) AS val FROM s),
        p AS (SELECT t, u, val / SUM(val) OVER (PARTITION BY t) AS val FROM e),
        o AS (SELECT p.t, v.c, SUM(p.val * v.val) AS val FROM p JOIN v ON p.u = v.t GROUP BY p.t, v.c),
        loss AS (SELECT SUM(o.val * g.val) AS l FROM o JOIN g ON o.t = g.t AND o.c = g.c)"""
    for name, gradient in zip("qkv", jax.grad(loss, (0, 1, 2))(q, k, v), strict=True):
        statement = f"{text} SELECT t, c, grad((SELECT l FROM loss), val) AS d FROM {name}"
        assert_gradient(session, statement, gradient, ("t", "c"))


def test_matrix_factorisation(session: SessionContext) -> None:
    """The error of the observed entries only, with a penalty; a row without observations has that of the penalty."""
    users, items, observed = numbers(8, 5, 2), numbers(9, 4, 2), numbers(10, 5, 4)
    seen = np.random.default_rng(11).random((5, 4)) < 0.5
    seen[3] = False
    add(session, "users", users, "u", "f")
    add(session, "items", items, "i", "f")
    u, i = np.nonzero(seen)
    session.from_pydict({"u": u.tolist(), "i": i.tolist(), "val": observed[seen].tolist()}, name="ratings")

    def loss(users: jax.Array, items: jax.Array) -> jax.Array:
        error = jnp.sum(jnp.where(seen, users @ items.T - observed, 0.0) ** 2)
        return error + 0.1 * (jnp.sum(users**2) + jnp.sum(items**2))

    text = """WITH predicted AS (SELECT r.u, r.i, r.val, SUM(a.val * b.val) AS p FROM ratings AS r
            JOIN users AS a ON a.u = r.u JOIN items AS b ON b.i = r.i AND a.f = b.f GROUP BY r.u, r.i, r.val),
        loss AS (SELECT SUM(power(p - val, 2)) + 0.1 * ((SELECT SUM(val * val) FROM users)
            + (SELECT SUM(val * val) FROM items)) AS l FROM predicted)"""
    expected = jax.grad(loss, (0, 1))(users, items)
    for name, axis, gradient in zip(("users", "items"), "ui", expected, strict=True):
        statement = f"{text} SELECT {axis}, f, grad((SELECT l FROM loss), val) AS d FROM {name}"
        assert_gradient(session, statement, gradient, (axis, "f"))


def test_springs(session: SessionContext) -> None:
    """Forces are the negative derivatives of the energy by the positions: one relation twice, by two of its columns."""
    positions = numbers(12, 5, 2)
    edges = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]])
    session.from_pydict(
        {"i": list(range(5)), "x": positions[:, 0].tolist(), "y": positions[:, 1].tolist()}, name="mass"
    )
    session.from_pydict({"a": edges[:, 0].tolist(), "b": edges[:, 1].tolist()}, name="spring")

    def energy(positions: jax.Array) -> jax.Array:
        offsets = positions[edges[:, 0]] - positions[edges[:, 1]]
        return jnp.sum(0.5 * (jnp.sqrt(jnp.sum(offsets**2, axis=1)) - 1.3) ** 2)

    text = """(SELECT SUM(0.5 * power(sqrt(power(a.x - b.x, 2) + power(a.y - b.y, 2)) - 1.3, 2))
        FROM spring AS s JOIN mass AS a ON s.a = a.i JOIN mass AS b ON s.b = b.i)"""
    statement = f"SELECT i, -grad({text}, x) AS fx, -grad({text}, y) AS fy FROM mass"
    expected = -np.asarray(jax.grad(energy)(positions))
    assert not expected[4].any()
    assert_gradient(session, statement, expected[:, 0], ("i",), column="fx")
    assert_gradient(session, statement, expected[:, 1], ("i",), column="fy")


def test_gaussian_mixture(session: SessionContext) -> None:
    x, means, logits, scales = numbers(13, 7), numbers(14, 3), numbers(15, 3), np.array([0.1, -0.4, 0.3])
    add(session, "x", x, "n")
    columns = {"k": [0, 1, 2], "mu": means.tolist(), "logit": logits.tolist(), "scale": scales.tolist()}
    session.from_pydict(columns, name="component")

    def likelihood(means: jax.Array, logits: jax.Array, scales: jax.Array) -> jax.Array:
        parts = jax.nn.log_softmax(logits) - scales - 0.5 * ((x[:, None] - means) / jnp.exp(scales)) ** 2
        return jnp.sum(jax.scipy.special.logsumexp(parts, axis=1))

    text = """WITH norm AS (SELECT m + ln(SUM(exp(logit - m))) AS val
                  FROM component CROSS JOIN (SELECT MAX(logit) AS m FROM component) AS t GROUP BY m),
        part AS (SELECT n, logit - norm.val - scale - 0.5 * power((x.val - mu) / exp(scale), 2) AS val
                 FROM x CROSS JOIN component CROSS JOIN norm),
        top AS (SELECT n, MAX(val) AS val FROM part GROUP BY n),
        each AS (SELECT part.n, MAX(top.val) + ln(SUM(exp(part.val - top.val))) AS val
                 FROM part JOIN top ON part.n = top.n GROUP BY part.n),
        loss AS (SELECT SUM(val) AS l FROM each)"""
    names = ("mu", "logit", "scale")
    calls = ", ".join(f"grad((SELECT l FROM loss), {name}) AS d_{name}" for name in names)
    expected = jax.grad(likelihood, (0, 1, 2))(means, logits, scales)
    for name, gradient in zip(names, expected, strict=True):
        assert_gradient(session, f"{text} SELECT k, {calls} FROM component", gradient, ("k",), column=f"d_{name}")


@pytest.mark.parametrize("way", ["groups", "windows"])
def test_layer_normalisation(session: SessionContext, way: str) -> None:
    x, gain, weights = numbers(16, 4, 5), numbers(17, 5), numbers(18, 4, 5)
    add(session, "x", x, "n", "c")
    add(session, "gain", gain, "c")
    add(session, "weight", weights, "n", "c")

    def loss(x: jax.Array, gain: jax.Array) -> jax.Array:
        normal = (x - x.mean(axis=1, keepdims=True)) / (x.std(axis=1, ddof=1, keepdims=True) + 1e-3)
        return jnp.sum(jnp.sin(normal * gain) * weights)

    normal = {
        "groups": """SELECT x.n, x.c, (x.val - s.mean) / (s.spread + 1e-3) AS val
            FROM x JOIN (SELECT n, AVG(val) AS mean, STDDEV(val) AS spread FROM x GROUP BY n) AS s ON x.n = s.n""",
        "windows": """SELECT n, c,
            (val - AVG(val) OVER (PARTITION BY n)) / (STDDEV(val) OVER (PARTITION BY n) + 1e-3) AS val FROM x""",
    }[way]
    text = f"""WITH normal AS ({normal}),
        loss AS (SELECT SUM(sin(a.val * gain.val) * w.val) AS l FROM normal AS a JOIN gain ON a.c = gain.c
                 JOIN weight AS w ON w.n = a.n AND w.c = a.c)"""
    dx, dgain = jax.grad(loss, (0, 1))(x, gain)
    assert_gradient(session, f"{text} SELECT n, c, grad((SELECT l FROM loss), val) AS d FROM x", dx, ("n", "c"))
    assert_gradient(session, f"{text} SELECT c, grad((SELECT l FROM loss), val) AS d FROM gain", dgain, ("c",))


def test_convolution(session: SessionContext) -> None:
    """A join on offsets; at the ends the kernel reaches over nothing."""
    signal, kernel, target = numbers(19, 9), numbers(20, 3), numbers(21, 9)
    add(session, "signal", signal, "t")
    add(session, "kernel", kernel, "o")
    add(session, "target", target, "t")

    def loss(signal: jax.Array, kernel: jax.Array) -> jax.Array:
        return jnp.mean((jnp.convolve(signal, kernel[::-1], mode="same") - target) ** 2)

    text = """WITH out AS (SELECT target.t, target.val - SUM(s.val * k.val) AS val FROM target CROSS JOIN kernel AS k
            JOIN signal AS s ON s.t = target.t + k.o - 1 GROUP BY target.t, target.val),
        loss AS (SELECT AVG(val * val) AS l FROM out)"""
    ds, dk = jax.grad(loss, (0, 1))(signal, kernel)
    assert_gradient(session, f"{text} SELECT t, grad((SELECT l FROM loss), val) AS d FROM signal", ds, ("t",))
    assert_gradient(session, f"{text} SELECT o, grad((SELECT l FROM loss), val) AS d FROM kernel", dk, ("o",))


def test_k_means(session: SessionContext) -> None:
    """Each point has its distance to the nearest centre; a centre that is nearest to none stays where it is."""
    points, centres = numbers(22, 8, 2), np.vstack([numbers(23, 3, 2), [[50.0, 50.0]]])
    add(session, "point", points, "n", "c")
    add(session, "centre", centres, "k", "c")

    def loss(centres: jax.Array) -> jax.Array:
        return jnp.sum(jnp.min(jnp.sum((points[:, None] - centres) ** 2, axis=2), axis=1))

    text = """WITH far AS (SELECT n, k, SUM(power(p.val - m.val, 2)) AS val FROM point AS p
            JOIN centre AS m ON p.c = m.c GROUP BY n, k),
        near AS (SELECT n, MIN(val) AS val FROM far GROUP BY n), loss AS (SELECT SUM(val) AS l FROM near)"""
    gradient = jax.grad(loss)(centres)
    assert not np.asarray(gradient)[3].any()
    statement = f"{text} SELECT k, c, grad((SELECT l FROM loss), val) AS d FROM centre"
    assert_gradient(session, statement, gradient, ("k", "c"))


def test_ties_share_as_in_jax(session: SessionContext) -> None:
    """Points that are as near to one centre as to another, and three least values."""
    values = np.array([1.0, -0.5, 3.0, -0.5, 3.0, -0.5])
    add(session, "v", values, "i")
    for function, extremum in (("MIN", jnp.min), ("MAX", jnp.max)):
        expected = jax.grad(lambda v, extremum=extremum: extremum(v) * jnp.sum(v))(values)
        statement = f"SELECT i, grad((SELECT {function}(val) * SUM(val) FROM v), val) AS d FROM v"
        assert_gradient(session, statement, expected, ("i",))


def test_top_k(session: SessionContext) -> None:
    """Of each group the three greatest, as `ROW_NUMBER` has them."""
    values = numbers(24, 3, 6)
    add(session, "v", values, "g", "i")

    def loss(values: jax.Array) -> jax.Array:
        best, _ = jax.lax.top_k(values, 3)
        return jnp.sum(jnp.exp(best) * jnp.array([1.0, 2.0, 3.0]))

    text = """(SELECT SUM(exp(val) * rn) FROM
        (SELECT val, ROW_NUMBER() OVER (PARTITION BY g ORDER BY val DESC) AS rn FROM v) AS ranked WHERE rn <= 3)"""
    assert_gradient(session, f"SELECT g, i, grad({text}, val) AS d FROM v", jax.grad(loss)(values), ("g", "i"))
