"""The tables of calls elsewhere and here: what stands here runs, and gives what JAX gives or what is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
import xarray_sql
from datafusion import SessionContext, col
from jax import test_util

import xql_ffi
from support.pages import DOCS
from xql_ffi.testing import verify_grad

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

X, Y = np.array([0.5, -1.0, 2.0]), np.array([1.5, 0.25, -0.5])
W, V = np.array([0.75, -0.5, 1.25]), np.array([1.0, -2.0, 0.5])
A, B = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 2.0]]), np.array([[0.5, 1.0], [-1.0, 0.0], [2.0, 0.25]])

Case = Callable[[SessionContext], tuple[Any, Any]]
CASES: dict[tuple[str, str], Case] = {}


def case(page: str, *calls: str) -> Callable[[Case], Case]:
    """Says for which lines of a page a function is: it gives what is expected and what is found."""

    def add(function: Case) -> Case:
        CASES.update({(page, call): function for call in calls})
        return function

    return add


def lines(page: str) -> Iterator[tuple[str, str]]:
    """The first column of the first table of a page."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    table = re.search(r"^\|[ -]*---.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table
    for line in table[1].splitlines():
        yield page, line.split(" | ")[0].removeprefix("| ")


PAGES = ("from-jax", "from-ddx", "from-xarray-sql")


def test_every_line_is_tested() -> None:
    assert {line for page in PAGES for line in lines(page)} == set(CASES)


@pytest.fixture(scope="module")
def session() -> SessionContext:
    ctx: SessionContext = xql_ffi.register(xarray_sql.XarrayContext())
    rows = list(range(3))
    ctx.from_pydict({"k": rows, "x": X.tolist(), "y": Y.tolist()}, name="t")
    ctx.from_pydict({"k": rows, "u": X.tolist(), "v": Y.tolist()}, name="wind")
    ctx.from_pydict({"k": rows, "val": W.tolist(), "t": V.tolist()}, name="moving")
    for name, values in {"w": W, "v": V, "dw": V, "c": Y}.items():
        ctx.from_pydict({"k": rows, "val": values.tolist()}, name=name)
    for name, matrix in {"a": A, "b": B}.items():
        i, j = (np.ravel(number).tolist() for number in np.indices(matrix.shape))
        ctx.from_pydict({"i": i, "j": j, "val": matrix.ravel().tolist()}, name=name)
    return ctx


def last(ctx: SessionContext, statement: str) -> list[float]:
    """The last column of a statement."""
    *_, column = ctx.sql(statement).to_pydict().values()
    return column


def cubes(w: Any) -> Any:
    return jnp.sum(w**3)


LOSS = "WITH loss AS (SELECT SUM(val * val * val) AS l FROM w)"
ALONG = """
    WITH loss AS (SELECT SUM(val * val * val) AS l FROM moving)
    SELECT jvp((SELECT l FROM loss), val, t) FROM moving LIMIT 1"""
MOVED = """
    WITH eps AS (SELECT 0.0 AS eps),
         moved AS (SELECT w.k, w.val + eps.eps * dw.val AS val, eps FROM w JOIN dw ON w.k = dw.k CROSS JOIN eps)"""


# ------------------------------------------------------------------------------------------------------------- JAX


