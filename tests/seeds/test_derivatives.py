"""Random numbers are constants of their rows: in expressions, relations, recursions and gradients by row.

The references are written in JAX and NumPy with the same numbers.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext, udf
from scipy import stats

import xql_ffi
from support import sessions
from xql_ffi import random

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

Floats = np.typing.NDArray[np.float64]
K = np.arange(6)
X = np.array([0.3, 1.7, -2.4, 0.0, 5.5, -0.9])


def column(ctx: SessionContext, sql: str) -> Floats:
    """The first column, NaN for NULL."""
    return np.array(ctx.sql(sql).to_arrow_table().column(0).to_numpy(), np.float64)


def connect(**tables: Any) -> SessionContext:
    return xql_ffi.register(sessions.session(tables), functions=True)


@pytest.fixture
def ctx() -> SessionContext:
    return connect(t={"k": K.tolist(), "x": X.tolist(), "s": [2.0] * 6})


R = random.normal(7, K)
U = random.uniform(7, K)
ROW_LOCAL: dict[str, Floats] = {
    "grad(x * random_uniform(7, k), x)": U,
    "grad(x + s * random_normal(7, k), x)": np.ones(6),
    "grad(x + s * random_normal(7, k), s)": R,
    "grad(random_normal(7, CAST(x AS BIGINT)), x)": np.zeros(6),
    "grad(x * random_normal(CAST(x AS BIGINT), k), x)": random.normal(X.astype(np.int64), K),
    "grad(random_normal(CAST(s AS BIGINT), k, k) * x, s)": np.zeros(6),
    "grad(grad(sin(x * random_normal(7, k)), x), x)": -R * R * np.sin(X * R),
    "jvp(x * random_normal(7, k), x, random_uniform(7, k))": R * U,
    "vjp(x * random_normal(7, k), x, random_uniform(7, k))": R * U,
    "grad(CASE WHEN random_uniform(7, k) < 0.5 THEN x * x ELSE 0.0 END, x)": np.where(U < 0.5, 2 * X, 0),
    "grad(x * CAST(random_uniform(7, k) < 0.5 AS DOUBLE) / 0.5, x)": (U < 0.5) / 0.5,
    "grad(normal_quantile(random_uniform(7, k)) * x, x)": stats.norm.ppf(U),
    "grad(greatest(x, random_normal(7, k)), x)": (R <= X).astype(float),
    # What is finite times 0 is 0.
    "grad(random_uniform(7, k) + random_normal(7, k), x)": np.zeros(6),
}


@pytest.mark.parametrize("call", ROW_LOCAL)
def test_in_a_row(ctx: SessionContext, call: str) -> None:
    np.testing.assert_allclose(column(ctx, f"SELECT {call} FROM t ORDER BY k"), ROW_LOCAL[call], rtol=1e-13, atol=0)


def test_null_exactly_where_the_expression_is() -> None:
    ctx = connect(t={"k": [1, None], "x": [2.0, 3.0]})
    for call in ("x + random_normal(7, k)", "x * random_uniform(7, k)", "x * random_uniform(k, 1, 2)"):
        found = ctx.sql(f"SELECT grad({call}, x) AS d FROM t").to_pydict()["d"]
        assert [d is None for d in found] == [False, True]


def test_single_precision() -> None:
    ctx = connect(t=pa.table({"k": pa.array([1], pa.int32()), "x": pa.array([2.0], pa.float32())}))
    found = ctx.sql("SELECT grad(x * x * random_normal(7, k), x) AS d FROM t").to_arrow_table()["d"]
    assert found.to_pylist() == [pytest.approx(4 * float(random.normal(7, 1)), rel=1e-6)]


def test_what_a_key_is_made_of_is_no_variable(ctx: SessionContext) -> None:
    with pytest.raises(xql_ffi.DifferentiationError, match="k"):
        ctx.sql("SELECT grad(random_normal(7, k), k) FROM t").collect()


def test_a_function_of_the_user_is_his() -> None:
    """A function of such a name that the session has is another one, and has no rule."""
    ctx = sessions.session({"t": {"k": [1], "x": [2.0]}})
    mine = pa.float64()
    ctx.register_udf(udf(lambda a, b: b, [mine, mine], mine, "immutable", "random_uniform"))
    xql_ffi.register(ctx, functions=True)
    with pytest.raises(xql_ffi.MissingRuleError, match="random_uniform"):
        ctx.sql("SELECT grad(random_uniform(7, x), x) FROM t").collect()


def test_through_relations(ctx: SessionContext) -> None:
    """Noise that is drawn in a CTE, averaged and summed over a window."""
    sql = """
        WITH noisy AS (SELECT k, s, x * s + s * s * random_normal(7, k) AS y FROM t)
        SELECT grad(AVG(y), s) FROM noisy GROUP BY s
    """
    np.testing.assert_allclose(column(ctx, sql), [np.mean(X + 2 * 2 * R)], rtol=1e-13)
    sql = """
        WITH noisy AS (SELECT k, x, x * random_normal(7, k) AS y FROM t)
        SELECT jvp(SUM(y) OVER (ORDER BY k), x, 1.0) FROM noisy ORDER BY k
    """
    np.testing.assert_allclose(column(ctx, sql), np.cumsum(R), rtol=1e-13)


def test_greeks_by_monte_carlo() -> None:
    """Pathwise derivatives of the price of a call are those of NumPy on the same paths, and near Black's."""
    paths = 40_000
    ctx = connect(market={"s": [100.0], "v": [0.2]})
    sql = f"""
        WITH paths AS (
            SELECT s, v, s * exp(-v * v / 2 + v * random_normal(2026, value)) AS last
            FROM market CROSS JOIN range(0, {paths})),
        price AS (SELECT s, v, AVG(greatest(last - 100.0, 0.0)) AS p FROM paths GROUP BY s, v)
        SELECT p, grad(p, s) AS delta, grad(p, v) AS vega FROM price
    """
    (row,) = ctx.sql(sql).to_pylist()
    z = random.normal(2026, np.arange(paths))
    last = 100 * np.exp(-0.02 + 0.2 * z)
    paid = last > 100
    assert row["p"] == pytest.approx(np.mean(np.maximum(last - 100, 0)), rel=1e-11)
    assert row["delta"] == pytest.approx(np.mean(paid * last / 100), rel=1e-11)
    assert row["vega"] == pytest.approx(np.mean(paid * last * (z - 0.2)), rel=1e-11)
    d = 0.1
    assert row["p"] == pytest.approx(100 * (stats.norm.cdf(d) - stats.norm.cdf(d - 0.2)), abs=0.2)
    assert row["delta"] == pytest.approx(stats.norm.cdf(d), abs=0.01)
    assert row["vega"] == pytest.approx(100 * stats.norm.pdf(d), abs=1.0)


