"""Gradients by row of the limit of a recursive query: `SET xql.fixed_point`."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from by_row.test_named_cases import add, numbers
from support.cases import query

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

RTOL = 1e-9


def fixed(session: SessionContext, tolerance: str = "1e-13") -> None:
    session.sql(f"SET xql.fixed_point = '{tolerance}'").collect()


def slopes(session: SessionContext, ctes: str, column: str, table: str, *axes: str) -> np.ndarray:
    """The derivatives of the loss by the rows of a table, in the order of their axes."""
    keys = ", ".join(axes)
    statement = (
        f"WITH RECURSIVE {ctes} SELECT {keys}, grad((SELECT l FROM loss), {column}) AS d FROM {table} ORDER BY {keys}"
    )
    found: np.ndarray = query(session, statement)["d"].to_numpy()
    return found


def last(steps: int) -> str:
    return f"WHERE r.n = {steps}"


# PageRank

PAGES, DAMPING = 7, 0.85


def rank(steps: int, last: str) -> str:
    return f"""shares AS (SELECT links.src, links.dst, links.val / outs.total AS share
            FROM links JOIN (SELECT src, SUM(val) AS total FROM links GROUP BY src) AS outs ON links.src = outs.src),
        r AS (SELECT 0 AS n, src AS k, 1.0 / {PAGES} AS val FROM (SELECT DISTINCT src FROM links)
            UNION ALL
            SELECT n + 1, dst, (1 - MAX(d)) / {PAGES} + SUM(d * share * val)
            FROM (SELECT r.n, s.dst, s.share, r.val, damping.val AS d
                FROM damping CROSS JOIN r JOIN shares s ON s.src = r.k WHERE r.n < {steps}) GROUP BY n, dst),
        loss AS (SELECT SUM(target.val * r.val * r.val) AS l FROM r JOIN target ON target.k = r.k {last})"""


def add_pages(session: SessionContext) -> tuple[np.ndarray, np.ndarray]:
    links, target = np.abs(numbers(1, PAGES, PAGES)) + 0.1, numbers(2, PAGES)
    add(session, "links", links, "src", "dst")
    add(session, "target", target, "k")
    session.from_pydict({"val": [DAMPING]}, name="damping")
    return links, target


def importance(links: jax.Array, damping: jax.Array, target: jax.Array) -> jax.Array:
    shares = links / links.sum(axis=1, keepdims=True)
    rank = jnp.linalg.solve(jnp.eye(PAGES) - damping * shares.T, jnp.full(PAGES, (1 - damping) / PAGES))
    return jnp.sum(target * rank**2)


@pytest.mark.parametrize("which", ["WHERE r.n = 220", "WHERE r.n = (SELECT MAX(n) FROM r)"])
def test_page_rank_by_damping_and_by_links(session: SessionContext, which: str) -> None:
    links, target = add_pages(session)
    by_links, by_damping = jax.grad(importance, (0, 1))(jnp.array(links), jnp.array(DAMPING), jnp.array(target))
    fixed(session)
    found = slopes(session, rank(220, which), "val", "links", "src", "dst")
    np.testing.assert_allclose(found, by_links.ravel(), rtol=RTOL, atol=1e-12)
    found = query(
        session, f"WITH RECURSIVE {rank(220, which)} SELECT grad((SELECT l FROM loss), val) AS d FROM damping"
    )
    np.testing.assert_allclose(found["d"].to_numpy(), [by_damping], rtol=RTOL)


def test_the_start_far_away(session: SessionContext) -> None:
    """Through all iterations the start still has a part, and at the fixed point it has none."""
    session.from_pydict({"x": [3.0]}, name="p")
    session.from_pydict({"val": [1e6]}, name="start")
    ctes = """r AS (SELECT 0 AS n, val FROM start
            UNION ALL SELECT n + 1, 0.5 * (val + x / val) FROM p CROSS JOIN r WHERE n < 40),
        loss AS (SELECT SUM(val) AS l FROM r WHERE n = 40)"""
    fixed(session)
    found = query(session, f"WITH RECURSIVE {ctes} SELECT grad((SELECT l FROM loss), x) AS d FROM p")["d"].to_pylist()
    np.testing.assert_allclose(found, [0.5 / 3.0**0.5], rtol=1e-14)
    found = query(session, f"WITH RECURSIVE {ctes} SELECT grad((SELECT l FROM loss), val) AS d FROM start")[
        "d"
    ].to_pylist()
    assert found == [0.0]


# Value iteration

STATES, ACTIONS, DISCOUNT = 6, 3, 0.9


def test_value_iteration_by_rewards(session: SessionContext) -> None:
    reward, start = numbers(3, STATES, ACTIONS), numbers(4, STATES)
    to = np.exp(numbers(5, STATES, ACTIONS, STATES))
    to /= to.sum(axis=2, keepdims=True)
    add(session, "reward", reward, "s", "a")
    add(session, "moves", to, "s", "a", "t")
    add(session, "start", start, "s")
    ctes = f"""r AS (SELECT 0 AS n, s, 0.0 AS val FROM start
            UNION ALL SELECT * FROM (
            WITH q AS (SELECT r.n, m.s, m.a, SUM(m.val * r.val) AS val FROM r JOIN moves m ON m.t = r.s
                WHERE r.n < 400 GROUP BY r.n, m.s, m.a)
            SELECT q.n + 1, q.s, MAX(reward.val + {DISCOUNT} * q.val)
            FROM q JOIN reward ON reward.s = q.s AND reward.a = q.a GROUP BY q.n, q.s)),
        loss AS (SELECT SUM(start.val * r.val) AS l FROM r JOIN start ON start.s = r.s WHERE n = 400)"""
    fixed(session)
    found = slopes(session, ctes, "val", "reward", "s", "a").reshape(STATES, ACTIONS)
    value = np.zeros(STATES)
    for _ in range(400):
        value = (reward + DISCOUNT * to @ value).max(axis=1)
    policy = (reward + DISCOUNT * to @ value).argmax(axis=1)
    chosen = to[np.arange(STATES), policy]
    visits = np.linalg.solve(np.eye(STATES) - DISCOUNT * chosen.T, start)
    expected = np.zeros_like(reward)
    expected[np.arange(STATES), policy] = visits
    np.testing.assert_allclose(found, expected, rtol=RTOL, atol=1e-12)


# Sinkhorn: the potentials are determined up to a constant, of which the plan is no function

SOURCES, SINKS, EPS = 4, 5, 0.5


def test_sinkhorn_by_costs(session: SessionContext) -> None:
    cost = np.abs(numbers(6, SOURCES, SINKS))
    supply, demand = np.full(SOURCES, 1 / SOURCES), np.arange(1, SINKS + 1) / 15
    for name, values, axes in [("cost", cost, ("i", "j")), ("supply", supply, ("i",)), ("demand", demand, ("j",))]:
        add(session, name, values, *axes)
    ctes = f"""r AS (SELECT 0 AS n, i, 0.0 AS val FROM supply
            UNION ALL SELECT * FROM (
            WITH g AS (SELECT r.n, c.j, {EPS} * (ln(MAX(d.val)) - ln(SUM(exp((r.val - c.val) / {EPS})))) AS val
                FROM r JOIN cost c ON c.i = r.i JOIN demand d ON d.j = c.j WHERE r.n < 200 GROUP BY r.n, c.j)
            SELECT g.n + 1, c.i, {EPS} * (ln(MAX(s.val)) - ln(SUM(exp((g.val - c.val) / {EPS}))))
            FROM g JOIN cost c ON c.j = g.j JOIN supply s ON s.i = c.i GROUP BY g.n, c.i)),
        f AS (SELECT i, val FROM r WHERE n = 200),
        g AS (SELECT c.j, {EPS} * (ln(MAX(d.val)) - ln(SUM(exp((f.val - c.val) / {EPS})))) AS val
            FROM f JOIN cost c ON c.i = f.i JOIN demand d ON d.j = c.j GROUP BY c.j),
        loss AS (SELECT SUM(exp((f.val + g.val - c.val) / {EPS}) * c.val) AS l
            FROM cost c JOIN f ON f.i = c.i JOIN g ON g.j = c.j)"""

    def transport(cost: jax.Array) -> jax.Array:
        def other(f: jax.Array) -> jax.Array:
            return EPS * (jnp.log(demand) - jnp.log(jnp.exp((f[:, None] - cost) / EPS).sum(axis=0)))

        def step(f: jax.Array, _: None) -> tuple[jax.Array, None]:
            return EPS * (jnp.log(supply) - jnp.log(jnp.exp((other(f)[None, :] - cost) / EPS).sum(axis=1))), None

        f, _ = jax.lax.scan(step, jnp.zeros(SOURCES), None, length=200)
        return jnp.sum(jnp.exp((f[:, None] + other(f)[None, :] - cost) / EPS) * cost)

    fixed(session)
    found = slopes(session, ctes, "val", "cost", "i", "j")
    np.testing.assert_allclose(found, jax.grad(transport)(jnp.array(cost)).ravel(), rtol=RTOL, atol=1e-12)


# A market and a deep equilibrium layer

GOODS = 5


def test_a_market_by_its_parameters(session: SessionContext) -> None:
    wish, cross = 3 + np.abs(numbers(7, GOODS)), 0.1 * numbers(8, GOODS, GOODS) + np.eye(GOODS)
    add(session, "wish", wish, "good")
    add(session, "effect", cross, "good", "of")
    ctes = """r AS (SELECT 0 AS n, good, 1.0 AS price FROM wish
            UNION ALL SELECT * FROM (
            WITH demand AS (SELECT r.n, e.good, SUM(e.val * r.price) AS less,
                    MAX(CASE WHEN e.of = e.good THEN r.price END) AS price
                FROM r JOIN effect e ON e.of = r.good WHERE r.n < 150 GROUP BY r.n, e.good)
            SELECT n + 1, d.good, price + 0.2 * (w.val - less - ln(1 + exp(price)))
            FROM demand d JOIN wish w ON w.good = d.good)),
        loss AS (SELECT SUM(price * price) AS l FROM r WHERE n = 150)"""

    def prices(wish: jax.Array, cross: jax.Array) -> jax.Array:
        def step(price: jax.Array, _: None) -> tuple[jax.Array, None]:
            return price + 0.2 * (wish - cross @ price - jnp.log(1 + jnp.exp(price))), None

        price, _ = jax.lax.scan(step, jnp.ones(GOODS), None, length=300)
        return jnp.sum(price**2)

    by_wish, by_cross = jax.grad(prices, (0, 1))(jnp.array(wish), jnp.array(cross))
    fixed(session)
    np.testing.assert_allclose(slopes(session, ctes, "val", "wish", "good"), by_wish, rtol=RTOL)
    np.testing.assert_allclose(slopes(session, ctes, "val", "effect", "good", "of"), by_cross.ravel(), rtol=RTOL)


SAMPLES, UNITS = 3, 4


def test_a_deep_equilibrium_layer(session: SessionContext) -> None:
    weights, x, y = 0.3 * numbers(9, UNITS, UNITS), numbers(10, SAMPLES, UNITS), numbers(11, SAMPLES, UNITS)
    add(session, "w", weights, "o", "i")
    add(session, "x", x, "s", "u")
    add(session, "y", y, "s", "u")
    ctes = """z AS (SELECT 0 AS n, s, u, 0.0 AS val FROM x
            UNION ALL SELECT * FROM (
            WITH a AS (SELECT z.n, z.s, w.o AS u, SUM(w.val * z.val) AS val FROM z JOIN w ON w.i = z.u
                WHERE z.n < 80 GROUP BY z.n, z.s, w.o)
            SELECT a.n + 1, a.s, a.u, tanh(a.val + x.val) FROM a JOIN x ON x.s = a.s AND x.u = a.u)),
        loss AS (SELECT SUM(power(z.val - y.val, 2)) AS l FROM z JOIN y ON y.s = z.s AND y.u = z.u WHERE z.n = 80)"""

    def layer(weights: jax.Array, x: jax.Array) -> jax.Array:
        z, _ = jax.lax.scan(lambda z, _: (jnp.tanh(z @ weights.T + x), None), jnp.zeros_like(x), None, length=200)
        return jnp.sum((z - y) ** 2)

    by_weights, by_x = jax.grad(layer, (0, 1))(jnp.array(weights), jnp.array(x))
    fixed(session, "z: 1e-12")
    np.testing.assert_allclose(slopes(session, ctes, "val", "w", "o", "i"), by_weights.ravel(), rtol=RTOL)
    np.testing.assert_allclose(slopes(session, ctes, "val", "x", "s", "u"), by_x.ravel(), rtol=RTOL)


# Kepler's equation, for each row its own

STEP = {
    "as it is": "mean + ecc * sin(val)",
    "by Newton's method": "val - (val - ecc * sin(val) - mean) / grad(val - ecc * sin(val) - mean, val)",
}


@pytest.mark.parametrize("key", ["k, ", ""])
@pytest.mark.parametrize("step", STEP)
def test_kepler(session: SessionContext, step: str, key: str) -> None:
    """A column that each step passes on as it is has the derivative of the limit by it, be it the key or beside one."""
    ecc, mean = np.array([0.1, 0.3, 0.5, 0.35]), np.array([0.4, 1.0, 2.0, 3.0])
    session.from_pydict({"k": [3, 1, 0, 2], "ecc": ecc.tolist(), "mean": mean.tolist()}, name="orbits")
    ctes = f"""r AS (SELECT 0 AS n, {key}mean, ecc, mean AS val FROM orbits
            UNION ALL SELECT n + 1, {key}mean, ecc, {STEP[step]} FROM r WHERE n < 60),
        loss AS (SELECT SUM(val * mean) AS l FROM r WHERE n = 60)"""
    anomaly = mean.copy()
    for _ in range(200):
        anomaly = mean + ecc * np.sin(anomaly)
    slope = 1 / (1 - ecc * np.cos(anomaly))
    fixed(session)
    found = slopes(session, ctes, "ecc", "orbits", "mean")
    np.testing.assert_allclose(found, mean * np.sin(anomaly) * slope, rtol=RTOL)
    # The value reads it too, outside.
    found = slopes(session, ctes, "mean", "orbits", "mean")
    np.testing.assert_allclose(found, anomaly + mean * slope, rtol=RTOL)


def test_rows_without_a_value(session: SessionContext) -> None:
    session.from_arrow(pa.table({"k": [0, 1, 2], "ecc": pa.array([0.2, None, 0.5])}), name="orbits")
    ctes = """r AS (SELECT 0 AS n, k, ecc, 1.0 AS val FROM orbits
            UNION ALL SELECT n + 1, k, ecc, 1.0 + ecc * sin(val) FROM r WHERE n < 60),
        loss AS (SELECT SUM(val) AS l FROM r WHERE n = 60)"""
    unrolled = slopes(session, ctes, "ecc", "orbits", "k")
    fixed(session, "1e-12")
    found = slopes(session, ctes, "ecc", "orbits", "k")
    assert np.isnan(found).tolist() == [False, True, False]
    np.testing.assert_allclose(found, unrolled, rtol=1e-11)


def test_a_parameter_that_an_aggregate_passes_on(session: SessionContext) -> None:
    session.from_pydict({"k": [0, 1], "a": [2.0, 3.0]}, name="t")
    ctes = """r AS (SELECT 0 AS n, k, a, a AS val FROM t
            UNION ALL SELECT n + 1, k, MAX(a), 0.5 * (SUM(val) + MAX(a) / SUM(val)) FROM r WHERE n < 30 GROUP BY n, k),
        loss AS (SELECT SUM(val) AS l FROM r WHERE n = 30)"""
    fixed(session)
    np.testing.assert_allclose(slopes(session, ctes, "a", "t", "k"), 0.5 / np.sqrt([2.0, 3.0]), rtol=1e-12)


def test_a_condition_that_ends_the_iterations(session: SessionContext) -> None:
    """The last step is the first that moves all rows by less than a tolerance."""
    session.from_pydict({"k": [0, 1, 2], "a": [0.2, 0.5, 0.9]}, name="t")
    ctes = """r AS (SELECT 0 AS n, k, 1.0 AS val, true AS goes_on FROM t
            UNION ALL SELECT * FROM (
            WITH next AS (SELECT r.n, r.k, r.val, cos(t.a * r.val) AS further
                    FROM r JOIN t ON t.k = r.k WHERE r.goes_on),
                moved AS (SELECT MAX(abs(further - val)) AS most FROM next)
            SELECT n + 1, k, further, most > 1e-14 AS goes_on FROM moved CROSS JOIN next)),
        loss AS (SELECT SUM(val) AS l FROM r WHERE NOT goes_on)"""
    fixed(session, "1e-12")
    found = slopes(session, ctes, "a", "t", "k")
    a, val = np.array([0.2, 0.5, 0.9]), np.ones(3)
    for _ in range(2000):
        val = np.cos(a * val)
    np.testing.assert_allclose(found, -np.sin(a * val) * val / (1 + a * np.sin(a * val)), rtol=1e-11)


# What is refused


def test_what_is_refused(session: SessionContext) -> None:
    session.from_pydict({"k": [0, 1, 2], "a": [0.2, 0.5, 0.9]}, name="t")
    session.from_pydict({"c": [0.5]}, name="p")
    fixed(session, "1e-9")

    def refused(step: str, says: str, *, first: str = "1.0", where: str = "r.n < 50", read: str = "n = 50") -> None:
        ctes = f"""r AS (SELECT 0 AS n, k, {first} AS val FROM t
                UNION ALL SELECT r.n + 1, r.k, {step} FROM r JOIN t ON t.k = r.k WHERE {where}),
            loss AS (SELECT SUM(val) AS l FROM r WHERE {read})"""
        with pytest.raises(xql_ffi.UnsupportedRelationError, match=says):
            slopes(session, ctes, "a", "t", "k")

    refused("r.val + t.a", r"has moved val by")
    refused("2 * r.val * t.a / t.a", r"do not converge: .* are 1\.845e19 times as large as after 64", first="0.0 * a")
    converging = "cos(t.a * r.val)"
    refused(converging, r"last step, to iteration 5, has moved val by \d\.\d+e-\d+", where="r.n < 5", read="n = 5")
    refused(converging, r"reads iteration 49 of 50", read="n >= 49")
    refused(converging, r"its first rows are its last ones", where="r.n < 0", read="n = 0")
    refused(converging, r"last iteration has 2 rows, and the one before 3", where="r.n < 50 - CAST(t.k > 1 AS INT)")
    # Not of the limit, as they are where nothing asks for it.
    fixed(session, "other: 1e-9")
    ctes = """r AS (SELECT 0 AS n, k, 1.0 AS val FROM t
            UNION ALL SELECT r.n + 1, r.k, r.val + t.a FROM r JOIN t ON t.k = r.k WHERE r.n < 5),
        loss AS (SELECT SUM(val) AS l FROM r WHERE n = 5)"""
    np.testing.assert_allclose(slopes(session, ctes, "a", "t", "k"), [5.0, 5.0, 5.0])


def test_a_limit_that_is_a_function_of_the_start(session: SessionContext) -> None:
    session.from_pydict({"k": [0, 1, 2], "a": [0.2, 0.5, 0.9]}, name="t")
    ctes = """r AS (SELECT 0 AS n, k, a AS val FROM t
            UNION ALL SELECT r.n + 1, r.k, 0.5 * r.val + 0.5 * m
                FROM (SELECT AVG(val) AS m FROM r) AS m CROSS JOIN r WHERE r.n < 80),
        loss AS (SELECT SUM(val * val) AS l FROM r WHERE n = 80)"""
    fixed(session, "1e-9")
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"do not converge: after 256 turns .* are 1\.000 times"):
        slopes(session, ctes, "a", "t", "k")


def test_rows_that_cannot_be_told_apart(session: SessionContext) -> None:
    session.from_pydict({"c": [0.5]}, name="p")
    session.from_pydict({"a": [0.5, 0.5]}, name="t")
    ctes = """r AS (SELECT 0 AS n, a AS val FROM t
            UNION ALL SELECT n + 1, cos(c * val) FROM p CROSS JOIN r WHERE n < 60),
        loss AS (SELECT SUM(val) AS l FROM r WHERE n = 60)"""
    fixed(session, "1e-9")
    with pytest.raises(xql_ffi.UnsupportedRelationError, match="no column tells its rows apart"):
        slopes(session, ctes, "c", "p", "c")


def test_forward_mode_is_refused(session: SessionContext) -> None:
    session.from_pydict({"c": [0.5]}, name="p")
    newton = """WITH RECURSIVE r AS (SELECT 0 AS n, c, 1.0 AS val FROM p
        UNION ALL SELECT n + 1, c, cos(c * val) FROM r WHERE n < 60)"""
    unrolled = query(session, f"{newton} SELECT grad(val, c) AS d FROM r WHERE n = 60")["d"].to_pylist()
    fixed(session, "r: 1e-9")
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=re.escape("grad((SELECT ... FROM r ...), ...)")):
        query(session, f"{newton} SELECT grad(val, c) AS d FROM r WHERE n = 60")
    loss = "loss AS (SELECT SUM(val) AS l FROM r WHERE n = 60)"
    found = query(session, f"{newton}, {loss} SELECT grad((SELECT l FROM loss), c) AS d FROM p")
    np.testing.assert_allclose(found["d"].to_pylist(), unrolled, rtol=1e-9)


def test_the_option(session: SessionContext) -> None:
    for wrong in ["r", "1", "-1", "r: 0", "1e-3, 1e-4"]:
        with pytest.raises(Exception, match=r"xql\.fixed_point is a tolerance between 0 and 1"):
            fixed(session, wrong)
