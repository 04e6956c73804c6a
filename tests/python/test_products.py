"""Jacobians of rows times vectors of rows, against JAX and against whole Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support import sessions

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

RNG = np.random.default_rng(7)
X, W = RNG.normal(size=(5, 3)), RNG.normal(size=3)
TABLES = {
    "x": {"i": np.indices(X.shape)[0].ravel(), "j": np.indices(X.shape)[1].ravel(), "val": X.ravel()},
    "w": {"j": np.arange(3), "val": W},
    "c": {"i": [0, 2, 4], "val": [1.0, -2.0, 0.5]},
    "t": {"j": [0, 2], "val": [0.5, -1.5]},
}
C, T = np.array([1.0, 0.0, -2.0, 0.0, 0.5]), np.array([0.5, 0.0, -1.5])
# Queries of rows by i, and the same in JAX.
LAYER = "SELECT x.i, tanh(SUM(x.val * w.val)) AS val FROM x JOIN w ON x.j = w.j GROUP BY x.i"
ROWS: dict[str, Callable[[Any], Any]] = {
    LAYER: lambda w: jnp.tanh(X @ w),
    f"SELECT i, val / SUM(val) OVER () AS val FROM (SELECT i, exp(val) AS val FROM ({LAYER}) AS h) AS e": (
        lambda w: jax.nn.softmax(jnp.tanh(X @ w))
    ),
    f"SELECT h.i, h.val * h.val - m.m AS val FROM ({LAYER}) AS h CROSS JOIN (SELECT AVG(val) AS m FROM w) AS m": (
        lambda w: jnp.tanh(X @ w) ** 2 - w.mean()
    ),
}


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    return sessions.session({name: pa.table(columns) for name, columns in TABLES.items()})


def column(frame: Any, key: str) -> Any:
    return frame.sort(key).to_arrow_table()["d"].to_numpy()


@pytest.mark.parametrize("query", ROWS)
def test_both_are_those_of_jax(ctx: SessionContext, query: str) -> None:
    f = ROWS[query]
    pulled = xql_ffi.pullback(ctx, query, "w.val", "SELECT i, val FROM c")
    np.testing.assert_allclose(column(pulled, "j"), jax.vjp(f, W)[1](C)[0], rtol=1e-12)
    pushed = xql_ffi.pushforward(ctx, query, "w.val", "SELECT j, val FROM t")
    np.testing.assert_allclose(column(pushed, "i"), jax.jvp(f, (W,), (T,))[1], rtol=1e-12)


def test_queries_as_frames_and_vectors_that_read_the_variable(ctx: SessionContext) -> None:
    """Vectors are constants, whatever they are computed from."""
    frame = ctx.sql(LAYER)
    f = ROWS[LAYER]
    pulled = xql_ffi.pullback(ctx, frame, "w.val", frame)
    np.testing.assert_allclose(column(pulled, "j"), jax.vjp(f, W)[1](f(W))[0], rtol=1e-12)
    pushed = xql_ffi.pushforward(ctx, frame, "w.val", ctx.sql("SELECT j, val * val FROM w"))
    np.testing.assert_allclose(column(pushed, "i"), jax.jvp(f, (W,), (W * W,))[1], rtol=1e-12)


def test_both_are_those_of_the_whole_jacobian() -> None:
    """With two keys, of which one may be NULL, in any order of the columns."""
    w = {"a": [1, 1, None, None], "b": ["u", "v", "u", "v"], "val": [0.5, -1.0, 2.0, 3.0]}
    vectors = {"b": ["v", "u"], "a": [None, 1], "c": [2.0, -1.0]}
    ctx = sessions.session({"w": w, "vectors": vectors})
    query = "SELECT a, b, val * SUM(val * val) OVER (PARTITION BY b) AS val FROM w"
    whole = xql_ffi.jacobian(ctx, query, "w.val")
    matrix = whole.matrix().toarray()
    given = {(a, b): c for b, a, c in zip(*vectors.values(), strict=True)}
    vector = [given.get((a, b), 0.0) for a, b in zip(*(whole.rows[key].to_pylist() for key in "ab"), strict=True)]
    order = [("a", "ascending"), ("b", "ascending")]
    pulled = xql_ffi.pullback(ctx, query, "w.val", "SELECT b, a, c FROM vectors").to_arrow_table().sort_by(order)
    np.testing.assert_allclose(pulled["d"].to_numpy(), matrix.T @ vector, rtol=1e-12)
    pushed = xql_ffi.pushforward(ctx, query, "w.val", "SELECT * FROM vectors").to_arrow_table().sort_by(order)
    np.testing.assert_allclose(pushed["d"].to_numpy(), matrix @ vector, rtol=1e-12)


def test_one_value(ctx: SessionContext) -> None:
    query = "SELECT SUM(val * val) AS val FROM w"
    pulled = xql_ffi.pullback(ctx, query, "w.val", "SELECT 3.0 AS c")
    np.testing.assert_allclose(column(pulled, "j"), 6 * W, rtol=1e-12)
    assert xql_ffi.pushforward(ctx, query, "w.val", "SELECT j, val FROM t").to_pydict() == {
        "d": [pytest.approx(2 * W @ T, rel=1e-12)]
    }


def test_no_vector_is_0(ctx: SessionContext) -> None:
    pulled = xql_ffi.pullback(ctx, LAYER, "w.val", "SELECT i, val FROM c WHERE i > 10")
    assert pulled.sort("j").to_pydict() == {"j": [0, 1, 2], "d": [0.0] * 3}
    pushed = xql_ffi.pushforward(ctx, LAYER, "w.val", "SELECT j, val FROM t WHERE j > 10")
    assert pushed.sort("i").to_pydict() == {"i": list(range(5)), "d": [0.0] * 5}


def test_through_a_recursion(ctx: SessionContext) -> None:
    query = """WITH RECURSIVE r AS (SELECT 0 AS s, j AS i, val FROM w
        UNION ALL SELECT s + 1, i, sin(val) * 2 FROM r WHERE s < 3) SELECT i, val FROM r WHERE s = 3"""

    def f(w: Any) -> Any:
        for _ in range(3):
            w = jnp.sin(w) * 2
        return w

    pulled = xql_ffi.pullback(ctx, query, "w.val", "SELECT i, val FROM c")
    np.testing.assert_allclose(column(pulled, "j"), jax.vjp(f, W)[1](np.array([1.0, 0.0, -2.0]))[0], rtol=1e-12)
    with pytest.raises(xql_ffi.UnsupportedRelationError, match="is a recursive query whose derivative by row"):
        xql_ffi.pushforward(ctx, query, "w.val", "SELECT j, val FROM t")


TWICE = "SELECT x.i, x.val * w.val FROM x JOIN w ON x.j = w.j"


@pytest.mark.parametrize(
    ("function", "query", "vector", "error", "why"),
    [
        (xql_ffi.pullback, LAYER, "SELECT j, val FROM t", ValueError, "the keys of the query .* 'i', 'val'"),
        (xql_ffi.pushforward, LAYER, "SELECT val FROM t", ValueError, "the keys of the relation .* 'j', 'val'"),
        (xql_ffi.pullback, "SELECT i, val, val FROM x", "SELECT i, val FROM c", ValueError, "unique"),
        (xql_ffi.pushforward, TWICE, "SELECT j, val FROM t", ValueError, "the columns 'i' do not tell the rows"),
        (xql_ffi.pushforward, "SELECT val * 2 FROM w", "SELECT j, val FROM t", ValueError, "no column tells the rows"),
        (xql_ffi.pullback, "SELECT i, val FROM c", "SELECT i, val FROM c", xql_ffi.VariableError, "val"),
        (xql_ffi.pushforward, "SELECT i, val FROM c", "SELECT j, val FROM t", xql_ffi.VariableError, "val"),
        (xql_ffi.pullback, 3, "SELECT i, val FROM c", TypeError, "must be a query in SQL or a DataFrame"),
    ],
)
def test_refused(ctx: SessionContext, function: Any, query: Any, vector: str, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        function(ctx, query, "w.val", vector)


def test_by_a_view() -> None:
    ctx = sessions.session({"w": {"k": [1, 2], "val": [0.5, 2.0]}})
    ctx.sql("CREATE VIEW v AS SELECT k, val FROM w").collect()
    query, ones = "SELECT k, val * val AS y FROM v", "SELECT k, 1.0 AS one FROM w"
    for function in (xql_ffi.pullback, xql_ffi.pushforward):
        np.testing.assert_allclose(column(function(ctx, query, "v.val", ones), "k"), [1.0, 4.0], rtol=1e-12)


def test_what_is_null_has_no_derivative() -> None:
    ctx = sessions.session({"w": {"k": [1, 2], "val": [None, 2.0]}})
    query = "SELECT k, val * val AS y FROM w"
    pushed = xql_ffi.pushforward(ctx, query, "w.val", "SELECT k, 1.0 AS t FROM w")
    assert pushed.sort("k").to_pydict()["d"] == [None, 4.0]


@pytest.mark.parametrize(
    ("query", "vector", "why"),
    [
        ("SELECT k, val * val AS y FROM w WHERE random() < 2", "SELECT k, 1.0 AS t FROM w", "draws random numbers"),
        (
            "SELECT k, val * val AS y FROM w",
            "SELECT a.k, 1.0 AS t FROM w a CROSS JOIN w b",
            "rows of the direction apart",
        ),
        ("SELECT k AS d, val * val AS y FROM w", "SELECT k, 1.0 AS t FROM w", "a key called 'd'"),
        ("SELECT k, val * val AS y FROM other", "SELECT k, 1.0 AS t FROM w", "does not read w.val"),
    ],
)
def test_a_direction_refused(query: str, vector: str, why: str) -> None:
    rows = {"k": [1, 2], "val": [0.5, 2.0]}
    ctx = sessions.session({"w": rows, "other": rows})
    with pytest.raises(ValueError, match=why):
        xql_ffi.pushforward(ctx, query, "w.val", vector)
    keyless = sessions.session({"w": {"val": [0.5, 2.0]}})
    with pytest.raises(ValueError, match="no column tells the rows of the relation apart"):
        xql_ffi.pushforward(keyless, "SELECT SUM(val) AS s FROM w", "w.val", "SELECT 1.0 AS t")


def test_the_matrix_of_rows_behind_an_offset() -> None:
    ctx = sessions.session({"w": {"k": [1, 2, 3], "val": [0.5, -1.0, 2.0]}})
    query = "SELECT k, val * val AS y FROM w ORDER BY k LIMIT 2 OFFSET 1"
    found = xql_ffi.jacobian(ctx, query, "w.val").matrix().toarray()
    np.testing.assert_allclose(found, [[0, -2, 0], [0, 0, 4]], rtol=1e-12)


def test_a_session_that_does_not_differentiate() -> None:
    ctx = sessions.session({"w": {"k": [1], "val": [1.0]}}, differentiates=False)
    with pytest.raises(ValueError, match="grad"):
        xql_ffi.pullback(ctx, "SELECT k, val * 2 FROM w", "w.val", "SELECT k, val FROM w")
