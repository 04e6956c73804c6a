"""Derivatives of the rows of a query by the rows of a relation, both in FROM.

The derivatives are those by differences: one cell of the variable is moved, and the query is computed again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext

import xql_ffi
from support.cases import query
from support.differences import central
from support.errors import Refused, assert_refused, refusals
from support.sessions import session

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

CELLS = [0.5, -1.25, 2.0, 0.75, -0.3]
TABLES: dict[str, dict[str, list[Any]]] = {
    "w": {"j": [1, 2, 3, 4, 5], "g": [0, 0, 1, 1, 1], "val": CELLS},
    "d": {"k": [1, 1, 2, 2, 3, 4], "j": [1, 2, 3, 1, 9, 4], "x": [3.0, 4.0, -1.0, 0.5, 2.0, 1.5]},
}
JOINED = "FROM w JOIN d ON d.j = w.j"
# Queries with a key `k` and a value `val`, of which each is computed from several cells of `w` or from one.
QUERIES = {
    "rows": "SELECT j AS k, val * val * val AS val FROM w",
    "sums": f"SELECT d.k, SUM(w.val * w.val * d.x) AS val {JOINED} GROUP BY d.k",
    "averages": f"SELECT d.k, AVG(sin(w.val) * d.x) + 1.0 AS val {JOINED} GROUP BY d.k",
    "variances": "SELECT g AS k, VAR_POP(val) * SUM(val) AS val FROM w GROUP BY g",
    "extrema": "SELECT g AS k, MAX(val * val) - MIN(val) AS val FROM w GROUP BY g",
    "a filter": "SELECT g AS k, SUM(exp(val)) FILTER (WHERE j <> 4) AS val FROM w WHERE val > -1 GROUP BY g",
    "one row": "SELECT 0 AS k, SUM(val * val) / SUM(val) AS val FROM w",
    "neighbours": "SELECT a.j AS k, a.val * b.val AS val FROM w a JOIN w b ON b.j = a.j + 1",
    "an outer join": "SELECT d.k * 10 + d.j AS k, coalesce(w.val * d.x, 7.0) AS val FROM d LEFT JOIN w ON d.j = w.j",
    "a union": """SELECT j AS k, val * 2 AS val FROM w UNION ALL
        SELECT g + 10 AS k, SUM(val * val) AS val FROM w GROUP BY g""",
    "a limit": "SELECT j AS k, val * val AS val FROM w ORDER BY j LIMIT 3",
    "a softmax": """WITH e AS (SELECT j, g, exp(val) AS e FROM w), t AS (SELECT g, SUM(e) AS t FROM e GROUP BY g)
        SELECT e.j AS k, e.e / t.t AS val FROM e JOIN t ON e.g = t.g""",
    "layers": """WITH a AS (SELECT d.k, tanh(SUM(w.val * d.x)) AS v FROM w JOIN d ON d.j = w.j GROUP BY d.k),
        b AS (SELECT a.k, a.v * SUM(o.v) AS v FROM a CROSS JOIN a o GROUP BY a.k, a.v)
        SELECT k, v + v * v AS val FROM b""",
    "a subquery": "SELECT j AS k, val * (SELECT AVG(val) FROM w) AS val FROM w",
    "a clamp": "SELECT g AS k, sqrt(SUM(greatest(val, 0.0))) AS val FROM w WHERE j <> 1 GROUP BY g",
    "a running sum": "SELECT j AS k, SUM(val * val) OVER (ORDER BY j) AS val FROM w",
    "a running sum of groups": "SELECT j AS k, SUM(val * val) OVER (PARTITION BY g ORDER BY j) + val AS val FROM w",
    "a sliding average": """SELECT j AS k,
        AVG(val) OVER (ORDER BY j ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS val FROM w""",
    "two windows": """SELECT j AS k, val * SUM(val) OVER (ORDER BY j) + val * AVG(val * val) OVER (ORDER BY j DESC
        ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS val FROM w""",
    "a window of windows": """SELECT k, SUM(s * s) OVER (ORDER BY k DESC) AS val
        FROM (SELECT j AS k, SUM(val) OVER (ORDER BY j) AS s FROM w) AS q""",
    "a partition": "SELECT j AS k, val / SUM(exp(val)) OVER (PARTITION BY g) AS val FROM w",
    "the row before": "SELECT j AS k, LAG(val * val, 1, 0.5) OVER (ORDER BY j) - val AS val FROM w",
    "the greatest so far": "SELECT j AS k, MAX(val) OVER (ORDER BY j) AS val FROM w",
    "the first": "SELECT j AS k, val * FIRST_VALUE(val) OVER (PARTITION BY g ORDER BY j) AS val FROM w",
    "a group's variance": "SELECT j AS k, VAR_POP(val) OVER (PARTITION BY g) AS val FROM w",
}


def session_at(cells: list[float]) -> SessionContext:
    return session({**TABLES, "w": {**TABLES["w"], "val": cells}})


def expected(sql: str) -> dict[tuple[Any, int], float]:
    """By differences, the derivatives by the keys of both rows."""
    keys = sorted({row["k"] for row in query(session_at(CELLS), sql).to_pylist()})
    found: dict[tuple[Any, int], float] = {}
    for number, cell in enumerate(TABLES["w"]["j"]):

        def at(step: float, number: int = number) -> list[float]:
            cells = [value + step * (number == other) for other, value in enumerate(CELLS)]
            rows = {row["k"]: row["val"] for row in query(session_at(cells), sql).to_pylist()}
            return [rows[key] for key in keys]

        found |= {(key, cell): value for key, value in zip(keys, central(at), strict=True)}
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_jacobians(name: str) -> None:
    ctx, sql = session_at(CELLS), QUERIES[name]
    wanted = expected(sql)
    statement = f"SELECT h.k, w.j, grad(h.val, w.val) AS d FROM ({sql}) AS h CROSS JOIN w"
    every = {(row["k"], row["j"]): row["d"] for row in query(ctx, statement).to_pylist()}
    assert every.keys() == wanted.keys()
    np.testing.assert_allclose([every[key] for key in wanted], list(wanted.values()), rtol=1e-7, atol=1e-9)
    # Those that are not 0, and the same from Python.
    rows = query(ctx, f"{statement} WHERE grad(h.val, w.val) <> 0").to_pylist()
    pairs = {(row["k"], row["j"]): row["d"] for row in rows}
    assert len(rows) == len(pairs)
    assert pairs == pytest.approx({key: value for key, value in every.items() if value != 0}, rel=1e-14)
    found = xql_ffi.jacobian(ctx, sql, "w.val")
    matrix = found.matrix().toarray()
    places = product(found.rows["k"].to_pylist(), found.columns["j"].to_pylist())
    assert dict(zip(places, matrix.ravel().tolist(), strict=True)) == pytest.approx(every, rel=1e-14)


@pytest.mark.parametrize("name", ["sums", "layers", "two windows", "a softmax"])
def test_sums_of_jacobians(name: str) -> None:
    """Over the rows of the query it is the gradient of the sum, over those of the variable the derivative along 1."""
    ctx, sql = session_at(CELLS), QUERIES[name]
    matrix = xql_ffi.jacobian(ctx, sql, "w.val").matrix().toarray()
    gradient = query(ctx, f"SELECT grad((SELECT SUM(val) FROM ({sql}) AS h), val) AS d FROM w ORDER BY j").to_pydict()
    np.testing.assert_allclose(matrix.sum(axis=0), gradient["d"], rtol=1e-12, atol=1e-14)
    along = query(
        ctx, f"SELECT h.k, MAX(jvp(h.val, w.val, 1.0)) AS d FROM ({sql}) AS h CROSS JOIN w GROUP BY h.k ORDER BY h.k"
    ).to_pydict()
    np.testing.assert_allclose(matrix.sum(axis=1), along["d"], rtol=1e-12, atol=1e-14)


H = f"WITH h AS ({QUERIES['sums']})"
DERIVATIVES = {(1, 1): 3.0, (1, 2): -10.0, (2, 3): -4.0, (2, 1): 0.5, (4, 4): 2.25}
SLOPES = {key: DERIVATIVES.get(key, 0.0) for key in product((1, 2, 4), (1, 2, 3, 4, 5))}


D = "SELECT h.k, w.j, grad(h.val, w.val) AS d FROM"
# Statements, each with a condition under which a pair of rows is there.
FORMS: dict[str, Callable[[int, int], bool]] = {
    f"{D} h, w": lambda k, j: True,
    f"{D} w JOIN h ON h.k = w.j": lambda k, j: k == j,
    f"{D} w JOIN (SELECT k, k AS j, val FROM h) AS h USING (j)": lambda k, j: k == j,
    f"{D} h JOIN w ON h.k < w.j WHERE w.g = 1": lambda k, j: k < j > 2,
    f"{D} h JOIN w ON grad(h.val, w.val) <> 0": lambda k, j: SLOPES[k, j] != 0,
    f"{D} h, w WHERE 0 <> grad(h.val, w.val) AND h.k < 4": lambda k, j: k < 4 and SLOPES[k, j] != 0,
    f"{D} h, w WHERE grad(h.val, w.val) > 1": lambda k, j: SLOPES[k, j] > 1,
    f"SELECT k, j, d FROM ({D} h, w) AS q WHERE d <> 0": lambda k, j: SLOPES[k, j] != 0,
    f"SELECT k, j, SUM(d) AS d FROM ({D} h, w) AS q GROUP BY k, j": lambda k, j: True,
    "SELECT h.k, w.j, SUM(grad(h.val, w.val)) AS d FROM h, w GROUP BY h.k, w.j": lambda k, j: True,
    "SELECT h.k, w.j, vjp(h.val, w.val, 0.5) * 2 AS d FROM h, w": lambda k, j: True,
    "SELECT h.k, w.j, grad(ln(h.val * h.val) * h.k, w.val) * h.val / h.k / 2 AS d FROM h, w": lambda k, j: True,
    "SELECT h.k, w.j, grad(h.val + w.g, w.val) AS d FROM h, w": lambda k, j: True,
    "SELECT a.k, w.j, grad(a.val * b.val, w.val) / (2 * a.val) AS d FROM h a JOIN h b ON a.k = b.k, w": lambda k, j: (
        True
    ),
    "SELECT v.k, w.j, grad(v.val, w.val) AS d FROM sums v, w": lambda k, j: True,
    "SELECT h.k, m.j, grad(h.val, m.val) AS d FROM h, w m": lambda k, j: True,
}


@pytest.mark.parametrize("statement", FORMS)
def test_forms(statement: str) -> None:
    ctx = session_at(CELLS)
    query(ctx, f"CREATE VIEW sums AS {QUERIES['sums']}")
    found = {(row["k"], row["j"]): row["d"] for row in query(ctx, f"{H} {statement}").to_pylist()}
    assert found == pytest.approx({key: value for key, value in SLOPES.items() if FORMS[statement](*key)}, rel=1e-13)


G = "grad(h.val, w.val)"
# What several nodes over one FROM give, as the same over the derivatives of all pairs.
STACKED = {
    f"SELECT SUM({G}) AS s FROM h, w WHERE {G} <> 0": "SUM(d) FROM g WHERE d <> 0",
    f"SELECT SUM({G}) AS s FROM h, w WHERE grad(2 * h.val, w.val) > 1": "SUM(d) FROM g WHERE d > 0.5",
    "SELECT vjp(h.val, w.val, 2.0) AS s FROM h, w WHERE vjp(h.val, w.val, 1.0) > 0": "2 * d FROM g WHERE d > 0",
    f"SELECT {G} AS d, SUM({G}) OVER (PARTITION BY w.j) AS s FROM h, w": "SUM(d) OVER (PARTITION BY j) FROM g",
    f"SELECT {G} AS d, COUNT(*) OVER () AS s FROM h, w WHERE {G} <> 0": "COUNT(*) OVER () FROM g WHERE d <> 0",
    f"SELECT SUM({G}) OVER () AS s FROM h, w WHERE {G} > 0": "SUM(d) OVER () FROM g WHERE d > 0",
    f"SELECT {G} AS s FROM h, h b, w WHERE h.k = b.k AND grad(b.val, w.val) > 0": "d FROM g WHERE d > 0",
    f"SELECT {G} AS s FROM h, w ORDER BY {G} DESC LIMIT 3": "d FROM g ORDER BY d DESC LIMIT 3",
    f"SELECT {G} AS d, SUM({G}) OVER () AS s FROM h, w WHERE grad((SELECT SUM(u.val) FROM w u), w.val) = 1": (
        "SUM(d) OVER () FROM g WHERE d IS NOT NULL"
    ),
}


@pytest.mark.parametrize("statement", STACKED)
def test_several_nodes(statement: str) -> None:
    ctx = session_at(CELLS)
    found = [row["s"] for row in query(ctx, f"{H} {statement}").to_pylist()]
    pairs = f"g AS (SELECT h.k, w.j, {G} AS d FROM h, w)"
    ctx.register_record_batches("g", [query(ctx, f"{H}, {pairs} SELECT * FROM g").to_batches()])
    (wanted,) = query(ctx, f"SELECT {STACKED[statement]}").to_pydict().values()
    assert sorted(found) == pytest.approx(sorted(wanted), rel=1e-13)


def test_pairs_are_looked_up() -> None:
    """Derivatives are summed by the numbers of both rows, and meet the pairs of rows by these, without a hash join."""
    ctx = session_at(CELLS)
    (*_, plan) = query(ctx, f"EXPLAIN {H} SELECT h.k, w.j, {G} AS d FROM h, w").to_pydict()["plan"]
    assert "UniqueKeyJoinExec: on=[∂of" in plan
    assert "HashJoinExec" not in plan


def test_lateral_in_a_query() -> None:
    """DataFusion makes a join of it, as it does where nothing is differentiated."""
    ctx = session_at(CELLS)
    h = """SELECT o.k, q.s AS val FROM (SELECT DISTINCT k FROM d) o,
        LATERAL (SELECT SUM(w.val * w.val) AS s FROM w WHERE w.j = o.k) q"""
    found = query(ctx, f"SELECT h.k, w.j, grad(h.val, w.val) AS d FROM ({h}) AS h, w").to_pylist()
    assert {(row["k"], row["j"]): row["d"] for row in found if row["d"]} == {
        (key, key): 2 * CELLS[key - 1] for key in (1, 2, 3, 4)
    }


def test_each_reference_is_still_a_variable_of_its_own() -> None:
    """What depends on the variable itself is differentiated by that, also beside a call that does not."""
    ctx = session_at(CELLS)
    rows = query(
        ctx, f"{H} SELECT h.val, grad(h.val * w.val, w.val) AS d, grad(h.val, w.val) AS e FROM h, w"
    ).to_pylist()
    assert all(row["d"] == row["val"] for row in rows)
    assert any(row["e"] for row in rows)


TWO = {
    "a product": "SELECT v.k, v.val * SUM(w.val * w.val) AS val FROM v JOIN w ON w.j > v.k GROUP BY v.k, v.val",
    "a union": "SELECT j AS k, val * val AS val FROM w UNION ALL SELECT -k AS k, 2 * val AS val FROM v",
    "one of them": "SELECT k, val * val AS val FROM v",
}


@pytest.mark.parametrize("name", TWO)
@pytest.mark.parametrize("below", ["", "WHERE grad(h.val, v.val) <> 1.5", "WHERE grad(h.val * 2, w.val) IS NOT NULL"])
def test_a_direction_by_two_tables(name: str, below: str) -> None:
    """It is the sum of those by one."""
    ctx = session({**TABLES, "w": {**TABLES["w"], "val": CELLS}, "v": {"k": [1, 2], "val": [0.5, -2.0]}})
    along_v, along_w = ("jvp(3 * h.val + h.k, v.val, v.k * 0.5)", "jvp(3 * h.val + h.k, w.val, w.j - 2.0)")
    both = "jvp(3 * h.val + h.k, v.val, v.k * 0.5, w.val, w.j - 2.0)"
    terms = [along_v] if name == "one of them" else [along_v, along_w]
    rows = "h CROSS JOIN v JOIN w ON w.j < 4"
    statement = f"WITH h AS ({TWO[name]}) SELECT h.k, v.k AS l, w.j, %s AS d FROM {rows} {below} ORDER BY 1, 2, 3"
    one = query(ctx, statement % both).column("d").to_pylist()
    assert one
    assert any(one)
    assert one == pytest.approx(query(ctx, statement % " + ".join(terms)).column("d").to_pylist(), rel=1e-13)


def test_cells_that_are_null() -> None:
    ctx = session({"w": {"j": [1, 2], "val": [None, 2.0]}})
    h = "(SELECT j AS k, coalesce(val, 1.0) * SUM(val) OVER () AS val FROM w)"
    found = query(ctx, f"SELECT h.k, w.j, grad(h.val, w.val) AS d FROM {h} AS h, w ORDER BY k, j").to_pydict()
    assert found["d"] == [None, 1.0, None, 4.0]
    assert len(xql_ffi.jacobian(ctx, f"SELECT * FROM {h} AS h", "w.val").pairs) == 2


# Hessians


def test_hessians() -> None:
    """Of a small network by the rows of two tables, against JAX."""
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=6)
    w, v = rng.normal(size=(3, 2)), rng.normal(size=2)

    def loss(parameters: jax.Array) -> jax.Array:
        first, second = parameters[:6].reshape(3, 2), parameters[6:]
        return jnp.sum((jnp.tanh(x @ first) @ second - y) ** 2)

    (i, j), (a, b) = np.indices(x.shape), np.indices(w.shape)
    ctx = session(
        {
            "x": {"i": i.ravel().tolist(), "j": j.ravel().tolist(), "val": x.ravel().tolist()},
            "y": {"i": list(range(6)), "val": y.tolist()},
            "w": {"a": a.ravel().tolist(), "b": b.ravel().tolist(), "val": w.ravel().tolist()},
            "v": {"b": [0, 1], "val": v.tolist()},
        }
    )
    sql = """WITH h AS (SELECT x.i, w.b, tanh(SUM(x.val * w.val)) AS val FROM x JOIN w ON x.j = w.a GROUP BY x.i, w.b),
        o AS (SELECT h.i, SUM(h.val * v.val) AS val FROM h JOIN v ON h.b = v.b GROUP BY h.i)
        SELECT SUM(power(o.val - y.val, 2)) FROM o JOIN y ON o.i = y.i"""
    found = xql_ffi.hessian(ctx, sql, ["w.val", "v.val"])
    expected = jax.hessian(loss)(jnp.concatenate([w.ravel(), v]))
    np.testing.assert_allclose(found.matrix().toarray(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("SELECT SUM(val) AS s FROM w GROUP BY g", [[2, 2, 0], [2, 2, 0], [0, 0, 2]]),
        ("SELECT AVG(val) AS s FROM w GROUP BY g", [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 2]]),
        (
            "SELECT SUM(w.val * d.x) AS s FROM w JOIN d ON w.k = d.k GROUP BY d.h",
            [[8, 0, 0], [0, 18, 30], [0, 30, 50]],
        ),
        ("SELECT SUM(val) OVER (ORDER BY k ROWS 1 PRECEDING) AS s FROM w", [[4, 2, 0], [2, 4, 2], [0, 2, 2]]),
        ("SELECT SUM(val) AS s FROM w", [[2, 2, 2], [2, 2, 2], [2, 2, 2]]),
        ("SELECT tan(val) AS s FROM w", [[2, 0, 0], [0, 2, 0], [0, 0, 2]]),
    ],
    ids=["groups", "means", "product", "frames", "one group", "rows"],
)
def test_hessians_where_the_gradient_is_0(values: str, expected: list[list[float]]) -> None:
    """A cotangent that is 0 there has a derivative all the same."""
    data = {"k": [1, 2, 3], "h": [1, 2, 2], "x": [2.0, 3.0, 5.0]}
    ctx = session({"w": {"k": [1, 2, 3], "g": [1, 1, 2], "val": [0.0, 0.0, 0.0]}, "d": data})
    loss = f"SELECT SUM(s * s) AS l FROM ({values}) AS q"
    np.testing.assert_allclose(xql_ffi.hessian(ctx, loss, "w.val").matrix().toarray(), expected, rtol=1e-12)
    objective = xql_ffi.objective(ctx, loss, "w.val")
    np.testing.assert_allclose(objective.hessian(np.zeros(3)), expected, rtol=1e-12)
    gradient = f"SELECT k, grad(({loss}), val) AS d FROM w"
    pairs = ctx.sql(f"WITH h AS ({gradient}) SELECT h.k AS i, w.k AS j, grad(h.d, w.val) AS d FROM h CROSS JOIN w")
    found = np.zeros((3, 3))
    for pair in pairs.to_pylist():
        found[pair["i"] - 1, pair["j"] - 1] = pair["d"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "value",
    ["var_samp(val)", "stddev(val)", "SUM(val) FILTER (WHERE k > 9)", "covar_samp(val, k)", "SUM(nullif(val, 2.0))"],
)
def test_groups_without_a_value(value: str) -> None:
    """Group 2 has one row, and no value: what stands in its place does not vary."""
    ctx = session({"w": {"k": [1, 2, 3], "g": [1, 1, 2], "val": [0.5, 1.5, 2.0]}})
    groups = f"SELECT g, coalesce({value}, 1.0) AS v FROM w GROUP BY g"
    found = ctx.sql(f"SELECT k, grad((SELECT SUM(v * v) FROM ({groups}) q), val) AS d FROM w ORDER BY k").to_pydict()
    assert found["d"][2] == 0.0
    pairs = ctx.sql(f"WITH h AS ({groups}) SELECT h.g, grad(h.v, w.val) AS d FROM h CROSS JOIN w WHERE w.k = 3")
    assert all(pair["d"] == 0.0 for pair in pairs.to_pylist())


def test_filled_values() -> None:
    """What fills a value has no derivative by it: nullif(val, 0) is NULL where val is 0."""
    ctx = session({"w": {"k": [1, 2], "val": [0.0, 2.0]}, "d": {"k": [1, 2], "x": [3.0, 5.0]}})
    for form in ("coalesce(nullif(val, 0), 1) * x", "coalesce(nullif(val * x, 0), x)"):
        loss = f"SELECT SUM(s * s) FROM (SELECT d.k, SUM({form}) AS s FROM w JOIN d ON w.k = d.k GROUP BY d.k) q"
        found = ctx.sql(f"SELECT grad(({loss}), val) AS d FROM w ORDER BY k").to_pydict()
        assert found == {"d": [0.0, 100.0]}


def test_keys_of_hessians() -> None:
    ctx = session({"w": {"place": [0.5, 1.5, 2.5], "val": [1.0, 2.0, -3.0]}})
    loss = "SELECT SUM(val * val * val * place) AS l FROM w"
    with pytest.raises(Exception, match="name or select columns that do"):
        xql_ffi.hessian(ctx, loss, "w.val").matrix()
    found = xql_ffi.hessian(ctx, loss, "w.val", keys={"w.val": ["place"]}).matrix().toarray()
    np.testing.assert_allclose(found, np.diag([3.0, 18.0, -45.0]))
    with pytest.raises(ValueError, match=r"differentiated by: w\.val, not val"):
        xql_ffi.hessian(ctx, loss, "w.val", keys={"val": ["place"]})


FRAMES = [
    "ORDER BY j",
    "ORDER BY j DESC",
    "PARTITION BY g ORDER BY j",
    "ORDER BY j ROWS 1 PRECEDING",
    "ORDER BY j ROWS BETWEEN CURRENT ROW AND 1 FOLLOWING",
    "ORDER BY j ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING",
    "ORDER BY j ROWS BETWEEN 2 PRECEDING AND 3 PRECEDING",
    "PARTITION BY g ORDER BY j DESC ROWS BETWEEN 1 PRECEDING AND 5000 FOLLOWING",
    "ORDER BY j ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ORDER BY g RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ORDER BY g",
]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("aggregate", ["SUM(val)", "AVG(val * val)", "SUM(val) FILTER (WHERE j <> 2)"])
def test_hessians_through_frames(aggregate: str, frame: str) -> None:
    """Cotangents of a row go to those in whose frames it is, and cotangents of these to those in theirs."""
    sums = f"SELECT j, {aggregate} OVER ({frame}) AS s FROM w"
    loss = f"SELECT SUM(COALESCE(s * s * j + sin(s), 0.25)) AS l FROM ({sums})"
    size = len(CELLS)

    def gradient_at(cells: list[float]) -> list[float]:
        statement = f"SELECT grad(({loss}), val) AS d FROM w ORDER BY j"
        return [float(value) for value in query(session_at(cells), statement).column("d").to_pylist()]

    def column(cell: int) -> list[float]:
        def at(step: float) -> list[float]:
            return gradient_at([value + step * (number == cell) for number, value in enumerate(CELLS)])

        return [float(value) for value in central(at)]

    expected = np.array([column(cell) for cell in range(size)])
    ctx = session_at(CELLS)
    found = xql_ffi.hessian(ctx, loss, "w.val").matrix().toarray()
    np.testing.assert_allclose(found, found.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)
    rows = f"""WITH g AS (SELECT j AS k, grad(({loss}), val) AS d FROM w)
        SELECT g.k, MAX(jvp(g.d, w.val, w.j - 2.0)) AS d FROM g CROSS JOIN w GROUP BY g.k ORDER BY g.k"""
    along = query(ctx, rows).column("d").to_pylist()
    np.testing.assert_allclose(along, expected @ (np.arange(size) - 1.0), rtol=1e-7, atol=1e-7)


# What varies with nothing

CONSTANT = ["COUNT(val)", "COUNT(val) * 2.0", "SUM(j)", "COALESCE(SUM(j), 1)", "3.0 + COUNT(*)"]


@pytest.mark.parametrize("value", CONSTANT)
def test_conditions_on_derivatives_that_are_0(value: str) -> None:
    """DataFusion pushes a condition that reads no column below an aggregate, which has a row even then."""
    ctx = session_at(CELLS)
    h = f"(SELECT {value} AS val FROM w) AS h"
    derivative = "grad(h.val, w.val)"
    for condition, is_true in [("<> 0", False), ("> 1", False), ("= 0", True), ("IS NULL", False), ("< 1", True)]:
        count = len(CELLS) if is_true else 0
        for selected in ("w.j, h.val", f"w.j, h.val, {derivative} AS d"):
            statements = [
                f"SELECT {selected} FROM {h} CROSS JOIN w WHERE {derivative} {condition}",
                f"SELECT {selected} FROM {h} JOIN w ON {derivative} {condition}",
                f"SELECT * FROM (SELECT {selected}, {derivative} AS e FROM {h} CROSS JOIN w) AS q WHERE e {condition}",
            ]
            expected = query(ctx, f"SELECT {value} AS val FROM w").column("val").to_pylist() * count
            for statement in statements:
                assert query(ctx, statement).column("val").to_pylist() == expected, statement
    assert not xql_ffi.jacobian(ctx, f"SELECT {value} AS val FROM w", "w.val").pairs.num_rows


# What is refused

R = "WITH RECURSIVE r AS (SELECT 0 AS s, j AS k, val AS z FROM w UNION ALL SELECT s + 1, k, z * z FROM r WHERE s < 2)"
REFUSED = [
    Refused("another_name", "SELECT grad(a.val, b.val) FROM w a, w b", ["does not vary", "differentiate by a.val"]),
    Refused("recursion", f"{R} SELECT grad(r.z, w.val) FROM r, w", ["does not vary with w.val"]),
    Refused(
        "one_of_two_variables",
        "WITH h AS (SELECT val * val AS val FROM w) SELECT jvp(h.val * v.val, v.val, 1.0, w.val, 1.0) FROM h, w, w v",
        ["does not vary with w.val"],
    ),
]


@pytest.fixture(scope="module")
def ctx() -> SessionContext:
    return session({**TABLES, "t": {"id": [1]}})


@refusals(REFUSED)
def test_refused(ctx: SessionContext, case: Refused) -> None:
    assert_refused(ctx, case)


@pytest.mark.parametrize(
    ("sql", "wrt", "options", "message"),
    [
        ("SELECT SUM(val) FROM w", "val", {}, "without its relation"),
        ("SELECT SUM(val) FROM w", "m.val", {}, "no table called 'm'"),
        ("SELECT SUM(val) FROM w", "w.x", {}, "no column 'x'"),
        ("SELECT SUM(val) FROM w", "w.val", {"keys": ["n"]}, "no column 'n'"),
    ],
)
def test_errors_of_jacobian(ctx: SessionContext, sql: str, wrt: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        xql_ffi.jacobian(ctx, sql, wrt, **options)


def test_keys_that_are_null() -> None:
    ctx = session({"w": {"j": [2, None, 1], "val": [1.0, 2.0, 3.0]}})
    found = xql_ffi.jacobian(ctx, "SELECT j, val * val AS v FROM w", "w.val")
    assert found.rows["j"].to_pylist() == [1, 2, None]
    assert found.matrix().toarray().tolist() == [[6.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 4.0]]


def test_keys_of_a_dictionary() -> None:
    keys = pa.array(["b", None, "a"]).dictionary_encode()
    ctx = session({"w": pa.table({"j": keys, "val": [1.0, 2.0, 3.0]})})
    found = xql_ffi.jacobian(ctx, "SELECT j, val * val AS v FROM w", "w.val")
    assert found.rows["j"].to_pylist() == ["a", "b", None]
    assert found.matrix().toarray().tolist() == [[6.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 4.0]]


def test_columns_of_one_name(ctx: SessionContext) -> None:
    with pytest.raises(ValueError, match="two columns called 'j'"):
        xql_ffi.jacobian(ctx, "SELECT a.j, b.j, a.val FROM w a JOIN w b ON a.j = b.j", "w.val")


def test_rows_that_nothing_tells_apart(ctx: SessionContext) -> None:
    found = xql_ffi.jacobian(ctx, "SELECT g, val * val AS val FROM w", "w.val")
    assert len(found.pairs) == len(CELLS)
    with pytest.raises(ValueError, match="'g' do not tell the rows apart"):
        found.matrix()
    found = xql_ffi.jacobian(ctx, "SELECT SUM(val * val) AS val FROM w", "w.val", keys=["j"])
    assert math.isclose(found.matrix().sum(), 2 * sum(CELLS))


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_small_side_of_a_cross_join_is_held(partitions: int) -> None:
    """A cross join makes a batch for each row that it holds, and DataFusion guesses how many rows groups are."""
    samples, weights = np.indices((40, 3))
    values = np.linspace(-1, 1, samples.size).tolist()
    x = {"i": samples.ravel().tolist(), "j": weights.ravel().tolist(), "val": values}
    config = SessionConfig().with_target_partitions(partitions)
    ctx = session({"x": x, "w": {"j": [0, 1, 2], "val": [0.1, 0.2, 0.3]}}, config=config)
    h = "h AS (SELECT x.i, SUM(x.val * w.val) AS val FROM x JOIN w ON x.j = w.j GROUP BY x.i)"
    statement = f"WITH {h} SELECT h.i, w.j, grad(h.val, w.val) AS d FROM h CROSS JOIN w"
    analyzed = ctx.sql(f"EXPLAIN ANALYZE {statement}").to_pydict()["plan"][0]
    assert re.search(r"CrossJoinExec.*build_input_rows=3\b", analyzed)
    found = query(ctx, f"{statement} ORDER BY h.i, w.j").to_pydict()
    assert found == {**{name: x[name] for name in "ij"}, "d": pytest.approx(values, rel=1e-14)}


@pytest.mark.parametrize("keys", [[3, 1, 2], [1, 2, 3], [1, None, 2]])
def test_the_order_of_rows(keys: list[int | None]) -> None:
    """Rows that are in the order of their keys are not sorted again."""
    ctx = session({"w": {"a": [1, 1, 0], "j": keys, "val": [1.0, 2.0, 3.0]}})
    found = xql_ffi.jacobian(ctx, "SELECT a, j, val * val AS v FROM w", "w.val")
    rows = [tuple(row.values())[:2] for row in found.rows.to_pylist()]
    assert rows == sorted(zip([1, 1, 0], keys, strict=True), key=lambda row: (row[0], row[1] is None, row[1]))
