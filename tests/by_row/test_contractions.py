"""Gradients by row whose sums of products are computed as arrays, beside those by DataFusion's joins and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from datafusion import SessionConfig, SessionContext

from support import sessions
from support.cases import query

WAYS = ("true", "dense", "sparse", "fallback")


def table(seed: int, sizes: dict[str, int], *, there: float = 1.0, nulls: float = 0.0) -> dict[str, list[Any]]:
    """A row for each number of an array, in an order of its own; so many of them, so many NULL."""
    rng = np.random.default_rng(seed)
    places = rng.permutation(int(np.prod(list(sizes.values()))))
    places = places[: max(1, round(there * len(places)))]
    keys = dict(zip(sizes, np.unravel_index(places, tuple(sizes.values())), strict=True))
    values = [None if rng.uniform() < nulls else float(value) for value in rng.normal(size=len(places))]
    return {**{name: key.tolist() for name, key in keys.items()}, "val": values}


LAYER = "z AS (SELECT x.i, w.o, SUM(x.val * w.val) AS val FROM x JOIN w ON x.k = w.k GROUP BY x.i, w.o)"
NETWORK = """h AS (SELECT i, o, tanh(val) AS val FROM (
        SELECT x.i, w.o, SUM(x.val * w.val) AS val FROM x JOIN w ON x.k = w.k GROUP BY x.i, w.o) q),
    z AS (SELECT h.i, v.o, SUM(h.val * v.val) AS val FROM h JOIN v ON h.o = v.k GROUP BY h.i, v.o)"""
# What the squares may come to times what the tanh may come to is no number.
KINKED = NETWORK.replace("tanh(val)", "0.5 * val * (1 + tanh(0.8 * (val + 0.04 * val * val * val)))")
ATTENTION = """s AS (SELECT x.i AS t, y.i AS u, SUM(x.val * y.val) / 2 AS val
        FROM x JOIN y ON x.k = y.k GROUP BY x.i, y.i),
    p AS (SELECT t, u, e / SUM(e) OVER (PARTITION BY t) AS val
          FROM (SELECT t, u, exp(val - MAX(val) OVER (PARTITION BY t)) AS e FROM s) q),
    z AS (SELECT p.t, y.k, SUM(p.val * y.val) AS val FROM p JOIN y ON p.u = y.i GROUP BY p.t, y.k)"""
CAUSAL = ATTENTION.replace("ON x.k = y.k GROUP", "ON x.k = y.k AND y.i <= x.i GROUP")
# A sixth of the rows of each side has no partner.
FILLED = """z AS (SELECT x.i, w.o, SUM(x.val * COALESCE(w.val, 0.5)) AS val
    FROM x LEFT JOIN w ON x.k = w.k + 1 GROUP BY x.i, w.o)"""
FILLED_BOTH = """z AS (SELECT x.i, w.o, SUM(COALESCE(x.val, 0.25) * COALESCE(w.val, 0.5)) AS val
    FROM x RIGHT JOIN w ON x.k = w.k + 1 GROUP BY x.i, w.o)"""
PRODUCTS = """z AS (SELECT i, o, SUM(p) AS val FROM (
    SELECT x.i, w.o, x.k AS k, x.val * w.val AS p FROM x JOIN w ON x.k = w.k) q GROUP BY i, o)"""
# The parameters of both layers are in one table, as those of a network that is trained in one statement.
SHARED = """h AS (SELECT i, o, tanh(val) AS val FROM (
        SELECT x.i, p.o, SUM(x.val * p.val) AS val FROM x JOIN p ON x.k = p.k WHERE p.layer = 0 GROUP BY x.i, p.o) q),
    z AS (SELECT h.i, p.o, SUM(h.val * p.val) AS val FROM h JOIN p ON h.o = p.k WHERE p.layer = 1 GROUP BY h.i, p.o)"""
LISTED = "z AS (SELECT x.i, w.o, SUM(x.val * w.val) AS val FROM x, w WHERE x.k = w.k AND w.o > 0 GROUP BY x.i, w.o)"
LISTED_THREE = """z AS (SELECT x.i, v.o, SUM(x.val * w.val * v.val) AS val
    FROM x, w, v WHERE x.k = w.k AND w.o = v.k AND v.o < 2 GROUP BY x.i, v.o)"""
STENCIL = "z AS (SELECT x.i + w.o AS c, SUM(x.val * w.val) AS val FROM x CROSS JOIN w GROUP BY x.i + w.o)"
SQUARES = "loss AS (SELECT SUM(val * val) / 7 AS l FROM z)"


def gradient(model: str, keys: str, variable: str, loss: str = SQUARES) -> str:
    return f"WITH {model}, {loss} SELECT {keys}, grad((SELECT l FROM loss), val) AS d FROM {variable}"


def where(model: str, condition: str) -> str:
    """A model whose first sum is over rows that fulfil a condition above their join."""
    return model.replace(" GROUP", f" WHERE {condition} GROUP", 1)


# By name: the statement, and how many sums of it are products, if it is said.
STATEMENTS: dict[str, tuple[str, int | None]] = {
    "a layer, by its rows": (gradient(LAYER, "i, k", "x"), 2),
    "a layer, by its weights": (gradient(LAYER, "k, o", "w"), 2),
    "two layers, by the first": (gradient(NETWORK, "k, o", "w"), 4),
    "two layers, by the second": (gradient(NETWORK, "k, o", "v"), 3),
    "two layers around GELU, by the first": (gradient(KINKED, "k, o", "w"), 4),
    "two layers around GELU, by the second": (gradient(KINKED, "k, o", "v"), 3),
    "attention, by its queries": (gradient(ATTENTION, "i, k", "x"), 4),
    "attention, by what it reads": (gradient(ATTENTION, "i, k", "y"), 5),
    "attention with a mask, by its queries": (gradient(CAUSAL, "i, k", "x"), 4),
    "attention with a mask, by what it reads": (gradient(CAUSAL, "i, k", "y"), 5),
    "a mask of expressions of keys": (
        gradient(LAYER.replace("ON x.k = w.k", "ON x.k = w.k AND (x.i + w.o) % 3 <> 1 AND x.i > w.o"), "i, k", "x"),
        2,
    ),
    "a condition of what no group is by": (
        gradient(LAYER.replace("ON x.k = w.k", "ON x.k = w.k AND x.val < w.val"), "i, k", "x"),
        0,
    ),
    "an expression of each side": (
        gradient(LAYER.replace("x.val * w.val", "tanh(x.val) * w.val / 2"), "i, k", "x"),
        2,
    ),
    "rows without a partner, by those that stay": (gradient(FILLED, "i, k", "x"), 2),
    "rows without a partner, by the others": (gradient(FILLED, "k, o", "w"), 2),
    "both sides filled, by those that stay": (gradient(FILLED_BOTH, "k, o", "w"), 2),
    "both sides filled, by the others": (gradient(FILLED_BOTH, "i, k", "x"), 2),
    "rows that a filter leaves": (gradient(LAYER.replace("JOIN w ON", "JOIN w ON w.o > 1 AND"), "k, o", "w"), 2),
    "a condition of one side above the join": (gradient(where(LAYER, "w.o > 1"), "k, o", "w"), 2),
    "conditions of both sides above the join": (gradient(where(LAYER, "w.o > 1 AND x.i <> 3"), "i, k", "x"), 2),
    "a condition of the factor above the join": (gradient(where(LAYER, "x.val > 0"), "i, k", "x"), 2),
    "a mask above the join": (gradient(where(LAYER, "w.o < x.i"), "i, k", "x"), 2),
    "attention with a mask above the join": (gradient(where(ATTENTION, "y.i <= x.i"), "i, k", "x"), 4),
    "a condition of a side that is a join": (
        gradient(ATTENTION.replace("ON p.u = y.i", "ON p.u = y.i AND p.t > 1"), "i, k", "x"),
        4,
    ),
    "a mask over a part of a key above the join": (
        gradient(where(LAYER, "w.o < x.i").replace("GROUP BY x.i", "GROUP BY x.i, x.k % 2"), "i, k", "x"),
        2,
    ),
    "a condition of what no group is by above the join": (gradient(where(LAYER, "x.val < w.val"), "i, k", "x"), 0),
    "two layers that share a table": (gradient(SHARED, "layer, k, o", "p"), 5),
    "tables that a condition joins": (gradient(LISTED, "i, k", "x"), 2),
    "three tables that conditions join": (gradient(LISTED_THREE, "k, o", "w"), None),
    "a condition above the products": (gradient(PRODUCTS.replace("q GROUP", "q WHERE o > 1 GROUP"), "k, o", "w"), 2),
    "a condition of the products": (gradient(PRODUCTS.replace("q GROUP", "q WHERE p > 0 GROUP"), "k, o", "w"), None),
    "a condition above an outer join": (gradient(where(FILLED, "w.o > 1"), "i, k", "x"), None),
    "a condition of missing rows above an outer join": (gradient(where(FILLED, "w.o IS NULL"), "i, k", "x"), None),
    "a condition that has a subquery": (gradient(where(LAYER, "x.i IN (SELECT k FROM w)"), "i, k", "x"), None),
    "a condition of a subquery of one row": (
        gradient(where(LAYER, "w.val < (SELECT MAX(val) FROM w)"), "k, o", "w"),
        None,
    ),
    "a stencil, by its cells": (gradient(STENCIL, "i, k", "x"), None),
    "a stencil, by its factors": (gradient(STENCIL, "k, o", "w"), None),
    "a condition above a subquery": (
        gradient(LAYER.replace("FROM x JOIN", "FROM (SELECT * FROM x WHERE x.k > 0) x JOIN"), "i, k", "x"),
        2,
    ),
}


def session(seed: int, *, there: float = 1.0, nulls: float = 0.0, partitions: int = 2) -> SessionContext:
    tables = {
        "x": table(seed, {"i": 9, "k": 6}, there=there, nulls=nulls),
        "y": table(seed + 1, {"i": 7, "k": 6}, there=there, nulls=nulls),
        "w": table(seed + 2, {"k": 6, "o": 5}, there=there, nulls=nulls),
        "v": table(seed + 3, {"k": 5, "o": 3}, there=there, nulls=nulls),
    }
    layers = [tables["w"], tables["v"]]
    tables["p"] = {name: layers[0][name] + layers[1][name] for name in ("k", "o", "val")}
    tables["p"]["layer"] = [number for number, layer in enumerate(layers) for _ in layer["val"]]
    return sessions.session(tables, config=SessionConfig().with_target_partitions(partitions))


def rows(ctx: SessionContext, statement: str, contractions: str) -> dict[tuple[Any, ...], float | None]:
    """The last column of a statement by the others."""
    query(ctx, f"SET xql.contractions = {contractions}")
    found: Sequence[dict[str, Any]] = query(ctx, statement).to_pylist()
    by_key = {tuple(list(row.values())[:-1]): list(row.values())[-1] for row in found}
    assert len(by_key) == len(found)
    return by_key


def plan(ctx: SessionContext, statement: str, contractions: str, explain: str = "EXPLAIN") -> str:
    query(ctx, f"SET xql.contractions = {contractions}")
    shown = query(ctx, f"{explain} {statement}").to_pylist()
    return str(shown[-1]["plan"])


def assert_same(ctx: SessionContext, statement: str, ways: Sequence[str] = WAYS) -> None:
    expected = rows(ctx, statement, "false")
    assert expected
    size = max((abs(value) for value in expected.values() if value is not None), default=1.0)
    for way in ways:
        found = rows(ctx, statement, way)
        assert found.keys() == expected.keys(), way
        for key, value in expected.items():
            mine = found[key]
            assert (mine is None) == (value is None), (way, key)
            if mine is not None and value is not None:
                np.testing.assert_allclose(mine, value, rtol=1e-11, atol=1e-12 * size, err_msg=way)


@pytest.mark.parametrize("name", STATEMENTS)
@pytest.mark.parametrize(("there", "nulls"), [(1.0, 0.0), (0.5, 0.0), (0.8, 0.2)], ids=["full", "sparse", "nulls"])
def test_gradients_are_those_of_joins(name: str, there: float, nulls: float) -> None:
    statement, count = STATEMENTS[name]
    for partitions in (1, 2):
        ctx = session(len(name), there=there, nulls=nulls, partitions=partitions)
        assert_same(ctx, statement)
        shown = plan(ctx, statement, "true")
        assert count is None or shown.count("ContractionExec") == count, shown
        assert "ContractionExec" not in plan(ctx, statement, "false")


SCORES = """s AS (
        SELECT x.i AS t, y.i AS u, SUM(x.val * y.val) / 4 AS val FROM x JOIN y ON x.k = y.k GROUP BY x.i, y.i),
    e AS (SELECT t, u, exp(val) AS val FROM s), d AS (SELECT t, SUM(val) AS val FROM e GROUP BY t)"""
OVER_THREE = "FROM e JOIN d ON e.t = d.t JOIN y ON e.u = y.i"


def weighted(product: str = "e.val / d.val * y.val", joins: str = OVER_THREE, key: str = "e.t") -> str:
    """The sum of what attention reads, by its weights."""
    return f"z AS (SELECT {key}, y.k, SUM({product}) AS val {joins} GROUP BY {key}, y.k)"


# By name: the same sum, of which a factor is divided here or there, over three relations in some order.
FORMS = {
    "in a relation of its own": """p AS (SELECT e.t, e.u, e.val / d.val AS val FROM e JOIN d ON e.t = d.t),
        z AS (SELECT p.t, y.k, SUM(p.val * y.val) AS val FROM p JOIN y ON p.u = y.i GROUP BY p.t, y.k)""",
    "divided above the relation": """p AS (SELECT e.t, e.u, e.val, d.val AS d FROM e JOIN d ON e.t = d.t),
        z AS (SELECT p.t, y.k, SUM(p.val / p.d * y.val) AS val FROM p JOIN y ON p.u = y.i GROUP BY p.t, y.k)""",
    "divided in the sum": weighted(),
    "divided at the end": weighted("e.val * y.val / d.val"),
    "divided beside the other factor": weighted("e.val * (y.val / d.val)"),
    "the other factor first": weighted("y.val * (e.val / d.val)"),
    "what divides first": weighted(joins="FROM d JOIN e ON e.t = d.t JOIN y ON e.u = y.i"),
    "what divides last": weighted(joins="FROM e JOIN y ON e.u = y.i JOIN d ON e.t = d.t"),
    "the other factor's relation first": weighted(joins="FROM y JOIN e ON e.u = y.i JOIN d ON e.t = d.t"),
    "joins in brackets": weighted(joins="FROM y JOIN (e JOIN d ON e.t = d.t) ON e.u = y.i"),
    "in a list": weighted(joins="FROM y, d, e WHERE e.t = d.t AND e.u = y.i"),
    "by the key of what divides": weighted(joins="FROM y, d, e WHERE e.t = d.t AND e.u = y.i", key="d.t"),
    "a function in the sum": weighted(
        "exp(s.val) / d.val * y.val", "FROM s JOIN d ON s.t = d.t JOIN y ON s.u = y.i", "s.t"
    ),
    "over windows": """w AS (SELECT t, u, val, SUM(val) OVER (PARTITION BY t) AS d FROM e),
        z AS (SELECT w.t, y.k, SUM(w.val / w.d * y.val) AS val FROM w JOIN y ON w.u = y.i GROUP BY w.t, y.k)""",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("variable", ["x", "y"])
def test_a_sum_is_found_in_whatever_form_it_is_written(form: str, variable: str) -> None:
    ctx = session(3)
    first, statement = (
        gradient(f"{SCORES}, {FORMS[of]}", "i, k", variable) for of in ("in a relation of its own", form)
    )
    assert_same(ctx, statement, ["true"])
    assert rows(ctx, statement, "true") == pytest.approx(rows(ctx, first, "true"), rel=1e-11)
    counts = [plan(ctx, each, "true").count("ContractionExec") for each in (first, statement)]
    assert counts[0] == counts[1], form


# By name: sums that are another number, or none of products, if their factors are computed before the join.
KEPT = {
    "whole numbers": "SUM(e.t * y.k / (e.u + 1) * e.val * y.val)",
    "whole numbers of one relation": "SUM(e.t / (d.t + 1) * y.val * e.val)",
    "a quotient of quotients": "SUM(e.val / (y.val / d.val))",
    "a part of the rows": "SUM(e.val / d.val * y.val) FILTER (WHERE d.val > 3)",
    "an average": "AVG(e.val / d.val * y.val)",
    "two sums": "SUM(e.val / d.val * y.val) + COUNT(e.val) + AVG(y.val * e.val)",
    "what divides by nothing": "SUM(CASE WHEN d.val > 3 THEN e.val / d.val * y.val END)",
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN"])
def test_other_sums_over_three_relations(name: str, join: str) -> None:
    ctx = session(6, there=0.8, nulls=0.1)
    sums = KEPT[name].replace("d.val", "COALESCE(d.val, 4)") if join == "LEFT JOIN" else KEPT[name]
    z = f"z AS (SELECT e.t, y.k, {sums} AS val FROM e JOIN y ON e.u = y.i {join} d ON e.t = d.t + 1 GROUP BY e.t, y.k)"
    for variable in "xy":
        assert_same(ctx, gradient(f"{SCORES}, {z}", "i, k", variable), ["true"])


def test_what_a_mask_leaves_out_is_not_multiplied() -> None:
    """An infinity and a NaN meet no row with which they have no group."""
    ctx = sessions.session(
        {
            "x": {"i": [0, 0, 1, 1], "k": [0, 1, 0, 1], "val": [1.0, 2.0, 3.0, 4.0]},
            "w": {"k": [0, 1, 0, 1], "o": [0, 0, 1, 1], "val": [5.0, 6.0, float("inf"), float("nan")]},
        }
    )
    statement = gradient(LAYER.replace("ON x.k = w.k", "ON x.k = w.k AND w.o < x.i"), "i, k", "x")
    assert_same(ctx, statement)
    found = rows(ctx, statement, "true")
    # z is 3 * 5 + 4 * 6 in the only group.
    expected = {(0, 0): 0.0, (0, 1): 0.0, (1, 0): 2 * 39 * 5 / 7, (1, 1): 2 * 39 * 6 / 7}
    assert found == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("variable", ["x", "w"])
@pytest.mark.parametrize("way", ["true", "sparse", "fallback", "false"])
def test_rows_without_a_partner(variable: str, way: str) -> None:
    """Where no weight is known, a value takes its place, and a group has no key of the weights."""
    ctx = sessions.session(
        {
            "x": {"i": [0, 0, 0, 1, 1], "k": [0, 1, 2, 0, None], "val": [1.0, 2.0, 3.0, 4.0, 5.0]},
            "w": {"k": [0, 0, 1, 7, None], "o": [0, 1, 0, 0, 0], "val": [6.0, 7.0, None, 8.0, 9.0]},
        }
    )
    model = FILLED.replace("w.k + 1", "w.k")
    found = rows(ctx, gradient(model, "i, k" if variable == "x" else "k, o", variable), way)
    z = {(0, 0): 1 * 6 + 2 * 0.5, (0, 1): 1 * 7, (0, None): 3 * 0.5, (1, 0): 4 * 6, (1, 1): 4 * 7, (1, None): 5 * 0.5}
    c = {group: 2 * value / 7 for group, value in z.items()}
    by_x = {
        (0, 0): c[0, 0] * 6 + c[0, 1] * 7,
        (0, 1): c[0, 0] * 0.5,
        (0, 2): c[0, None] * 0.5,
        (1, 0): c[1, 0] * 6 + c[1, 1] * 7,
        (1, None): c[1, None] * 0.5,
    }
    by_w = {(0, 0): c[0, 0] + c[1, 0] * 4, (0, 1): c[0, 1] + c[1, 1] * 4, (1, 0): None, (7, 0): 0.0, (None, 0): 0.0}
    expected = by_x if variable == "x" else by_w
    assert found.keys() == expected.keys()
    assert {key: value for key, value in found.items() if value is not None} == pytest.approx(
        {key: value for key, value in expected.items() if value is not None}, rel=1e-15
    )


@pytest.mark.parametrize("variable", ["x", "w"])
def test_what_fails_under_a_mask_is_not_computed(variable: str) -> None:
    tables = {
        "x": {"i": [0, 0, 1, 1], "k": [0, 1, 0, 1], "val": [1.0, 2.0, 3.0, 4.0]},
        "w": {"k": [0, 1, 0, 1], "o": [0, 0, 9, 9], "text": ["1.5", "2.5", "a", "?"], "val": [5.0, 6.0, 7.0, 8.0]},
    }
    model = LAYER.replace("x.val * w.val", "x.val * w.val * CAST(w.text AS DOUBLE)")
    model = model.replace("ON x.k = w.k", "ON x.k = w.k AND w.o <= x.i")
    keys = "i, k" if variable == "x" else "k, o"
    assert_same(sessions.session(tables), gradient(model, keys, variable))


def test_a_loop_computes_them_in_every_step() -> None:
    ctx = session(5)
    model = LAYER.replace("JOIN w", "JOIN fit AS w")
    statement = f"""WITH RECURSIVE fit AS (
            SELECT 0 AS step, k, o, val FROM w
            UNION ALL
            (WITH {model}, {SQUARES}
             SELECT step + 1, k, o, val - 0.01 * grad((SELECT l FROM loss), val) FROM fit WHERE step < 6))
        SELECT step, k, o, val FROM fit"""
    assert_same(ctx, statement)
    measured = plan(ctx, statement, "dense", "EXPLAIN ANALYZE")
    assert measured.count("ContractionExec") == 2, measured


def test_a_recursion_is_gone_back_through() -> None:
    """A recurrent layer, by the weights that all of its steps read."""
    step = """SELECT step + 1, k, val FROM (
        SELECT m.step, w.o AS k, SUM(m.val * w.val) / 4 AS val FROM model m JOIN w ON m.k = w.k
        WHERE m.step < 4 GROUP BY m.step, w.o) AS s"""
    statement = f"""WITH RECURSIVE
        model AS (SELECT 0 AS step, i AS k, SUM(val) AS val FROM x GROUP BY i UNION ALL {step}),
        loss AS (SELECT SUM(val * val) AS l FROM model WHERE step = 4)
        SELECT k, o, grad((SELECT l FROM loss), val) AS d FROM w"""
    for there in (1.0, 0.6):
        assert_same(session(8, there=there), statement)


PRODUCT = "SELECT x.i, w.o, SUM(x.val * w.val) AS val FROM x JOIN w ON x.k = w.k GROUP BY x.i, w.o"
# By name: a statement without a derivative by row, and how many sums of it are products.
PLAIN = {
    "a product": (PRODUCT, 1),
    "an average and a count beside it": (PRODUCT.replace("SUM(", "COUNT(*) AS n, AVG("), 1),
    "rows without a partner": (FILLED.removeprefix("z AS (").removesuffix(")"), 1),
    "rows that fulfil a condition": (PRODUCT.replace("GROUP", "WHERE x.i > 2 AND w.val < 1 GROUP"), 1),
    "a product of a product": (
        f"""WITH z AS ({PRODUCT}) SELECT z.i, v.o, SUM(z.val * v.val) AS val FROM z JOIN v ON z.o = v.k
        GROUP BY z.i, v.o HAVING COUNT(*) > 1""",
        2,
    ),
    "three relations, in whatever order": (
        """WITH d AS (SELECT i, SUM(val * val) AS val FROM x GROUP BY i)
        SELECT x.i, w.o, SUM(x.val / d.val * w.val) AS val FROM x JOIN w ON x.k = w.k JOIN d ON x.i = d.i
        GROUP BY x.i, w.o""",
        1,
    ),
    "a relation that is read twice": (
        f"WITH z AS ({PRODUCT}) SELECT a.i, b.o, a.val - b.val AS val FROM z a JOIN z b ON a.i = b.i AND a.o = b.o + 1",
        2,
    ),
    "a subquery": (f"SELECT i, k, val / (SELECT MAX(val) FROM ({PRODUCT}) q) AS val FROM x", 1),
    "names in quotes": (
        f'''SELECT "Q".i, "Q".o, "Q"."SUM" AS val FROM ({PRODUCT.replace("AS val", 'AS "SUM"')}) "Q"''',
        1,
    ),
    "a query that reads the one around it": (
        """SELECT DISTINCT w.k, (SELECT SUM(a.val * b.val) FROM w a JOIN v b ON a.o = b.k WHERE a.k = w.k) AS val
        FROM w""",
        0,
    ),
    "a training by hand": (
        """WITH RECURSIVE fit AS (SELECT 0 AS step, k, o, val FROM w UNION ALL
            SELECT step + 1, k, o, val FROM (
                SELECT f.step, x.i AS k, f.o, SUM(x.val * f.val) / 4 AS val FROM x JOIN fit f ON x.k = f.k
                WHERE f.step < 4 GROUP BY f.step, x.i, f.o) q WHERE k < 6)
        SELECT step, k, o, val FROM fit""",
        1,
    ),
    "a gradient beside it": (
        f"""WITH z AS ({PRODUCT}), loss AS (SELECT SUM(val * val) AS l FROM z)
        SELECT w.k, w.o, grad((SELECT l FROM loss), w.val) AS d
        FROM w JOIN (SELECT v.k, y.i, SUM(v.val * y.val) AS s FROM v JOIN y ON v.k = y.k GROUP BY v.k, y.i) q
        ON q.k = w.o AND q.i = w.k WHERE s < 100""",
        3,
    ),
    # It has other rows for each row of the query around it.
    "in a correlated subquery": (
        """SELECT y.k, y.i, (SELECT SUM(q.s) FROM (SELECT w.o, x.i, SUM(x.val * w.val) AS s
            FROM x JOIN w ON x.k = w.k WHERE x.i = y.i GROUP BY w.o, x.i) q) AS s FROM y""",
        0,
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_sums_are_computed_so_where_the_session_says_so(name: str) -> None:
    statement, count = PLAIN[name]
    for partitions, nulls in ((1, 0.0), (2, 0.2)):
        ctx = session(len(name), there=0.8, nulls=nulls, partitions=partitions)
        assert_same(ctx, statement, ["everywhere"])
        shown = plan(ctx, statement, "everywhere")
        assert shown.count("ContractionExec") == count, shown
        if name != "a gradient beside it":
            assert "ContractionExec" not in plan(ctx, statement, "true")


def test_plain_sums_of_prepared_statements_and_views() -> None:
    ctx = session(4)
    query(ctx, "SET xql.contractions = everywhere")
    query(ctx, f"CREATE VIEW z AS {PRODUCT}")
    query(ctx, f"PREPARE p(DOUBLE) AS {PRODUCT.replace('w.val)', 'w.val * $1)')}")
    once, twice = (
        {(row["i"], row["o"]): row["val"] for row in query(ctx, text).to_pylist()}
        for text in ("SELECT * FROM z", "EXECUTE p(2.0)")
    )
    assert twice == pytest.approx({key: 2 * value for key, value in once.items()})
    query(ctx, "CREATE TABLE t AS SELECT i, SUM(val) AS s FROM z GROUP BY i")
    query(ctx, f"INSERT INTO t SELECT i, val FROM ({PRODUCT}) q")
    assert query(ctx, "SELECT COUNT(*) AS n FROM t").to_pylist() == [{"n": 9 + 45}]


@pytest.mark.parametrize(("model", "keys", "variable"), [(SHARED, "layer, k, o", "p"), (NETWORK, "k, o", "v")])
def test_cotangents_that_several_sums_read_are_computed_once(model: str, keys: str, variable: str) -> None:
    shown = plan(session(5, partitions=1), gradient(model, keys, variable), "true")
    lines = [line.rsplit("| ", maxsplit=1)[-1].strip() for line in shown.splitlines()]
    # The derivative of the sum of squares, which both factors of the last layer read in the first model.
    of_squares = [line for line in lines if line.startswith("ProjectionExec") and "2 * " in line]
    assert len(of_squares) == 1, shown
    assert any("reads ∂cotangents" in line for line in lines) == (variable == "p"), shown


def test_what_readers_call_alike_is_asked_of_what_they_read() -> None:
    shown = plan(session(5, partitions=1), gradient(NETWORK, "k, o", "w"), "true")
    lines = [line for line in shown.splitlines() if "tanh(" in line]
    assert len(lines) > 1, shown
    assert all("CachedProjectionExec" in line for line in lines), shown


def test_what_stands_above_them_counts_on_constants() -> None:
    ctx = sessions.session({"w": {"k": [1, 2, 3], "val": [0.1, 0.2, 0.3]}})
    sums = "SELECT SUM(t) OVER (PARTITION BY c ORDER BY k) AS val FROM (SELECT k, 1 AS c, tanh(val) AS t FROM w) q"
    statement = gradient(f"z AS ({sums})", "k", "w", "loss AS (SELECT SUM(val) AS l FROM z)")
    found = {row["k"]: row["d"] for row in query(ctx, statement).to_pylist()}
    expected = {k: (4 - k) * (1 - np.tanh(k / 10) ** 2) for k in (1, 2, 3)}
    np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), rtol=1e-12)


def test_the_kernel_is_shown() -> None:
    ctx = session(3)
    statement = STATEMENTS["a layer, by its weights"][0]
    for way, kernel in [("dense", "dense"), ("sparse", "sparse"), ("fallback", "fallback")]:
        shown = plan(ctx, statement, way, "EXPLAIN ANALYZE")
        lines = [line for line in shown.splitlines() if "ContractionExec" in line]
        assert len(lines) == 2, shown
        for line in lines:
            assert f"{kernel}=1" in line, line
            assert ("density=100" in line) == (way != "fallback"), line


def test_the_option_has_its_values() -> None:
    ctx = session(3)
    with pytest.raises(
        Exception, match=r"xql\.contractions is one of true, false, everywhere, dense, sparse, fallback, not 3"
    ):
        query(ctx, "SET xql.contractions = 3")