def test_a_path_with_noise() -> None:
    """Euler and Maruyama's steps: the derivative by a parameter goes on through all of them."""
    ctx = connect(p={"path": [0, 1, 2], "a": [0.5, 1.0, 1.5]})
    sql = """
        WITH RECURSIVE paths AS (
            SELECT 0 AS step, path, a, 1.0 AS x FROM p
            UNION ALL
            SELECT step + 1, path, a, x + a * (2.0 - x) * 0.1 + 0.3 * sqrt(0.1) * x * random_normal(5, path, step)
            FROM paths WHERE step < 12)
        SELECT grad(x, a) AS d FROM paths WHERE step = 12 ORDER BY path
    """

    def last(a: Any, noise: Any) -> Any:
        x = jnp.ones(3)
        for step in range(12):
            x = x + a * (2.0 - x) * 0.1 + 0.3 * np.sqrt(0.1) * x * noise[:, step]
        return x

    noise = random.normal(5, np.arange(3)[:, None], np.arange(12))
    expected = jax.grad(lambda a: last(a, noise).sum())(jnp.array([0.5, 1.0, 1.5]))
    np.testing.assert_allclose(column(ctx, sql), expected, rtol=1e-12)


SAMPLES, INPUTS, UNITS = 12, 3, 5
_GENERATOR = np.random.default_rng(3)
FEATURES = _GENERATOR.normal(size=(SAMPLES, INPUTS))
TARGETS = _GENERATOR.normal(size=SAMPLES)
WEIGHTS = _GENERATOR.normal(size=(INPUTS, UNITS)) * 0.5
OUTPUT = _GENERATOR.normal(size=UNITS)


def rows(values: Floats, **names: str) -> dict[str, list[Any]]:
    """An array as rows: its indexes under these names, and its values."""
    places = np.indices(values.shape).reshape(values.ndim, -1)
    columns = {name: place.tolist() for name, place in zip(names.values(), places, strict=True)}
    return {**columns, "val": values.ravel().tolist()}


def network() -> SessionContext:
    return connect(
        x=rows(FEATURES, a="sample", b="inp"),
        y=rows(TARGETS, a="sample"),
        w=rows(WEIGHTS, a="inp", b="unit"),
        v=rows(OUTPUT, a="unit"),
    )


# A layer with dropout and a mini-batch: half of the samples, and four units of five, anew in each step.
LOSS = """
    z AS (SELECT s.step, x.sample, w.unit, SUM(x.val * w.val) AS z
          FROM {w} AS w JOIN x ON x.inp = w.inp CROSS JOIN {step} AS s
          WHERE random_uniform(1, s.step, x.sample) < 0.5 GROUP BY s.step, x.sample, w.unit),
    h AS (SELECT sample, unit, CASE WHEN random_uniform(2, step, sample, unit) < 0.8 THEN tanh(z) / 0.8 ELSE 0.0 END
          AS val FROM z),
    o AS (SELECT h.sample, SUM(h.val * v.val) AS o FROM h JOIN v ON h.unit = v.unit GROUP BY h.sample),
    loss AS (SELECT AVG(power(o - y.val, 2)) AS l FROM o JOIN y ON o.sample = y.sample)"""


