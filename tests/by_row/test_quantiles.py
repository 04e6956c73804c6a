"""Derivatives of quantiles: those of the rows between which they lie, each times its share."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support.differences import central
from support.stock import ON_STOCK

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

RNG = np.random.default_rng(7)
N = 23
X = RNG.permutation(np.cumsum(RNG.uniform(0.1, 2.0, N)))
G = RNG.integers(0, 3, N)
TABLES = {
    "w": {"id": list(range(N)), "g": G.tolist(), "t": RNG.permutation(N).tolist(), "val": X.tolist()},
    "p": {"w": [1.5], "b": [0.25]},
    "ties": {"id": [0, 1, 2, 3, 4, 5], "val": [1.0, 2.0, 2.0, 2.0, 5.0, 7.0], "a": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]},
    "zeros": {"id": [0, 1, 2, 3], "val": [-0.0, 0.0, -1.0, 3.0]},
    "holes": {
        "id": list(range(7)),
        "val": [3.0, None, 1.0, math.nan, math.inf, None, 2.0],
        "k": [1, 1, 1, 1, 1, 2, None],
    },
    "keys": {
        "id": list(range(8)),
        "k": [-0.0, 0.0, 0.0, math.nan, math.nan, None, None, 1.0],
        "val": [1.0, 2.0, 4.0, 8.0, 17.0, 35.0, 70.0, 140.0],
    },
    "none": pa.table({"id": [0, 1], "val": pa.array([None, None], pa.float64())}),
}
# As SQL writes them, with the part of the values below.
QUANTILES = [
    ("median({0})", 0.5),
    ("percentile_cont({0}, 0.37)", 0.37),
    # DataFusion 54 takes literals only.
    ("quantile_cont({0}, 1 - 0.1)" if ON_STOCK else "quantile_cont({0}, 0.9)", 0.9),
    ("percentile_cont(0.25) WITHIN GROUP (ORDER BY {0})", 0.25),
    ("percentile_cont(0.25) WITHIN GROUP (ORDER BY {0} DESC)", 0.75),
    ("percentile_cont({0}, 0)", 0.0),
    ("percentile_cont({0}, 1.0)", 1.0),
]


def shares(values: np.ndarray, p: float) -> np.ndarray:
    """The shares of values without ties in a quantile, of which DataFusion keeps six digits."""
    place = p * (len(values) - 1)
    low = math.floor(place)
    above = math.trunc((place - low) * 1e6) / 1e6
    found = np.zeros(len(values))
    order = np.argsort(values)
    found[order[low]] = 1 - above
    if above:
        found[order[low + 1]] = above
    return found


def column(ctx: SessionContext, sql: str, name: str = "d") -> list[float]:
    return ctx.sql(sql).to_pydict()[name]


@pytest.mark.parametrize(("quantile", "p"), QUANTILES)
def test_of_all_rows(session: SessionContext, quantile: str, p: float) -> None:
    """The shares of the rows: those of JAX but for the digits that DataFusion cuts, and those by differences."""
    sql = f"SELECT grad((SELECT {quantile.format('val * val')} FROM w), val) AS d FROM w ORDER BY id"
    found = column(session, sql)
    np.testing.assert_allclose(found, 2 * X * shares(X, p), rtol=1e-9)
    expected = jax.grad(lambda x: jnp.quantile(x * x, p))(jnp.asarray(X))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * 2 * X.max())

    def value(row: int, step: float) -> list[float]:
        moved = f"SELECT CASE WHEN id = {row} THEN val + {step!r} ELSE val END AS val FROM w"
        return column(session, f"SELECT {quantile.format('val * val')} AS v FROM ({moved})", "v")

    for row in map(int, np.flatnonzero(found)):
        np.testing.assert_allclose(central(functools.partial(value, row)), found[row], rtol=1e-8)


@pytest.mark.parametrize(("quantile", "p"), QUANTILES[:4])
@pytest.mark.parametrize("condition", ["true", "id % 3 > 0", "CASE WHEN id > 4 THEN id % 2 = 0 END"])
def test_of_groups(session: SessionContext, quantile: str, p: float, condition: str) -> None:
    """By row, by a parameter, and as windows, in which a row has its own share."""
    takes_part = {
        "true": np.ones(N, bool),
        "id % 3 > 0": np.arange(N) % 3 > 0,
    }.get(condition, (np.arange(N) > 4) & (np.arange(N) % 2 == 0))
    expected = np.zeros(N)
    for group in range(3):
        rows = np.flatnonzero((group == G) & takes_part)
        expected[rows] = shares(X[rows], p)
    filtered = f"FILTER (WHERE {condition})"
    groups = f"SELECT g, {quantile.format('val')} {filtered} AS q FROM w GROUP BY g"
    found = column(session, f"SELECT grad((SELECT SUM(q * (g + 1)) FROM ({groups})), val) AS d FROM w ORDER BY id")
    np.testing.assert_allclose(found, expected * (G + 1), rtol=1e-9)
    moved = quantile.format("sin(p.w * val)")
    by_parameter = f"SELECT g, grad({moved} {filtered}, w) AS d FROM w CROSS JOIN p GROUP BY g, w ORDER BY g"
    along = np.zeros(3)
    for group in range(3):
        rows = np.flatnonzero((group == G) & takes_part)
        along[group] = shares(np.sin(1.5 * X[rows]), p) @ (X[rows] * np.cos(1.5 * X[rows]))
    np.testing.assert_allclose(column(session, by_parameter), along, rtol=1e-9)
    if "WITHIN" not in quantile:
        window = f"{quantile.format('val')} {filtered} OVER (PARTITION BY g)"
        own = column(session, f"SELECT grad({window}, val) AS d FROM w ORDER BY id")
        np.testing.assert_allclose(own, expected, rtol=1e-9)
        moved = f"SELECT g, jvp({window}, val, g + id) AS d FROM w ORDER BY id"
        sums = np.array([expected[group == G] @ (G + np.arange(N))[group == G] for group in range(3)])
        np.testing.assert_allclose(column(session, moved), sums[G], rtol=1e-9)
        by_row = f"SELECT grad((SELECT SUM(q * q) FROM (SELECT {window} AS q FROM w)), val) AS d FROM w ORDER BY id"
        medians = np.array([expected[group == G] @ X[group == G] for group in range(3)])
        sizes = np.bincount(G)
        np.testing.assert_allclose(column(session, by_row), expected * 2 * (medians * sizes)[G], rtol=1e-5)


@pytest.mark.parametrize("frame", ["ROWS 3 PRECEDING", "RANGE BETWEEN 2 PRECEDING AND 1 FOLLOWING"])
@pytest.mark.parametrize(("quantile", "p"), QUANTILES[:2])
def test_of_frames(session: SessionContext, quantile: str, p: float, frame: str) -> None:
    """A quantile over frames that move has a derivative by row."""
    window = f"{quantile.format('val')} OVER (ORDER BY t {frame})"
    sql = f"SELECT grad((SELECT SUM(q * t) FROM (SELECT {window} AS q, t FROM w)), val) AS d FROM w ORDER BY id"
    times = np.array(TABLES["w"]["t"])
    before, after = (3, 0) if frame.startswith("ROWS") else (2, 1)
    expected = np.zeros(N)
    for time in times:
        rows = np.flatnonzero((times >= time - before) & (times <= time + after))
        expected[rows] += time * shares(X[rows], p)
    np.testing.assert_allclose(column(session, sql), expected, rtol=1e-9, atol=1e-12)


def test_frames_are_refused_forward(session: SessionContext) -> None:
    for sql in (
        "SELECT jvp(median(val) OVER (ORDER BY t ROWS 3 PRECEDING), val, 1) FROM w",
        "SELECT grad(median(val) OVER (ORDER BY t ROWS 3 PRECEDING), val) FROM w",
    ):
        with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"median.*whole partition.*grad\(\(SELECT"):
            session.sql(sql).execution_plan()


@pytest.mark.parametrize(("quantile", "p"), QUANTILES)
def test_equal_values(session: SessionContext, quantile: str, p: float) -> None:
    """Rows with equal values share evenly, and in a direction move as for a growing variable."""
    by_position = shares(np.arange(6.0), p)
    even = by_position.copy()
    even[1:4] = by_position[1:4].sum() / 3
    sql = f"SELECT grad((SELECT {quantile.format('val')} FROM ties), val) AS d FROM ties ORDER BY id"
    np.testing.assert_allclose(column(session, sql), even, rtol=1e-9)
    if "WITHIN" not in quantile:
        window = f"SELECT grad({quantile.format('val')} OVER (), val) AS d FROM ties ORDER BY id"
        np.testing.assert_allclose(column(session, window), even, rtol=1e-9)
    forward = quantile.format("val + (e - 1) * a")
    sql = f"SELECT grad({forward}, e) AS d FROM ties CROSS JOIN (SELECT 1.0 AS e) GROUP BY e"
    np.testing.assert_allclose(column(session, sql), by_position @ np.arange(1.0, 7.0), rtol=1e-9)


def test_extremes_are_those_of_min_and_max(session: SessionContext) -> None:
    # To the `min` of DataFusion 54 -0 is less than 0, while a quantile shares evenly.
    for table, rows in (("ties", "TRUE"), *((("zeros", "id < 2"), ("zeros", "TRUE")) if ON_STOCK else ())):
        of = f"{table} WHERE {rows}"
        for quantile, extreme in (("percentile_cont(val, 0)", "min(val)"), ("percentile_cont(val, 1)", "max(val)")):
            one, other = (
                column(session, f"SELECT grad((SELECT {f} FROM {of}), val) AS d FROM {table} ORDER BY id")
                for f in (quantile, extreme)
            )
            assert one == pytest.approx(other), (table, rows, quantile)


def test_what_takes_no_part(session: SessionContext) -> None:
    """NULLs are no values, NaN is the greatest, and rows without a share do not count, whatever they hold."""
    sql = "SELECT grad((SELECT median(val) FROM holes), val) AS d FROM holes ORDER BY id"
    assert column(session, sql) == [1.0, None, 0.0, 0.0, 0.0, None, 0.0]
    groups = "SELECT median(val) AS q FROM holes GROUP BY k"
    found = column(session, f"SELECT grad((SELECT SUM(q) FROM ({groups})), val) AS d FROM holes ORDER BY id")
    assert found == [0.5, None, 0.0, 0.0, 0.5, None, 1.0]
    assert column(session, "SELECT grad((SELECT median(val) FROM none), val) AS d FROM none") == [None, None]
    sql = "SELECT grad(median(val * e), e) AS d FROM none CROSS JOIN (SELECT 1.0 AS e) GROUP BY e"
    assert column(session, sql) == [None]
    infinite = "SELECT grad(median(val * e), e) AS d FROM holes CROSS JOIN (SELECT 1.0 AS e) GROUP BY e"
    assert column(session, infinite) == [3.0]
    assert column(session, "SELECT grad((SELECT median(val) FROM w WHERE false), val) AS d FROM w") == [None] * N


def test_keys_that_are_equal(session: SessionContext) -> None:
    """Groups are those that DataFusion makes of zeros, NaN and NULL: derivatives times values are medians."""
    medians = column(session, "SELECT k, median(val) AS d FROM keys GROUP BY k")
    forward = "SELECT k, grad(median(val * e), e) AS d FROM keys CROSS JOIN (SELECT 1.0 AS e) GROUP BY k, e"
    assert sorted(column(session, forward)) == sorted(medians)
    groups = "SELECT median(val) AS q FROM keys GROUP BY k"
    by_row = f"SELECT grad((SELECT SUM(q) FROM ({groups})), val) * val AS d FROM keys"
    assert sum(column(session, by_row)) == pytest.approx(sum(medians))
    partitions = "SELECT val, median(val) OVER (PARTITION BY k) AS q FROM keys"
    values = column(session, f"SELECT DISTINCT q AS d FROM ({partitions})")
    own = column(session, "SELECT grad(median(val) OVER (PARTITION BY k), val) * val AS d FROM keys")
    assert sum(own) == pytest.approx(sum(values))


def test_types(session: SessionContext) -> None:
    sql = "SELECT grad(median(CAST(val * e AS FLOAT)), e) AS d FROM w CROSS JOIN (SELECT 1.0 AS e) GROUP BY e"
    assert column(session, sql) == pytest.approx([np.median(X)])
    single = "(SELECT CAST(val AS FLOAT) AS v, id FROM w)"
    sql = f"SELECT grad((SELECT percentile_cont(v, 0.3) FROM {single} AS s), v) AS d FROM {single} AS s ORDER BY id"
    assert column(session, sql) == pytest.approx(shares(X, 0.3).tolist())
    whole = "SELECT grad((SELECT median(CAST(val AS INT)) FROM w), val) AS d FROM w"
    assert column(session, whole) == [0.0] * N


def test_second_derivatives(session: SessionContext) -> None:
    """Which rows are picked is constant, what they are computed from is not."""
    sql = """SELECT grad(grad(percentile_cont(exp(w * val / 10), 0.3), w), w) AS d FROM w CROSS JOIN p GROUP BY w"""
    expected = shares(X, 0.3) @ (np.exp(0.15 * X) * (X / 10) ** 2)
    assert column(session, sql) == pytest.approx([expected])
    norm = """WITH g AS (SELECT grad((SELECT percentile_cont(val * val, 0.3) FROM w), val) AS d FROM w)
              SELECT grad((SELECT SUM(d * d) FROM g), val) AS d FROM w ORDER BY id"""
    np.testing.assert_allclose(column(session, norm), 8 * X * shares(X, 0.3) ** 2, rtol=1e-9)
    linear = "SELECT grad(grad(median(val) OVER (), val), val) AS d FROM w"
    assert column(session, linear) == [0.0] * N


def test_several_in_one_node(session: SessionContext) -> None:
    """The trimmed range, and what else the same rows give."""
    value = "percentile_cont(val, 0.75) - percentile_cont(val, 0.25) + AVG(val) * median(val) - MAX(val)"
    found = column(session, f"SELECT grad((SELECT {value} FROM w), val) AS d FROM w ORDER BY id")
    expected = shares(X, 0.75) - shares(X, 0.25) + np.median(X) / N + X.mean() * shares(X, 0.5)
    expected[X.argmax()] -= 1
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_through_other_nodes(session: SessionContext) -> None:
    """Below joins, above windows and unions, in a loop, and beside the variable."""
    joined = """WITH m AS (SELECT g, median(val) AS q FROM w GROUP BY g)
                SELECT grad((SELECT SUM(abs(w.val - m.q)) FROM w JOIN m USING (g)), val) AS d FROM w ORDER BY id"""

    def loss(x: jax.Array) -> jax.Array:
        groups = [x[np.flatnonzero(g == G)] for g in range(3)]
        return sum((jnp.sum(jnp.abs(group - jnp.median(group))) for group in groups), jnp.zeros(()))

    found = np.array(column(session, joined))
    expected = np.array(jax.grad(loss)(jnp.asarray(X)))
    off_center = np.array([x != np.median(X[g == G]) for x, g in zip(X, G, strict=True)])
    np.testing.assert_allclose(found[off_center], expected[off_center], atol=1e-12)
    centered = "SELECT id, val, val - AVG(val) OVER () AS z FROM w"
    above = f"SELECT grad((SELECT median(z) FROM ({centered})), val) AS d FROM w ORDER BY id"
    np.testing.assert_allclose(column(session, above), shares(X, 0.5) - 1 / N, atol=1e-12)
    own = f"WITH c AS ({centered}) SELECT grad(median(z) OVER (), val) AS d FROM c ORDER BY id"
    np.testing.assert_allclose(column(session, own), shares(X, 0.5) - 1 / N, atol=1e-12)
    correlated = "SELECT grad((SELECT median(b.val) FROM w b WHERE b.g = w.g) * val, val) AS d FROM w ORDER BY id"
    medians = np.array([np.median(X[g == G]) for g in range(3)])
    own_share = np.zeros(N)
    for g in range(3):
        own_share[g == G] = shares(X[g == G], 0.5)
    np.testing.assert_allclose(column(session, correlated), medians[G] + X * own_share, rtol=1e-9)
    loop = """WITH RECURSIVE r AS (SELECT 0 AS step, id, val FROM w UNION ALL
                 SELECT step + 1, id, val - 0.5 * median(val) OVER () FROM r WHERE step < 2)
              SELECT grad((SELECT SUM(val * val) FROM r WHERE step = 2), val) AS d FROM w ORDER BY id"""

    def after(x: jax.Array) -> jax.Array:
        for _ in range(2):
            x = x - 0.5 * jnp.median(x)
        return jnp.sum(x * x)

    np.testing.assert_allclose(column(session, loop), jax.grad(after)(jnp.asarray(X)), rtol=1e-9, atol=1e-9)


def test_plans_of_datafusion_alone(session: SessionContext) -> None:
    session.sql("SET xql.share_relations = false")
    sql = "SELECT grad((SELECT SUM(q) FROM (SELECT median(val) AS q FROM w GROUP BY g)), val) AS d FROM w ORDER BY id"
    expected = np.zeros(N)
    for group in range(3):
        expected[group == G] = shares(X[group == G], 0.5)
    np.testing.assert_allclose(column(session, sql), expected)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("approx_median(val)", r"Write median\(x\)"),
        ("approx_percentile_cont(0.25) WITHIN GROUP (ORDER BY val)", r"Write percentile_cont"),
        ("approx_percentile_cont_with_weight(id + 1, 0.25) WITHIN GROUP (ORDER BY val)", r"MIN\(x\) FILTER"),
        ("median(DISTINCT val)", r"FROM \(SELECT DISTINCT"),
    ],
)
def test_refused(session: SessionContext, value: str, says: str) -> None:
    for sql in (
        f"SELECT grad((SELECT {value} FROM w), val) FROM w",
        f"SELECT grad({value.replace('val', 'val * b')}, b) FROM w CROSS JOIN p GROUP BY b",
    ):
        with pytest.raises(xql_ffi.UnsupportedRelationError, match=says):
            session.sql(sql).execution_plan()


def test_no_part_of_the_values(session: SessionContext) -> None:
    for sql in (
        "SELECT grad(percentile_cont(val * b, 1.5), b) FROM w CROSS JOIN p GROUP BY b",
        "SELECT grad((SELECT percentile_cont(val, -1) FROM w), val) FROM w",
    ):
        with pytest.raises(Exception, match=r"between 0\.0 and 1\.0 inclusive"):
            session.sql(sql).collect()


def test_cells_that_a_join_repeats(session: SessionContext) -> None:
    """A cell has the shares of all of its rows, also where these come of constants."""
    constants = "(SELECT 1.0 AS b UNION ALL SELECT 2.5) AS q"
    sql = f"SELECT id, grad(median(b * val) OVER (), val) AS d FROM w CROSS JOIN {constants} ORDER BY id, b"
    found = np.array(column(session, sql)).reshape(N, 2)
    own = shares(np.concatenate([X, 2.5 * X]), 0.5)
    expected = own[:N] + 2.5 * own[N:]
    np.testing.assert_allclose(found, np.stack([expected, expected], axis=1))


def test_distinct_values_first(session: SessionContext) -> None:
    sql = "SELECT grad((SELECT median(val) FROM (SELECT DISTINCT val FROM ties)), val) AS d FROM ties ORDER BY id"
    assert column(session, sql) == pytest.approx([0, 1 / 6, 1 / 6, 1 / 6, 0.5, 0])


def test_grouping_sets(session: SessionContext) -> None:
    sets = "SELECT {0} FROM w {1} GROUP BY GROUPING SETS ({2})"
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"quantile over grouping sets.*UNION ALL"):
        session.sql(sets.format("grad(median(val * p.w), w)", "CROSS JOIN p", "(g, w), (w)")).execution_plan()
    rolled = sets.format("median(val) AS q", "", "(g), ()")
    found = column(session, f"SELECT grad((SELECT SUM(q) FROM ({rolled})), val) AS d FROM w ORDER BY id")
    expected = shares(X, 0.5)
    for group in range(3):
        expected[group == G] += shares(X[group == G], 0.5)
    np.testing.assert_allclose(found, expected)


ORDERED = {
    "array_agg(val ORDER BY val)[3]": lambda x: jnp.sort(x)[2],
    "array_agg(val ORDER BY val DESC)[2]": lambda x: jnp.sort(x)[-2],
    "nth_value(val, 4 ORDER BY val)": lambda x: jnp.sort(x)[3],
    "(SELECT SUM(val) FROM (SELECT val FROM w ORDER BY val DESC LIMIT 4))": lambda x: jnp.sum(jnp.sort(x)[-4:]),
    "(SELECT AVG(val) FROM (SELECT val, ROW_NUMBER() OVER (ORDER BY val) AS r FROM w) WHERE r BETWEEN 4 AND 20)": (
        lambda x: jnp.mean(jnp.sort(x)[3:20])
    ),
    "(SELECT SUM(val * r) FROM (SELECT val, RANK() OVER (ORDER BY val) AS r FROM w))": (
        lambda x: jnp.sum(jnp.sort(x) * jnp.arange(1, N + 1))
    ),
    "(SELECT SUM(val * r) FROM (SELECT val, PERCENT_RANK() OVER (ORDER BY val) AS r FROM w))": (
        lambda x: jnp.sum(jnp.sort(x) * jnp.arange(N)) / (N - 1)
    ),
}


@pytest.mark.parametrize("value", ORDERED)
def test_other_statistics_of_the_order(session: SessionContext, value: str) -> None:
    subquery = value if value.startswith("(") else f"(SELECT {value} FROM w)"
    found = column(session, f"SELECT grad({subquery}, val) AS d FROM w ORDER BY id")
    np.testing.assert_allclose(found, jax.grad(ORDERED[value])(jnp.asarray(X)), rtol=1e-12)


def test_the_best_of_each_group(session: SessionContext) -> None:
    best = "SELECT val, ROW_NUMBER() OVER (PARTITION BY g ORDER BY val DESC) AS r FROM w"
    value = f"(SELECT SUM(val * val) FROM ({best}) WHERE r <= 2)"
    found = column(session, f"SELECT grad({value}, val) AS d FROM w ORDER BY id")
    expected = np.zeros(N)
    for group in range(3):
        rows = np.flatnonzero(group == G)
        best_rows = rows[np.argsort(X[rows])[-2:]]
        expected[best_rows] = 2 * X[best_rows]
    np.testing.assert_allclose(found, expected)
