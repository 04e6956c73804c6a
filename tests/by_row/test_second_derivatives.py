"""Second derivatives through recursions by several columns at once, and derivatives of one value in several ways.

The likelihood of a time series is such a value. Against JAX, in double precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import xql_ffi
from support.sessions import session as differentiating

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

RETURNS = [0.3, -0.8, 0.5, 1.1, -0.2, 0.7]
AT = {"a": 0.2, "b": 0.5, "c": 0.15}
ALONG = {"a": 1.0, "b": -0.5, "c": 0.25}

# By the rows of `p`, which has the columns a, b and c.
MODELS = {
    # The variance of returns.
    "garch": """h AS (SELECT CAST(1 AS BIGINT) AS t, CAST(1 AS DOUBLE) AS h, a, b, c FROM p
            UNION ALL SELECT h.t + 1, c + a * o.r * o.r + b * h.h, a, b, c FROM h JOIN obs o ON o.t = h.t
            WHERE h.t < 6),
        loss AS (SELECT AVG(ln(h) + o.r * o.r / h) AS l FROM h JOIN obs o ON o.t = h.t)""",
    # A level and a trend, with first rows of two constants of one value.
    "smoothing": """h AS (SELECT CAST(0 AS BIGINT) AS t, CAST(0 AS DOUBLE) AS level, CAST(0 AS DOUBLE) AS trend,
                CAST(0 AS DOUBLE) AS l, a, b, c FROM p
            UNION ALL SELECT h.t + 1, a * o.r + (1 - a) * (level + trend), b * (a * o.r - a * level) + (1 - b) * trend,
                h.l + power(o.r - level - c * trend, 2), a, b, c FROM h JOIN obs o ON o.t = h.t + 1),
        loss AS (SELECT MAX(l) AS l FROM h WHERE t = 6)""",
    # The gain of a filter, and the likelihood of what it misses, which is added up in the iterations.
    "kalman": """h AS (SELECT 0 AS t, 0.0 AS x, 1.0 AS v, 0.0 AS l, a, b, c FROM p
            UNION ALL SELECT t + 1, x + g * (r - x), (1 - g) * v, l + ln(v + c) + power(r - x, 2) / (v + c), a, b, c
            FROM (SELECT h.t, b * h.x AS x, b * b * h.v + a AS v, h.l, o.r, a, b, c,
                    (b * b * h.v + a) / (b * b * h.v + a + c) AS g
                FROM h JOIN obs o ON o.t = h.t + 1) AS s),
        loss AS (SELECT l FROM h WHERE t = 6)""",
}


def garch(p: jax.Array) -> jax.Array:
    h, total = jnp.ones(()), jnp.zeros(())
    for r in RETURNS:
        total = total + jnp.log(h) + r * r / h
        h = p[2] + p[0] * r * r + p[1] * h
    return total / len(RETURNS)


def smoothing(p: jax.Array) -> jax.Array:
    level, trend, total = jnp.zeros(()), jnp.zeros(()), jnp.zeros(())
    for r in RETURNS:
        total = total + (r - level - p[2] * trend) ** 2
        level, trend = (
            p[0] * r + (1 - p[0]) * (level + trend),
            p[1] * (p[0] * r - p[0] * level) + (1 - p[1]) * trend,
        )
    return total


def kalman(p: jax.Array) -> jax.Array:
    x, v, total = jnp.zeros(()), jnp.ones(()), jnp.zeros(())
    for r in RETURNS:
        x, v = p[1] * x, p[1] * p[1] * v + p[0]
        g = v / (v + p[2])
        total = total + jnp.log(v + p[2]) + (r - x) ** 2 / (v + p[2])
        x, v = x + g * (r - x), (1 - g) * v
    return total


LOSSES = {"garch": garch, "smoothing": smoothing, "kalman": kalman}
TABLES = {"obs": {"t": list(range(1, 7)), "r": RETURNS}, "p": {name: [value] for name, value in AT.items()}}


def vector(of: dict[str, float]) -> NDArray[np.float64]:
    return np.array(list(of.values()))


@pytest.fixture(scope="module")
def products() -> dict[str, NDArray[np.float64]]:
    """The Hessians times the direction."""
    product = lambda loss: jax.jvp(jax.grad(loss), (vector(AT),), (vector(ALONG),))[1]  # noqa: E731
    return {name: np.asarray(product(loss)) for name, loss in LOSSES.items()}  # type: ignore[no-untyped-call]


def second(model: str) -> str:
    moved = ", ".join(f"{name} + eps * {by!r} AS {name}" for name, by in ALONG.items())
    calls = ", ".join(f"grad(grad((SELECT l FROM loss), {name}), eps) AS {name}" for name in AT)
    ctes = MODELS[model].replace("FROM p\n", "FROM m\n")
    assert ctes != MODELS[model]
    zero = "(SELECT CAST(0 AS DOUBLE) AS eps) AS e"
    return f"""WITH RECURSIVE m AS (SELECT {moved}, eps FROM p CROSS JOIN {zero}), {ctes}
        SELECT {calls} FROM m"""


@pytest.mark.parametrize("model", MODELS)
def test_by_several_columns(model: str, products: dict[str, NDArray[np.float64]]) -> None:
    found = differentiating(TABLES).sql(second(model)).to_pydict()
    np.testing.assert_allclose([found[name][0] for name in AT], products[model], rtol=1e-9)


@pytest.mark.parametrize("model", MODELS)
def test_an_objective(model: str, products: dict[str, NDArray[np.float64]]) -> None:
    objective = xql_ffi.objective(
        differentiating(TABLES), f"WITH RECURSIVE {MODELS[model]} SELECT l FROM loss", ["p.a", "p.b", "p.c"]
    )
    np.testing.assert_allclose(objective.hvp(vector(AT), vector(ALONG)), products[model], rtol=1e-9)


def test_by_two_tables() -> None:
    """The parameters are rows of two tables, and each sees both move."""
    ctx = differentiating({"u": {"k": [0, 1], "val": [0.3, -0.4]}, "v": {"k": [0, 1], "val": [1.2, 0.7]}})
    ctes = """e AS (SELECT CAST(0 AS DOUBLE) AS eps),
        p AS (SELECT k, val + eps * (k + 1) AS val, eps FROM u CROSS JOIN e),
        q AS (SELECT k, val - eps * k AS val, eps FROM v CROSS JOIN e),
        r AS (SELECT 0 AS s, k, val FROM p
            UNION ALL SELECT s + 1, r.k, sin(r.val * q.val) FROM r JOIN q ON q.k = r.k WHERE s < 3),
        loss AS (SELECT SUM(r.val * r.val) AS l FROM r)"""
    beside = "p JOIN q ON p.k = q.k"
    calls = "grad(grad((SELECT l FROM loss), {0}.val), {0}.eps) AS {0}"
    found = ctx.sql(
        f"WITH RECURSIVE {ctes} SELECT p.k, {calls.format('p')}, {calls.format('q')} FROM {beside} ORDER BY k"
    ).to_pydict()

    def loss(p: jax.Array, q: jax.Array) -> jax.Array:
        x, total = p, jnp.sum(p * p)
        for _ in range(3):
            x = jnp.sin(x * q)
            total = total + jnp.sum(x * x)
        return total

    at, along = (np.array([0.3, -0.4]), np.array([1.2, 0.7])), (np.array([1.0, 2.0]), np.array([0.0, -1.0]))
    _, (by_p, by_q) = jax.jvp(jax.grad(loss, argnums=(0, 1)), at, along)
    np.testing.assert_allclose(found["p"], by_p, rtol=1e-10)
    np.testing.assert_allclose(found["q"], by_q, rtol=1e-10)


def test_of_two_gradients_beside_their_rows() -> None:
    """By a step along which other rows move: those that FROM reads are another reference to them, and stay."""
    ctx = differentiating(
        {
            "w": pa.table({"k": [1, 2], "val": [1.0, 2.0]}),
            "v": pa.table({"k": [1, 2], "val": [3.0, 5.0]}),
            "steps": pa.table({"s": [0.5]}),
        }
    )
    loss = "(SELECT l FROM loss)"
    found = ctx.sql(
        f"""WITH r AS (SELECT k, val + s AS val FROM w CROSS JOIN steps),
            loss AS (SELECT SUM(r.val * r.val * r.val * v.val * v.val) AS l FROM r JOIN v ON r.k = v.k)
        SELECT grad(grad({loss}, r.val) * r.val, s) AS by_rows,
            grad(grad({loss}, r.val) * v.val * v.val + grad({loss}, v.val) * r.val, s) AS by_both
        FROM r JOIN v ON r.k = v.k CROSS JOIN steps ORDER BY r.k"""
    ).to_pydict()
    r, v = np.array([1.5, 2.5]), np.array([3.0, 5.0])
    np.testing.assert_allclose(found["by_rows"], 6 * r * v**2 * r, rtol=1e-12)
    np.testing.assert_allclose(found["by_both"], 6 * r * v**2 * v**2 + 6 * r**2 * v * r, rtol=1e-12)


def test_third_derivatives() -> None:
    ctx = differentiating({"p": {"a": [0.7]}})
    sql = """WITH RECURSIVE m AS (SELECT a + eps AS a, eps FROM p CROSS JOIN (SELECT CAST(0 AS DOUBLE) AS eps) AS e),
        r AS (SELECT 0 AS s, a AS x, a FROM m UNION ALL SELECT s + 1, x * x * a, a FROM r WHERE s < 2),
        loss AS (SELECT SUM(x) AS l FROM r WHERE s = 2)
        SELECT grad(grad(grad((SELECT l FROM loss), a), eps), eps) AS d FROM m"""
    np.testing.assert_allclose(ctx.sql(sql).to_pydict()["d"], [7 * 6 * 5 * 0.7**4], rtol=1e-12)


def test_as_text(products: dict[str, NDArray[np.float64]]) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    for name, columns in TABLES.items():
        connection.register("given", pa.table(columns))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
    found = xql_ffi.sql(connection, second("garch")).fetchall()[0]
    np.testing.assert_allclose(found, products["garch"], rtol=1e-9)


# A value in several ways in one SELECT

VALUES = np.array([0.5, -1.5, 2.0])
ROWS = {"m": {"k": [0, 1, 2], "val": VALUES.tolist()}}
LOSS = "WITH loss AS (SELECT SUM(val * val * val) AS l FROM m), q AS (SELECT k, val, val * val AS square FROM m)"
SLOPE = 3 * np.square(VALUES)
ALL = float(np.sum(SLOPE * 0.5 * np.arange(3)))
# What stands in a list, and its values.
CALLS = {
    "grad((SELECT l FROM loss), val)": SLOPE,
    "vjp((SELECT l FROM loss), val, 3.0)": 3 * SLOPE,
    "jvp((SELECT l FROM loss), val, k * 0.5)": np.full(3, ALL),
    "jvp((SELECT l FROM loss) * val, val, k * 0.5)": ALL * VALUES + np.sum(np.power(VALUES, 3)) * 0.5 * np.arange(3),
    "grad(square, val)": 2 * VALUES,
    "jvp(square, val, k * 0.5)": 2 * VALUES * 0.5 * np.arange(3),
}


@pytest.mark.parametrize("first", CALLS)
@pytest.mark.parametrize("second", CALLS)
@pytest.mark.parametrize("contractions", ["true", "false"])
def test_calls_of_one_list(contractions: str, first: str, second: str) -> None:
    """What one call joins to the rows does not hide from another what these are computed from."""
    if first == second:
        return
    ctx = differentiating(ROWS)
    ctx.sql(f"SET xql.contractions = {contractions}")
    found = ctx.sql(f"{LOSS} SELECT {first} AS a, {second} AS b FROM q ORDER BY k").to_pydict()
    np.testing.assert_allclose(found["a"], CALLS[first], rtol=1e-12)
    np.testing.assert_allclose(found["b"], CALLS[second], rtol=1e-12)


def test_windows_beside() -> None:
    ctx = differentiating(ROWS)
    sql = """SELECT vjp((SELECT SUM(val * val) FROM m), val, 1.0) AS a, jvp(s, val, k * 0.5) AS b, grad(s, val) AS c
        FROM (SELECT k, val, SUM(val * val) OVER () AS s FROM m) AS w ORDER BY k"""
    found, val = ctx.sql(sql).to_pydict(), VALUES
    np.testing.assert_allclose(found["a"], 2 * val, rtol=1e-12)
    np.testing.assert_allclose(found["b"], np.full(3, np.sum(2 * val * 0.5 * np.arange(3))), rtol=1e-12)
    np.testing.assert_allclose(found["c"], 2 * val, rtol=1e-12)


# Of a row, functions whose derivatives are 0 somewhere in `ZEROS`, where the second ones are not.
AT_ZERO: dict[str, Callable[[jax.Array], jax.Array]] = {
    "power(val, 2)": lambda v: v**2,
    "exp(-power(val, 2))": lambda v: jnp.exp(-(v**2)),
    "ln(1 + val * val) + power(sin(val), 2)": lambda v: jnp.log1p(v * v) + jnp.sin(v) ** 2,
    "val / (1 + val * val)": lambda v: v / (1 + v * v),
    "atan2(val, 1.0 + val * val) + val * tan(val)": lambda v: jnp.arctan2(v, 1 + v * v) + v * jnp.tan(v),
    "power(greatest(val, 0) - 1, 2)": lambda v: (jnp.maximum(v, 0) - 1) ** 2,
    "nvl(val, 0) * val": lambda v: v * v,
}
ZEROS = [1.0, -0.5, 0.25, -1.0]


def hessian_by_products(tables: dict[str, Any], loss: str, columns: str | list[str], at: list[float]) -> Any:
    objective = xql_ffi.objective(differentiating(tables), loss, columns)
    return np.array([objective.hvp(at, unit) for unit in np.eye(len(at))])


@pytest.mark.parametrize("function", AT_ZERO)
def test_where_a_gradient_is_0(function: str) -> None:
    """What a row contributes to a gradient is 0 there, and what it contributes to the derivative of that is not."""
    for at in (ZEROS, [0.0, *ZEROS[1:]] if "greatest" not in function else ZEROS):
        tables = {"w": {"val": at}}
        found = hessian_by_products(tables, f"SELECT SUM({function}) FROM w", "w.val", at)
        of_jax = jax.hessian(lambda v: jnp.sum(AT_ZERO[function](v)))(jnp.array(at))
        np.testing.assert_allclose(found, of_jax, rtol=1e-9, atol=1e-12)


def test_where_all_is_fitted() -> None:
    """Residuals, deviations from a mean and sums of groups that are 0."""
    d, w = {"k": [0, 1], "x": [1.0, 2.0], "y": [0.0, 1.0]}, {"k": [0, 1], "val": [0.0, 0.5]}
    loss = "SELECT AVG(power(x * val - y, 2)) FROM d JOIN w ON d.k = w.k"
    np.testing.assert_allclose(hessian_by_products({"d": d, "w": w}, loss, "w.val", [0.0, 0.5]), [[1, 0], [0, 4]])
    loss, at = "SELECT power(VAR_POP(val), 2) + VAR_POP(val) FROM w", [1.0, 1.0]
    np.testing.assert_allclose(hessian_by_products({"w": w}, loss, "w.val", at), [[0.5, -0.5], [-0.5, 0.5]], atol=1e-12)
    groups = {"w": {"k": [0, 0, 1], "val": [1.0, -1.0, 0.0]}}
    loss = "SELECT SUM(s * s * s + power(s, 2)) FROM (SELECT k, SUM(val) AS s FROM w GROUP BY k) AS g"
    found = hessian_by_products(groups, loss, "w.val", [1.0, -1.0, 0.0])
    np.testing.assert_allclose(found, [[2, 2, 0], [2, 2, 0], [0, 0, 2]], atol=1e-12)


def test_of_two_columns_where_one_is_0() -> None:
    p = {"p": {"b": [0.0], "c": [1.0]}}
    found = hessian_by_products(p, "SELECT SUM(atan2(b, c) + power(c + 3, b)) FROM p", ["p.b", "p.c"], [0.0, 1.0])
    expected = jax.hessian(lambda p: jnp.arctan2(p[0], p[1]) + (p[1] + 3) ** p[0])(jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_gradient_of_what_a_gradient_is() -> None:
    """By row twice: of the distance of a gradient that is 0 in one row from what it should be."""
    at = [0.0, 0.5]
    g = "SELECT k, grad((SELECT SUM(power(val, 2) + power(val, 3)) FROM w), val) AS g FROM w"
    ctes = f"WITH g AS ({g}), loss AS (SELECT SUM((k + 1) * g) AS l FROM g)"
    ctx = differentiating({"w": {"k": [0, 1], "val": at}})
    found = ctx.sql(f"{ctes} SELECT grad((SELECT l FROM loss), val) AS d FROM w").to_pydict()["d"]
    np.testing.assert_allclose(found, [(k + 1) * (2 + 6 * val) for k, val in enumerate(at)], rtol=1e-12)


# The Hessian of a sum has a row for each of the rows of `p`, of which a second gradient would be the sum.
TWICE = "grad(grad((SELECT SUM(w * w * w) FROM p), w), w) AS d FROM p"
MIXED = "grad(d, w) AS e FROM (SELECT w, grad((SELECT SUM(t.x * p.w) FROM t CROSS JOIN p), x) AS d FROM t CROSS JOIN p)"


BESIDE = "grad(grad((SELECT SUM(x * x * w) FROM p), x), w) AS d FROM p"
CHAIN = "grad(d, w) AS e FROM (SELECT w, grad((SELECT SUM(w * w) FROM p), x) AS d FROM p)"


@pytest.mark.parametrize(
    ("rows", "derivative", "why"),
    [
        ("SELECT x AS w FROM t", TWICE, "2 cells of [wx]"),
        ("SELECT x + 0 AS w FROM t", TWICE, "2 cells of [wx]"),
        ("SELECT * FROM (VALUES (1.0), (2.0)) AS v(w)", MIXED, "2 cells of [wx]"),
        ("SELECT 1.0 AS w UNION ALL SELECT 2.0", TWICE, "w comes from several branches of a UNION"),
        (
            "SELECT x AS w FROM t UNION ALL SELECT 2 * x FROM t",
            MIXED,
            "w comes from several branches|w is computed from",
        ),
        ("SELECT x + 0 AS w FROM t", MIXED, "w is computed from rows by which a gradient is"),
        ("SELECT x, x * x AS w FROM t", CHAIN, "w is computed from rows by which a gradient is"),
        ("SELECT x, 1.0 AS w FROM t", BESIDE, "w is computed from rows by which a gradient is"),
    ],
)
def test_by_a_column_of_several_rows(rows: str, derivative: str, why: str) -> None:
    ctx = differentiating({"t": pa.table({"x": [1.0, 2.0]})})
    with pytest.raises(Exception, match=why):
        ctx.sql(f"WITH p AS ({rows}) SELECT {derivative}").collect()


SUBQUERY = "(SELECT e FROM one)"
BY_E = "SELECT grad(grad((SELECT SUM(val * val{0}) FROM m), val), e) AS d FROM m"


@pytest.mark.parametrize(
    "statement",
    [
        f"WITH m AS (SELECT x * {SUBQUERY} AS val, e FROM t CROSS JOIN one) {BY_E.format('')}",
        f"WITH m AS (SELECT x * e AS val, e FROM t CROSS JOIN one) {BY_E.format(f' * {SUBQUERY}')}",
        f"""WITH m AS (SELECT x * e AS val, e FROM t CROSS JOIN one)
        SELECT grad(g, e) AS d
        FROM (SELECT e, grad((SELECT SUM(val * val) * exp({SUBQUERY}) FROM m), val) AS g FROM m) AS q""",
    ],
)
def test_a_subquery_that_reads_the_column_too(statement: str) -> None:
    """It would count as constant."""
    ctx = differentiating({"t": {"x": [1.0, 2.0]}, "one": {"e": [0.5]}})
    with pytest.raises(Exception, match=r"reads e too, and counts as constant there|a subquery in it reads the rows"):
        ctx.sql(statement).collect()


def test_a_gradient_by_what_another_column_of_the_rows_is_computed_from() -> None:
    """By x and w the rows of p move apart, where the inner gradient is by x through w."""
    ctx = differentiating({"t": {"k": [1, 2], "x": [2.0, 1.0]}})
    ctes = """WITH p AS (SELECT k, x * x AS w, x FROM t),
        g AS (SELECT grad((SELECT SUM(w * w * w) FROM p), {}) AS g FROM p)"""
    with pytest.raises(Exception, match="beside what is computed from it"):
        ctx.sql(f"{ctes.format('x')} SELECT grad((SELECT SUM(g) FROM g), w) AS d FROM p").collect()
    found = ctx.sql(f"{ctes.format('x')} SELECT grad((SELECT SUM(g) FROM g), x) AS d FROM t ORDER BY k").to_pydict()[
        "d"
    ]
    np.testing.assert_allclose(found, [480.0, 30.0], rtol=1e-12)
    found = ctx.sql(f"{ctes.format('w')} SELECT k, grad((SELECT SUM(g) FROM g), x) AS d FROM p ORDER BY k").to_pydict()[
        "d"
    ]
    np.testing.assert_allclose(found, [96.0, 12.0], rtol=1e-12)


GRADIENT = "grad((SELECT SUM(x * x) FROM t), x) / 2"


@pytest.mark.parametrize(
    "p",
    [
        f"SELECT {GRADIENT} AS w, x AS y FROM t WHERE k = 1",
        f"SELECT (SELECT SUM(g) FROM (SELECT {GRADIENT} AS g FROM t)) AS w, x AS y FROM t",
    ],
)
def test_by_a_column_that_is_a_gradient(p: str) -> None:
    """Within another gradient, whose rewriting names the parts of it anew."""
    ctx = differentiating({"t": {"k": [1, 2], "x": [2.0, 1.0]}})
    g = "SELECT w, grad((SELECT SUM(w * w * w * y) FROM p), y) AS g FROM p"
    with pytest.raises(Exception, match="w is computed from rows by which a gradient is"):
        ctx.sql(f"WITH p AS ({p}) SELECT grad(g, w) AS d FROM ({g})").collect()


@pytest.mark.parametrize(
    ("columns", "source", "message"),
    [
        ("w, (SELECT SUM(w * w) FROM p) AS v", "p", "a subquery in it reads the rows that w comes from"),
        ("q.w, v", "p AS q CROSS JOIN (SELECT SUM(w * w) AS v FROM p)", "w is a variable of its own"),
    ],
)
def test_by_a_gradient_that_two_queries_read(columns: str, source: str, message: str) -> None:
    """The CTE that has it is one relation, though its calls are replaced where each of the two reads it."""
    ctx = differentiating({"t": {"x": [2.0, 1.0]}})
    p = f"p AS (SELECT {GRADIENT} AS w FROM t)"
    with pytest.raises(Exception, match=message):
        ctx.sql(f"WITH {p} SELECT grad(v, w) AS d FROM (SELECT {columns} FROM {source})").collect()


def test_two_copies_of_a_gradient() -> None:
    ctx = differentiating({"t": {"k": [1, 2], "x": [2.0, 1.0]}})
    p = f"p AS (SELECT k, {GRADIENT} AS w FROM t)"
    query = f"WITH {p} SELECT a.k, grad(a.w * b.w, a.w) AS d FROM p AS a JOIN p AS b ON a.k = b.k ORDER BY a.k"
    np.testing.assert_allclose(ctx.sql(query).to_pydict()["d"], [2.0, 1.0], rtol=1e-12)


def test_by_what_is_computed_beside() -> None:
    """From the rows by which a gradient is, which does not read it."""
    ctx = differentiating({"t": pa.table({"x": [1.0, 2.0]})})
    gradient = "grad((SELECT SUM(x * x * x) FROM t), x)"
    found = ctx.sql(f"SELECT grad(d * w, w) AS e FROM (SELECT exp(x) AS w, {gradient} AS d FROM t)").to_pydict()["e"]
    np.testing.assert_allclose(sorted(found), [3.0, 12.0], rtol=1e-12)
    beside = f"SELECT w, {gradient} AS d FROM t CROSS JOIN p"
    of_p = f"WITH p AS (SELECT exp(x) AS w FROM t) SELECT grad(d * w, w) AS e FROM ({beside})"
    np.testing.assert_allclose(sorted(ctx.sql(of_p).to_pydict()["e"]), [3.0, 3.0, 12.0, 12.0], rtol=1e-12)