@case("from-jax", "`vmap(grad(f))(x)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.vmap(jax.grad(lambda x: jnp.sin(x) * x))(X)
    return expected, last(ctx, "SELECT k, grad(sin(x) * x, x) FROM t ORDER BY k")


@case("from-jax", "`grad(loss)(w)`, `w` an array")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return jax.grad(cubes)(W), last(ctx, f"{LOSS} SELECT k, grad((SELECT l FROM loss), val) FROM w ORDER BY k")


@case("from-jax", "`grad(loss, argnums=(0, 1))(v, w)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.grad(lambda v, w: jnp.sum(v * w) ** 2, argnums=(0, 1))(V, W)
    found = ctx.sql("""
        WITH loss AS (SELECT power(SUM(v.val * w.val), 2) AS l FROM v JOIN w ON v.k = w.k)
        SELECT grad((SELECT l FROM loss), v.val) AS by_v, grad((SELECT l FROM loss), w.val) AS by_w
        FROM v JOIN w ON v.k = w.k ORDER BY v.k""").to_pydict()
    return expected, [found["by_v"], found["by_w"]]


@case("from-jax", "`value_and_grad(loss)(w)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    value, gradient = jax.value_and_grad(cubes)(W)
    found = xql_ffi.gradients(ctx, "SELECT SUM(val * val * val) FROM w", ["w.val"])
    rows = found.by["w"].sort_by("k") if hasattr(found.by["w"], "sort_by") else found.by["w"].sort("k")
    return [value, *gradient], [found.value, *rows.to_pydict()["d_val"]]


@case("from-jax", "`jvp(f, (x,), (t,))`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = [jax.jvp(jnp.sin, (x,), (0.5,))[1] for x in X]
    along = jax.jvp(cubes, (W,), (V,))[1]
    return [*expected, along], [*last(ctx, "SELECT k, jvp(sin(x), x, 0.5) FROM t ORDER BY k"), *last(ctx, ALONG)]


@case("from-jax", "`vjp(f, x)[1](k)`, `f` elementwise")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return jax.vjp(jnp.sin, X)[1](Y)[0], last(ctx, "SELECT k, vjp(sin(x), x, y) FROM t ORDER BY k")


@case("from-jax", "`vjp(f, x)[1](k)`, `f` from arrays to arrays")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.vjp(lambda w: jnp.tanh(A @ w), W)[1](Y[:2])[0]
    found = """
        WITH f AS (SELECT a.i, tanh(SUM(a.val * w.val)) AS e FROM a JOIN w ON a.j = w.k GROUP BY a.i)
        SELECT k, grad((SELECT SUM(c.val * e) FROM f JOIN c ON f.i = c.k), val) FROM w ORDER BY k"""
    return expected, last(ctx, found)


@case("from-jax", "`jvp(f, (x,), (t,))`, `f` from arrays to arrays")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.jvp(lambda w: jnp.tanh(A @ w), (W,), (V,))[1]
    f = "SELECT a.i, tanh(SUM(a.val * w.val)) AS e FROM a JOIN w ON a.j = w.k GROUP BY a.i"
    return expected, xql_ffi.pushforward(ctx, f, "w.val", "SELECT k, val FROM v").sort("i").to_pydict()["d"]


@case("from-jax", "`hessian(f)(x, y)` of numbers")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = [jax.grad(jax.grad(lambda x, y: x * x * jnp.exp(y)), argnums=1)(x, y) for x, y in zip(X, Y, strict=True)]
    return expected, last(ctx, "SELECT k, grad(grad(x * x * exp(y), x), y) FROM t ORDER BY k")


@case("from-jax", "`hessian(loss)(w)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    """Of one whose matrix is no diagonal."""
    objective = xql_ffi.objective(ctx, "SELECT power(SUM(val * val), 2) FROM w", "w.val")
    expected = jax.hessian(lambda w: jnp.sum(w * w) ** 2)(W)
    return expected.ravel(), objective.hessian(W).ravel().tolist()


@case("from-jax", "`jacobian(f)(w)`, `f` from arrays to arrays")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.jacobian(lambda w: jnp.cumsum(w**3))(W)
    h = "(SELECT k, SUM(val * val * val) OVER (ORDER BY k) AS val FROM w)"
    return expected.ravel(), last(ctx, f"SELECT h.k, w.k, grad(h.val, w.val) FROM {h} AS h CROSS JOIN w ORDER BY 1, 2")


@case("from-jax", "`vmap(grad(loss), (None, 0))(w, x)`, by sample")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.vmap(jax.grad(lambda w, x: jnp.sum(jnp.sin(w * x))), (None, 0))(W, X)
    losses = "losses AS (SELECT t.k, SUM(sin(w.val * t.x)) AS val FROM t CROSS JOIN w GROUP BY t.k)"
    found = f"WITH {losses} SELECT losses.k, w.k, grad(losses.val, w.val) FROM losses CROSS JOIN w ORDER BY 1, 2"
    return expected.ravel(), last(ctx, found)


@case("from-jax", "`jvp(grad(loss), (w,), (v,))[1]`")
@case("from-ddx", "`ad.jvp(ctx, ad.grad(ctx, loss, wrt), wrt)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.jvp(jax.grad(cubes), (W,), (V,))[1]
    found = f"""{MOVED}, loss AS (SELECT SUM(val * val * val) AS l FROM moved)
        SELECT k, grad(grad((SELECT l FROM loss), val), eps) FROM moved ORDER BY k"""
    return expected, last(ctx, found)


@case("from-jax", "`grad(lambda w: vdot(grad(loss)(w), v))(w)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.grad(lambda w: jnp.vdot(jax.grad(cubes)(w), V))(W)
    found = f"""{LOSS}, g AS (SELECT k, grad((SELECT l FROM loss), val) AS g FROM w)
        SELECT k, grad((SELECT SUM(g * v.val) FROM g JOIN v ON g.k = v.k), w.val) FROM w ORDER BY k"""
    return expected, last(ctx, found)


@case("from-jax", "`diagonal(jacobian(f)(x))`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jnp.diagonal(jax.jacobian(jax.nn.softmax)(X))
    found = "SELECT k, grad(p, x) FROM (SELECT k, x, exp(x) / SUM(exp(x)) OVER () AS p FROM t) ORDER BY k"
    return expected, last(ctx, found)


@case("from-jax", "`lax.stop_gradient(x)`")
@case("from-ddx", "`ddx_stop_gradient(x)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    expected = jax.vmap(jax.grad(lambda x: x * jax.lax.stop_gradient(x)))(X)
    return expected, last(ctx, "SELECT k, grad(x * stop_gradient(x), x) FROM t ORDER BY k")


@case("from-jax", "`random.normal(fold_in(key(7), i))`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    xql_ffi.register(ctx, functions=True)
    expected = jax.vmap(jax.grad(lambda x, noise: x * x * noise))(X, xql_ffi.random.normal(7, range(3)))
    return expected, last(ctx, "SELECT k, grad(x * x * random_normal(7, k), x) FROM t ORDER BY k")


@case("from-jax", "`custom_jvp`, `custom_vjp`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    @jax.custom_jvp
    def straight(x: Any) -> Any:
        return jnp.floor(x)

    straight.defjvp(lambda primals, tangents: (jnp.floor(primals[0]), tangents[0]))
    slope = xql_ffi.grad(floor(col("x") * col("x")), "x", rules=[xql_ffi.rule("floor(x)", "1")])
    found = ctx.table("t").sort(col("k")).select(slope.alias("d")).to_pydict()["d"]
    return jax.vmap(jax.grad(lambda x: straight(x * x)))(X), found


def floor(expr: Any) -> Any:
    from datafusion import functions

    return functions.floor(expr)


@case("from-jax", "`lax.scan`, `lax.fori_loop`")
@case("from-ddx", "a loop of the client")
@case("from-xarray-sql", "a loop in Python around a statement")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    step = jax.grad(lambda w: (w - 3) ** 2)
    expected = jax.lax.fori_loop(0, 10, lambda _, w: w - 0.1 * step(w), 0.0)
    found = """
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, 0.0 AS w
            UNION ALL
            SELECT step + 1, w - 0.1 * grad(power(w - 3, 2), w) FROM fit WHERE step < 10)
        SELECT w FROM fit WHERE step = 10"""
    return [expected], last(ctx, found)


@case("from-jax", "`x @ w`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    found = """SELECT x.i, w.j, SUM(x.val * w.val) AS val FROM a x JOIN b w ON x.j = w.i
        GROUP BY x.i, w.j ORDER BY x.i, w.j"""
    return jnp.ravel(A @ B), last(ctx, found)


@case("from-jax", "`nn.softmax(x, axis=1)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    found = """
        WITH e AS (SELECT i, j, exp(val - MAX(val) OVER (PARTITION BY i)) AS e FROM a)
        SELECT i, j, e / SUM(e) OVER (PARTITION BY i) AS p FROM e ORDER BY i, j"""
    return jnp.ravel(jax.nn.softmax(A, axis=1)), last(ctx, found)


@case("from-jax", "`jax.test_util.check_grads`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    test_util.check_grads(lambda x: jnp.sin(x) * x, (X,), order=1)  # type: ignore[no-untyped-call]
    return [len(X)], [verify_grad(ctx, "t", "sin(x) * x", "x")["x"].verified]


# ------------------------------------------------------------------------------------------------------------- ddx


@case("from-ddx", "`ctx = ddxdb.Context()`")
@case("from-xarray-sql", "`ctx = xql.XarrayContext()`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    made = [xql_ffi.register(SessionContext()), xql_ffi.register(xarray_sql.XarrayContext())]
    return [[1.0], [1.0]], [last(each, "SELECT grad(x, x) FROM (VALUES (2.0)) AS t(x)") for each in made]


@case("from-ddx", "`WITH loss AS (...) SELECT k, grad(loss, val) FROM w`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return 3 * W**2, last(ctx, f"{LOSS} SELECT k, grad((SELECT l FROM loss), val) FROM w ORDER BY k")


@case("from-ddx", "`grad(loss, w.val)` in `FROM w JOIN v ...`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    found = f"{LOSS} SELECT w.k, grad((SELECT l FROM loss), w.val) FROM w JOIN v ON w.k = v.k ORDER BY w.k"
    return 3 * W**2, last(ctx, found)


@case("from-ddx", "`jvp(e, t.x, 1)` of an expression row by row")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    found = ctx.sql("SELECT k, grad(sin(x), x) AS g, jvp(sin(x), x, 1) AS j FROM t ORDER BY k").to_pydict()
    return [np.cos(X), np.cos(X)], [found["g"], found["j"]]


@case("from-ddx", "`jvp(val, w.val, dw)`, `dw` a table")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return 3 * W**2 * V, last(ctx, f"{MOVED} SELECT k, grad(val * val * val, eps) FROM moved ORDER BY k")


@case("from-ddx", "`jvp` of a loss along a column of `w`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return [np.sum(3 * W**2 * V)], last(ctx, ALONG)


@case("from-ddx", "`vjp(f, val, cotangent)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    found = """
        WITH f AS (SELECT a.i AS k, SUM(a.val * w.val) AS val FROM a JOIN w ON a.j = w.k GROUP BY a.i)
        SELECT k, grad((SELECT SUM(f.val * c.val) FROM f JOIN c ON f.k = c.k), w.val) FROM w ORDER BY k"""
    return A.T @ Y[:2], last(ctx, found)


@case("from-ddx", "`ad.sql_all(ctx, [step_w1, step_w2])`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    found = xql_ffi.gradients(ctx, "SELECT SUM(v.val * w.val) FROM v JOIN w ON v.k = w.k", ["v.val", "w.val"])
    rows = [found.by[name].to_pydict() for name in ("v", "w")]
    return [W, V], [[d for _, d in sorted(zip(row["k"], row["d_val"], strict=True))] for row in rows]


@case("from-ddx", "`ddxdb.supported_functions()`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return [True], [any(str(line["signature"]) == "atan2(y, x)" for line in xql_ffi.rule_table().to_pylist())]


# ------------------------------------------------------------------------------------------- the branch of xarray-sql


@case("from-xarray-sql", "`grad(sqrt(power(u, 2) + power(v, 2)), u)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return X / np.hypot(X, Y), last(ctx, "SELECT k, grad(sqrt(power(u, 2) + power(v, 2)), u) FROM wind ORDER BY k")


@case("from-jax", "`custom_root`, implicit differentiation of a minimum")
def _(_: SessionContext) -> tuple[Any, Any]:
    """The minimum of the sum is at the mean of each value and 0."""
    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"k": [0, 1, 2], "y": X.tolist()}, name="data")
    ctx.from_pydict({"k": [0, 1, 2], "val": [0.0] * 3}, name="w")
    loss = "SELECT SUM(power(w.val - data.y, 2) + power(w.val, 2)) FROM w JOIN data ON w.k = data.k"
    objective = xql_ffi.objective(ctx, loss, "w.val")
    return V / 2, objective.solution(X / 2, "data.y").vjp(V)


@case("from-ddx", "a prepared step")
def _(_: SessionContext) -> tuple[Any, Any]:
    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"k": [0, 1, 2], "val": W.tolist()}, name="w")
    loss = "WITH loss AS (SELECT SUM(val * val) AS l FROM w)"
    step = xql_ffi.prepare(ctx, {"w": f"{loss} SELECT k, val - 0.1 * grad((SELECT l FROM loss), val) AS val FROM w"})
    step()
    step()
    return 0.64 * W, last(ctx, "SELECT k, val FROM w ORDER BY k")


@case("from-xarray-sql", "`grad(grad(u * u * v, u), v)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return 2 * X, last(ctx, "SELECT k, grad(grad(u * u * v, u), v) FROM wind ORDER BY k")


@case("from-xarray-sql", "`jvp(u * v, u, 2.0)`, `vjp(u * v, u, 2.0)`")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    return 4 * Y, last(ctx, "SELECT k, jvp(u * v, u, 2.0) + vjp(u * v, u, 2.0) FROM wind ORDER BY k")


@case("from-xarray-sql", "`AVG(grad(power(a * u - v, 2), a))` in a recursive term")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    a = 0.0
    for _ in range(5):
        a -= 0.1 * float(np.mean(2 * (a * X - Y) * X))
    loop = """
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, 0.0 AS a
            UNION ALL
            SELECT step + 1, a - 0.1 * {} FROM fit CROSS JOIN wind WHERE step < 5 GROUP BY step, a)
        SELECT a FROM fit WHERE step = 5"""
    calls = "AVG(grad(power(a * u - v, 2), a))", "grad(AVG(power(a * u - v, 2)), a)"
    return [[a], [a]], [last(ctx, loop.format(call)) for call in calls]


@case("from-xarray-sql", '`differentiate_sql("u * u * v", "u", ["u", "v"])`')
def _(ctx: SessionContext) -> tuple[Any, Any]:
    derivative = xql_ffi.differentiate_sql("u * u * v", "u", ["u", "v"])
    return 2 * X * Y, last(ctx, f"SELECT k, {derivative} FROM wind ORDER BY k")


@case("from-xarray-sql", "a backward pass written by hand with joins")
def _(ctx: SessionContext) -> tuple[Any, Any]:
    hidden, out = A @ W, (A @ W) ** 2
    found = """
        WITH hidden AS (SELECT a.i, SUM(a.val * w.val) AS z FROM a JOIN w ON a.j = w.k GROUP BY a.i),
             loss AS (SELECT AVG(z * z) AS l FROM hidden)
        SELECT k, grad((SELECT l FROM loss), val) FROM w ORDER BY k"""
    return 2 * hidden @ A / len(out), last(ctx, found)


@case("from-xarray-sql", "`ctx.sql(...).to_dataset(dims=[...])`")
def _(_: SessionContext) -> tuple[Any, Any]:
    ctx: Any = xql_ffi.register(xarray_sql.XarrayContext())
    data = xr.Dataset({"u": ("k", X, {"units": "m s-1"})}, coords={"k": [0, 1, 2]})
    ctx.from_dataset("data", data, chunks={"k": 3})
    result = ctx.sql("SELECT k, grad(u * u, u) AS d FROM data").to_dataset(dims=["k"]).sortby("k").load()
    annotated = xql_ffi.annotate(result, {"d": (("u * u", "m2 s-2"), "u")}, template=data)
    assert annotated["d"].attrs["units"] == "m s-1"
    return 2 * X, annotated["d"].values


# ---------------------------------------------------------------------------------------------------- all


@pytest.mark.parametrize(("page", "call"), [pytest.param(*key, id=" ".join(key)) for key in CASES])
def test_line(page: str, call: str, session: SessionContext) -> None:
    expected, found = CASES[page, call](session)
    np.testing.assert_allclose(np.asarray(found, dtype=float), np.asarray(expected, dtype=float), rtol=1e-9, atol=1e-12)
