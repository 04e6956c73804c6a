"""Gradients by row through the iterations of recursive queries, against JAX in double precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datafusion import SessionContext

from by_row.test_named_cases import Array, add, assert_gradient, numbers
from support.cases import query

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


def gradient(ctes: str, table: str, *axes: str) -> str:
    return f"WITH RECURSIVE {ctes} SELECT {', '.join(axes)}, grad((SELECT l FROM loss), val) AS d FROM {table}"


# A field with neighbours: the model of Lorenz (1996), by Runge-Kutta steps

CELLS, STEPS, STEP = 40, 12, 0.05


def stage(name: str, before: str, at: str, passed: list[str]) -> str:
    """The slopes of a field beside the columns that are passed on. A stencil says which cells have which role."""
    roles = {"a": "ahead", "b": "behind", "t": "twice", "h": "here"}
    read = ", ".join(f"SUM({at}) FILTER (WHERE s.role = '{role}') AS {key}" for key, role in roles.items())
    kept = "".join(f", SUM(q.{column}) FILTER (WHERE s.role = 'here') AS {column}" for column in passed)
    return f"""{name}_n AS (SELECT q.step, s.cell, {read}{kept}
            FROM {before} q JOIN stencil s ON s.neighbour = q.cell GROUP BY q.step, s.cell),
        {name} AS (SELECT step, cell, {", ".join(["(a - t) * b - h + 8 AS " + name, *passed])} FROM {name}_n)"""


def lorenz(steps: int, first: str) -> str:
    return f"""r AS (SELECT 0 AS step, cell, val FROM {first}
        UNION ALL SELECT * FROM (
        WITH k0 AS (SELECT step, cell, val AS x FROM r WHERE step < {steps}),
        {stage("k1", "k0", "x", ["x"])},
        {stage("k2", "k1", f"x + {STEP / 2} * k1", ["x", "k1"])},
        {stage("k3", "k2", f"x + {STEP / 2} * k2", ["x", "k1", "k2"])},
        {stage("k4", "k3", f"x + {STEP} * k3", ["x", "k1", "k2", "k3"])}
        SELECT step + 1, cell, x + {STEP} / 6 * (k1 + 2 * k2 + 2 * k3 + k4) FROM k4) q)"""


def runge_kutta(x: jax.Array) -> jax.Array:
    def slope(x: jax.Array) -> jax.Array:
        return (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8

    k1 = slope(x)
    k2 = slope(x + STEP / 2 * k1)
    k3 = slope(x + STEP / 2 * k2)
    return x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + STEP * k3))


def add_stencil(session: SessionContext, cells: int) -> None:
    shifts = {"ahead": 1, "behind": -1, "twice": -2, "here": 0}
    rows = [(cell, role, (cell + shift) % cells) for cell in range(cells) for role, shift in shifts.items()]
    session.from_pydict(
        {name: [row[n] for row in rows] for n, name in enumerate(("cell", "role", "neighbour"))}, name="stencil"
    )


def test_the_field_that_a_model_starts_with(session: SessionContext) -> None:
    field, observed, background = 8 + numbers(1, CELLS), 8 + numbers(2, STEPS + 1, CELLS), 8 + numbers(3, CELLS)
    for name, values, axes in [
        ("field", field, ["cell"]),
        ("background", background, ["cell"]),
        ("o", observed, ["step", "cell"]),
    ]:
        add(session, name, values, *axes)
    add_stencil(session, CELLS)
    # What is observed every fourth step, and what was known before.
    ctes = f"""{lorenz(STEPS, "field")},
        misfit AS (SELECT SUM(power(r.val - o.val, 2)) AS l
            FROM r JOIN o ON o.step = r.step AND o.cell = r.cell WHERE r.step % 4 = 0),
        before AS (SELECT SUM(power(field.val - background.val, 2)) AS l
            FROM field JOIN background ON field.cell = background.cell),
        loss AS (SELECT misfit.l / 2 + before.l / 4 AS l FROM misfit CROSS JOIN before)"""

    def cost(field: jax.Array) -> jax.Array:
        total, x = jnp.sum((field - background) ** 2) / 4, field
        for step in range(STEPS + 1):
            if step % 4 == 0:
                total += jnp.sum((x - observed[step]) ** 2) / 2
            x = runge_kutta(x)
        return total

    assert_gradient(session, gradient(ctes, "field", "cell"), jax.grad(cost)(field), ["cell"])


def test_heat_in_a_rod(session: SessionContext) -> None:
    """By the temperatures at the start and by the conductivity between cells, of the last step alone."""
    cells, steps = 12, 15
    start, conductivity = numbers(4, cells), 0.1 + 0.05 * np.abs(numbers(5, cells - 1))
    add(session, "start", start, "cell")
    add(session, "conductivity", conductivity, "cell")
    ctes = f"""r AS (SELECT 0 AS step, cell, val FROM start
        UNION ALL SELECT * FROM (
            WITH flow AS (SELECT a.step, a.cell, c.val * (b.val - a.val) AS val
                    FROM r a JOIN r b ON b.step = a.step AND b.cell = a.cell + 1
                    JOIN conductivity c ON c.cell = a.cell),
                change AS (SELECT step, cell, val FROM flow UNION ALL SELECT step, cell + 1, -val FROM flow
                    UNION ALL SELECT step, cell, val FROM r)
            SELECT step + 1, cell, SUM(val) FROM change WHERE step < {steps} GROUP BY step, cell) q),
        loss AS (SELECT SUM(val * val * cell) AS l FROM r WHERE step = {steps})"""

    def loss(start: jax.Array, conductivity: jax.Array) -> jax.Array:
        x = start
        for _ in range(steps):
            flow = conductivity * (x[1:] - x[:-1])
            x = x.at[:-1].add(flow).at[1:].add(-flow)
        return jnp.sum(x * x * jnp.arange(cells))

    by_start, by_conductivity = jax.grad(loss, argnums=(0, 1))(start, conductivity)
    assert_gradient(session, gradient(ctes, "start", "cell"), by_start, ["cell"])
    assert_gradient(session, gradient(ctes, "conductivity", "cell"), by_conductivity, ["cell"])


def recurrent_network(session: SessionContext) -> tuple[str, list[jax.Array]]:
    """Adds the tables of a recurrent network. Its loss as CTEs, and the gradients by `x`, `w` and `u` in JAX."""
    samples, times, inputs, units = 3, 6, 2, 4
    data, target = numbers(6, samples, times, inputs), numbers(7, samples, units)
    weights, recurrent = numbers(8, inputs, units) / 2, numbers(9, units, units) / 2
    add(session, "x", data, "s", "t", "i")
    add(session, "y", target, "s", "o")
    add(session, "w", weights, "i", "o")
    add(session, "u", recurrent, "i", "o")
    ctes = f"""h AS (SELECT 0 AS t, s, o, CAST(0 AS DOUBLE) AS val FROM y
        UNION ALL SELECT * FROM (
            WITH part AS (SELECT h.t, h.s, u.o, h.val * u.val AS val FROM h JOIN u ON u.i = h.o
                UNION ALL SELECT x.t, x.s, w.o, x.val * w.val FROM x JOIN w ON w.i = x.i
                    JOIN (SELECT t, s FROM h WHERE o = 0) now ON now.t = x.t AND now.s = x.s)
            SELECT t + 1, s, o, tanh(SUM(val)) FROM part WHERE t < {times} GROUP BY t, s, o) q),
        loss AS (SELECT AVG(power(h.val - y.val, 2)) AS l
            FROM h JOIN y ON y.s = h.s AND y.o = h.o WHERE h.t = {times})"""

    def loss(data: jax.Array, weights: jax.Array, recurrent: jax.Array) -> jax.Array:
        h = jnp.zeros((samples, units))
        for t in range(times):
            h = jnp.tanh(data[:, t] @ weights + h @ recurrent)
        return jnp.mean((h - target) ** 2)

    return ctes, list(jax.grad(loss, argnums=(0, 1, 2))(data, weights, recurrent))


def test_a_recurrent_network(session: SessionContext) -> None:
    ctes, (by_data, by_weights, by_recurrent) = recurrent_network(session)
    assert_gradient(session, gradient(ctes, "w", "i", "o"), by_weights, ["i", "o"])
    assert_gradient(session, gradient(ctes, "u", "i", "o"), by_recurrent, ["i", "o"])
    assert_gradient(session, gradient(ctes, "x", "s", "t", "i"), by_data, ["s", "t", "i"])


def test_a_hidden_markov_model(session: SessionContext) -> None:
    """The likelihood of what was seen, by the logarithms of transitions and emissions."""
    states, kinds = 3, 4
    seen = [0, 2, 1, 3, 3, 0, 2]
    transitions, emissions = numbers(10, states, states), numbers(11, states, kinds)
    add(session, "transitions", transitions, "i", "o")
    add(session, "emissions", emissions, "o", "kind")
    session.from_pydict({"t": list(range(len(seen))), "kind": seen}, name="seen")
    ctes = f"""a AS (SELECT s.t, e.o, e.val FROM emissions e JOIN seen s ON s.kind = e.kind WHERE s.t = 0
        UNION ALL SELECT * FROM (
            WITH paths AS (SELECT a.t, k.o, a.val + k.val AS val FROM a JOIN transitions k ON k.i = a.o),
                most AS (SELECT t, o, MAX(val) AS val FROM paths GROUP BY t, o),
                total AS (SELECT p.t, p.o, m.val + ln(SUM(exp(p.val - m.val))) AS val
                    FROM paths p JOIN most m ON m.t = p.t AND m.o = p.o GROUP BY p.t, p.o, m.val)
            SELECT total.t + 1, total.o, total.val + e.val
            FROM total JOIN seen s ON s.t = total.t + 1 JOIN emissions e ON e.kind = s.kind AND e.o = total.o) q),
        loss AS (SELECT -ln(SUM(exp(val))) AS l FROM a WHERE t = {len(seen) - 1})"""

    def loss(transitions: jax.Array, emissions: jax.Array) -> jax.Array:
        a = emissions[:, seen[0]]
        for kind in seen[1:]:
            a = jax.nn.logsumexp(a[:, None] + transitions, axis=0) + emissions[:, kind]
        return -jax.nn.logsumexp(a)

    by_transitions, by_emissions = jax.grad(loss, argnums=(0, 1))(transitions, emissions)
    assert_gradient(session, gradient(ctes, "transitions", "i", "o"), by_transitions, ["i", "o"])
    assert_gradient(session, gradient(ctes, "emissions", "o", "kind"), by_emissions, ["o", "kind"])


def test_the_values_of_states(session: SessionContext) -> None:
    """Soft value iteration, by rewards."""
    states, actions, steps = 4, 2, 8
    rewards = numbers(12, states, actions)
    chances = np.abs(numbers(13, states, actions, states))
    chances /= chances.sum(axis=2, keepdims=True)
    add(session, "rewards", rewards, "s", "a")
    add(session, "chances", chances, "s", "a", "n")
    ctes = f"""v AS (SELECT DISTINCT 0 AS step, s, CAST(0 AS DOUBLE) AS val FROM chances
        UNION ALL SELECT * FROM (
            WITH q AS (SELECT v.step, c.s, c.a, SUM(c.val * v.val) AS val
                FROM v JOIN chances c ON c.n = v.s GROUP BY v.step, c.s, c.a)
            SELECT q.step + 1, q.s, ln(SUM(exp(rewards.val + 0.9 * q.val)))
            FROM q JOIN rewards ON rewards.s = q.s AND rewards.a = q.a WHERE q.step < {steps} GROUP BY q.step, q.s) n),
        loss AS (SELECT SUM(val * (s + 1)) AS l FROM v WHERE step = {steps})"""

    def loss(rewards: jax.Array) -> jax.Array:
        v = jnp.zeros(states)
        for _ in range(steps):
            v = jax.nn.logsumexp(rewards + 0.9 * chances @ v, axis=1)
        return jnp.sum(v * jnp.arange(1, states + 1))

    assert_gradient(session, gradient(ctes, "rewards", "s", "a"), jax.grad(loss)(rewards), ["s", "a"])


def test_parts_of_parts(session: SessionContext) -> None:
    """What everything costs is what its parts cost, level by level, until there are no more."""
    whole = [0, 0, 1, 1, 2, 3, 3, 2]
    amounts, prices = np.abs(numbers(14, len(whole))) + 0.5, np.abs(numbers(15, len(whole) + 1))
    session.from_pydict({"whole": whole, "part": list(range(1, len(whole) + 1)), "val": amounts.tolist()}, name="parts")
    add(session, "prices", prices, "part")
    ctes = """needed AS (SELECT part, CAST(1 AS DOUBLE) AS val FROM prices WHERE part = 0
        UNION ALL SELECT p.part, n.val * p.val FROM needed n JOIN parts p ON p.whole = n.part),
        loss AS (SELECT SUM(needed.val * needed.val * prices.val) AS l
            FROM needed JOIN prices ON prices.part = needed.part)"""

    def loss(amounts: jax.Array, prices: jax.Array) -> jax.Array:
        needed = [jnp.ones(())]
        for part, above in enumerate(whole):
            needed.append(needed[above] * amounts[part])
        return jnp.sum(jnp.stack(needed) ** 2 * prices)

    by_amounts, by_prices = jax.grad(loss, argnums=(0, 1))(amounts, prices)
    found = query(session, gradient(ctes, "parts", "part")).to_pylist()
    found.sort(key=lambda row: row["part"])
    np.testing.assert_allclose([row["d"] for row in found], by_amounts, rtol=1e-12)
    assert_gradient(session, gradient(ctes, "prices", "part"), by_prices, ["part"])


def test_newtons_method_in_every_row(session: SessionContext) -> None:
    """Rows stop once they are near enough, each after steps of its own."""
    values = np.array([0.3, 2.0, 50.0, 1e-3, 1.0])
    add(session, "a", values, "k")
    ctes = """r AS (SELECT 0 AS step, k, val AS a, CAST(1 AS DOUBLE) AS x FROM a
        UNION ALL SELECT step + 1, k, a, 0.5 * (x + a / x) FROM r WHERE abs(x * x - a) > 1e-12 * a),
        last AS (SELECT k, MAX(step) AS step FROM r GROUP BY k),
        loss AS (SELECT SUM(r.x * (r.k + 1)) AS l FROM r JOIN last ON r.k = last.k AND r.step = last.step)"""
    beside = "(SELECT grad(1.0, x) FROM (SELECT 1.0 AS x)) AS q"
    steps = query(session, f"WITH RECURSIVE {ctes} SELECT COUNT(DISTINCT step) AS n FROM last CROSS JOIN {beside}")
    assert steps.column("n").to_pylist()[0] > 2
    expected = np.arange(1, 6) / (2 * np.sqrt(values))
    # The row that starts at its root does not take a step, and does not depend on what it is the root of.
    expected[4] = 0
    found = sorted((row["k"], row["d"]) for row in query(session, gradient(ctes, "a", "k")).to_pylist())
    np.testing.assert_allclose([d for _, d in found], expected, rtol=1e-5, atol=1e-9)


def test_power_iteration(session: SessionContext) -> None:
    size, steps = 4, 10
    matrix, start = np.abs(numbers(16, size, size)), np.abs(numbers(17, size)) + 0.5
    add(session, "m", matrix, "i", "o")
    add(session, "b", start, "i")
    ctes = f"""r AS (SELECT 0 AS step, i, val FROM b
        UNION ALL SELECT * FROM (
            WITH p AS (SELECT r.step, m.o, SUM(m.val * r.val) AS val
                FROM m JOIN r ON r.i = m.i WHERE r.step < {steps} GROUP BY r.step, m.o)
            SELECT step + 1, o, val / sqrt(SUM(val * val) OVER (PARTITION BY step)) FROM p) q),
        loss AS (SELECT SUM(val * val * val * (i + 1)) AS l FROM r WHERE step = {steps})"""

    def loss(matrix: jax.Array, start: jax.Array) -> jax.Array:
        x = start
        for _ in range(steps):
            x = x @ matrix
            x = x / jnp.linalg.norm(x)
        return jnp.sum(x**3 * jnp.arange(1, size + 1))

    by_matrix, by_start = jax.grad(loss, argnums=(0, 1))(matrix, start)
    assert_gradient(session, gradient(ctes, "m", "i", "o"), by_matrix, ["i", "o"])
    assert_gradient(session, gradient(ctes, "b", "i"), by_start, ["i"])


def test_the_loss_after_training(session: SessionContext) -> None:
    """By the data: the iterations contain gradients themselves."""
    samples, inputs, steps = 6, 3, 5
    data, target = numbers(18, samples, inputs), numbers(19, samples)
    add(session, "x", data, "s", "i")
    add(session, "y", target, "s")
    ctes = f"""w AS (SELECT DISTINCT 0 AS step, i, CAST(0.1 AS DOUBLE) AS val FROM x
        UNION ALL SELECT * FROM (
            WITH p AS (SELECT x.s, tanh(SUM(x.val * w.val)) AS val FROM x JOIN w ON w.i = x.i GROUP BY x.s),
                inner_loss AS (SELECT AVG(power(p.val - y.val, 2)) AS l FROM p JOIN y ON y.s = p.s)
            SELECT step + 1, i, val - 0.3 * grad((SELECT l FROM inner_loss), val) FROM w WHERE step < {steps}) q),
        loss AS (SELECT SUM(val * val * (i + 1)) AS l FROM w WHERE step = {steps})"""

    def loss(data: jax.Array, target: jax.Array) -> jax.Array:
        w = jnp.full(inputs, 0.1)
        for _ in range(steps):
            w -= 0.3 * jax.grad(lambda w: jnp.mean((jnp.tanh(data @ w) - target) ** 2))(w)
        return jnp.sum(w * w * jnp.arange(1, inputs + 1))

    by_data, by_target = jax.grad(loss, argnums=(0, 1))(data, target)
    assert_gradient(session, gradient(ctes, "x", "s", "i"), by_data, ["s", "i"])
    assert_gradient(session, gradient(ctes, "y", "s"), by_target, ["s"])


@pytest.mark.parametrize(
    "step",
    [
        "SELECT step + 1, k, val * CASE WHEN random() < 0.5 THEN 2 ELSE 0.5 END FROM r WHERE step < 4",
        "SELECT step + 1, k, val * 1.5 FROM r WHERE step < 4 AND random() < 0.8",
        # The static term is never NULL here, so that its type has to change.
        "SELECT CASE WHEN step < 9 THEN step + 1 END, k, val * 1.5 FROM r WHERE step < 4 AND random() < 0.8",
        "SELECT * FROM (SELECT step + 1, k, val * 1.5 FROM r WHERE step < 4 LIMIT 7) q",
    ],
)
def test_what_an_iteration_draws_is_drawn_once(session: SessionContext, step: str) -> None:
    """A linear function of what it starts with is the sum of its gradient times that."""
    add(session, "w", np.arange(1.0, 11.0), "k")
    statement = f"""WITH RECURSIVE r AS (SELECT 0 AS step, k, val FROM w UNION ALL {step}),
        loss AS (SELECT SUM(val) AS l FROM r WHERE step = 2),
        g AS (SELECT val, grad((SELECT l FROM loss), val) AS d, (SELECT l FROM loss) AS l FROM w)
        SELECT SUM(d * val) - MAX(l) AS zero, MAX(l) AS l FROM g"""
    for _ in range(5):
        (row,) = query(session, statement).to_pylist()
        assert row["l"] is None or abs(row["zero"]) < 1e-12 * row["l"]


def test_a_descent_all_of_whose_columns_may_be_null(session: SessionContext) -> None:
    """The steps that a table has kept, from the last of which a training goes on."""
    session.from_pydict({"step": [0, 0], "val": [1.0, 2.0]}, name="kept")
    found = session.sql("""
        WITH RECURSIVE r AS (
            SELECT step, val FROM kept
            UNION ALL
            SELECT step + 1, val - 0.1 * grad((SELECT SUM(val * val * val) FROM r), val) FROM r WHERE step < 3)
        SELECT val FROM r WHERE step = 3 ORDER BY val""").to_pydict()["val"]
    val = np.array([1.0, 2.0])
    for _ in range(3):
        val = val - 0.1 * 3 * val * val
    np.testing.assert_allclose(found, sorted(val), rtol=1e-12)


def test_a_query_that_hides_another_one_of_its_name(session: SessionContext) -> None:
    session.from_pydict({"step": [0], "val": [3.0]}, name="kept")
    session.sql("""
        CREATE VIEW powers AS
        WITH RECURSIVE r AS (SELECT step, val FROM kept UNION ALL SELECT step + 1, val * val FROM r WHERE step < 1)
        SELECT SUM(val) AS l FROM r""").collect()
    found = session.sql("""
        WITH RECURSIVE r AS (
            SELECT step, val FROM kept
            UNION ALL
            SELECT step + 1, val - 0.01 * grad((SELECT SUM(val * val) FROM r), val) + l
            FROM powers CROSS JOIN r WHERE step < 2)
        SELECT val FROM r ORDER BY step""").to_pydict()["val"]
    np.testing.assert_allclose(found, [3.0, 3.0 * 0.98 + 12, (3.0 * 0.98 + 12) * 0.98 + 12], rtol=1e-12)


@pytest.mark.parametrize("last", [True, False])
def test_a_descent_towards_what_is_observed(session: SessionContext, *, last: bool) -> None:
    """Strong-constraint 4D-Var in one statement: the outer recursion moves the field, the inner one is the model."""
    cells, steps, rounds = 6, 4, 5
    field, observed = 8 + numbers(20, cells), 8 + numbers(21, steps + 1, cells)
    add(session, "field", field, "cell")
    add(session, "o", observed, "step", "cell")
    add_stencil(session, cells)
    where = f"r.step = {steps}" if last else "r.step % 2 = 0"
    statement = f"""WITH RECURSIVE a AS (SELECT 0 AS n, cell, val FROM field
        UNION ALL SELECT * FROM (
            WITH RECURSIVE {lorenz(steps, "a")},
                loss AS (SELECT SUM(power(r.val - o.val, 2)) AS l
                    FROM r JOIN o ON o.step = r.step AND o.cell = r.cell WHERE {where})
            SELECT n + 1, cell, val - 0.05 * grad((SELECT l FROM loss), val) FROM a WHERE n < {rounds}) q)
        SELECT cell, val AS d FROM a WHERE n = {rounds}"""

    def cost(field: jax.Array) -> jax.Array:
        total, x = jnp.zeros(()), field
        for step in range(steps + 1):
            if (step == steps) if last else (step % 2 == 0):
                total += jnp.sum((x - observed[step]) ** 2)
            x = runge_kutta(x)
        return total

    expected: Array | jax.Array = field
    for _ in range(rounds):
        expected = expected - 0.05 * jax.grad(cost)(expected)
    assert_gradient(session, statement, expected, ["cell"])


def test_a_hessian_times_a_vector(session: SessionContext) -> None:
    """Forward over reverse, by the cells at the start and by what every step reads."""
    cells, steps = 5, 4
    field, matrix = numbers(60, cells), numbers(61, cells, cells) / 2
    by_field, by_matrix = numbers(62, cells), numbers(63, cells, cells)
    add(session, "field", field, "i")
    add(session, "m", matrix, "i", "o")
    add(session, "vf", by_field, "i")
    add(session, "vm", by_matrix, "i", "o")
    ctes = f"""eps AS (SELECT CAST(0 AS DOUBLE) AS eps),
        f AS (SELECT field.i, field.val + eps.eps * vf.val AS val, eps.eps
            FROM field JOIN vf ON vf.i = field.i CROSS JOIN eps),
        k AS (SELECT m.i, m.o, m.val + eps.eps * vm.val AS val, eps.eps
            FROM m JOIN vm ON vm.i = m.i AND vm.o = m.o CROSS JOIN eps),
        r AS (SELECT 0 AS step, i, val FROM f
            UNION ALL SELECT * FROM (
                SELECT r.step + 1, k.o, tanh(SUM(k.val * r.val)) + 0.1 * k.o
                FROM k JOIN r ON r.i = k.i WHERE r.step < {steps} GROUP BY r.step, k.o) q),
        loss AS (SELECT SUM(r.val * r.val * r.val * f.val) AS l FROM r JOIN f ON f.i = r.i WHERE r.step > 1)"""

    def loss(field: jax.Array, matrix: jax.Array) -> jax.Array:
        x, total = field, jnp.zeros(())
        for step in range(1, steps + 1):
            x = jnp.tanh(x @ matrix) + 0.1 * jnp.arange(cells)
            total = total + (jnp.sum(x**3 * field) if step > 1 else 0.0)
        return total

    both = jax.grad(loss, argnums=(0, 1))
    _, (of_field, of_matrix) = jax.jvp(both, (jnp.asarray(field), jnp.asarray(matrix)), (by_field, by_matrix))
    for table, axes, expected in [("f", ["i"], of_field), ("k", ["i", "o"], of_matrix)]:
        items = ", ".join(axes)
        statement = (
            f"WITH RECURSIVE {ctes} SELECT {items}, grad(grad((SELECT l FROM loss), val), eps) AS d FROM {table}"
        )
        assert_gradient(session, statement, expected, axes)