def loss(w: Any, step: int) -> Any:
    batch = random.uniform(1, step, np.arange(SAMPLES)) < 0.5
    mask = random.uniform(2, step, np.arange(SAMPLES)[:, None], np.arange(UNITS)) < 0.8
    hidden = jnp.where(mask, jnp.tanh(FEATURES @ w) / 0.8, 0.0)
    return jnp.sum(batch * (hidden @ OUTPUT - TARGETS) ** 2) / batch.sum()


@pytest.mark.parametrize("contractions", ["auto", "dense", "sparse", "fallback"])
def test_dropout_by_row(contractions: str) -> None:
    ctx = network()
    if contractions != "auto":
        ctx.sql(f"SET xql.contractions = {contractions}").collect()
    sql = f"""
        WITH {LOSS.format(w="w", step="(SELECT 3 AS step)")}
        SELECT grad((SELECT l FROM loss), val) AS g FROM w ORDER BY inp, unit
    """
    expected = jax.grad(loss)(WEIGHTS, 3)
    np.testing.assert_allclose(column(ctx, sql), np.ravel(expected), rtol=1e-11, atol=1e-14)


def test_training_with_dropout_and_mini_batches() -> None:
    """The numbers of a step are by its number, so that the loop is the same in JAX."""
    sql = f"""
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, inp, unit, val FROM w
            UNION ALL (
            WITH {LOSS.format(w="fit", step="(SELECT MAX(step) AS step FROM fit)")}
            SELECT step + 1, inp, unit, val - 0.1 * grad((SELECT l FROM loss), val) FROM fit WHERE step < 8))
        SELECT val FROM fit WHERE step = 8 ORDER BY inp, unit
    """
    w: Any = jnp.array(WEIGHTS)
    for step in range(8):
        w = w - 0.1 * jax.grad(loss)(w, step)
    np.testing.assert_allclose(column(network(), sql), np.ravel(w), rtol=1e-11, atol=1e-13)


N = 6
W = np.linspace(0.5, 2.0, N)
MASK, NOISE = random.uniform(2, np.arange(N)) < 0.5, random.normal(8, np.arange(N))
FOLDS = np.floor(3 * random.uniform(4, np.arange(N)))


def path(x: Any) -> Any:
    for step in range(10):
        x = x + 0.1 * jnp.sin(x) + 0.2 * x * random.normal(5, step, np.arange(N))
    return jnp.sum(x * x)


def window(x: Any) -> Any:
    before = (FOLDS[:, None] == FOLDS) & (np.arange(N)[:, None] >= np.arange(N))
    return jnp.sum((before @ (x * NOISE)) ** 2)


# By what they draw for: the query of a loss, and the loss in JAX.
LOSSES: dict[str, tuple[str, Any]] = {
    "a path, back through its steps": (
        """p AS (
            SELECT 0 AS step, k, val FROM w
            UNION ALL
            SELECT step + 1, k, val + 0.1 * sin(val) + 0.2 * val * random_normal(5, step, k) FROM p WHERE step < 10),
        loss AS (SELECT SUM(val * val) AS l FROM p WHERE step = 10)""",
        path,
    ),
    "three rows": (
        """b AS (SELECT k FROM w ORDER BY random_uniform(3, 7, k) LIMIT 3),
        loss AS (SELECT SUM(power(w.val, 3)) AS l FROM w JOIN b ON b.k = w.k)""",
        lambda x: jnp.sum(x[np.argsort(random.uniform(3, 7, np.arange(N)))[:3]] ** 3),
    ),
    "folds": (
        """f AS (SELECT k, val, floor(3 * random_uniform(4, k)) AS fold FROM w),
        a AS (SELECT fold, AVG(val) AS m FROM f GROUP BY fold), loss AS (SELECT SUM(m * m) AS l FROM a)""",
        lambda x: sum(jnp.mean(x[np.equal(FOLDS, fold)]) ** 2 for fold in set(FOLDS.tolist())),
    ),
    "partitions of a window": (
        """f AS (
            SELECT SUM(val * random_normal(8, k)) OVER (PARTITION BY floor(3 * random_uniform(4, k)) ORDER BY k) AS s
            FROM w),
        loss AS (SELECT SUM(s * s) AS l FROM f)""",
        window,
    ),
    "a mask that is read twice": (
        """a AS (SELECT k, val * CASE WHEN random_uniform(2, k) < 0.5 THEN 1.0 ELSE 0.0 END AS v FROM w),
        loss AS (SELECT SUM(x.v * y.v) AS l FROM a AS x JOIN a AS y ON x.k = y.k)""",
        lambda x: jnp.sum(x * x * MASK),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_by_row(name: str) -> None:
    ctx = connect(w=rows(W, a="k"))
    ctes, in_jax = LOSSES[name]
    found = column(ctx, f"WITH RECURSIVE {ctes} SELECT grad((SELECT l FROM loss), val) AS g FROM w ORDER BY k")
    np.testing.assert_allclose(found, jax.grad(in_jax)(W), rtol=1e-12, atol=1e-14)
