"""Relations that are read in unlike places: on several levels, in branches, in a recursive term and outside of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from datafusion import SessionContext, col, lit
from datafusion import functions as f

import xql_ffi
from support.sessions import session

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

W = np.array([0.5, -1.0, 2.0])
TANH = 1 - np.tanh(W) ** 2
# A CTE that is large, as it is read by another one twice.
LAYERS = """a AS (SELECT i, tanh(val) AS val FROM w),
    b AS (SELECT x.i, x.val * y.val AS val FROM a x JOIN a y ON x.i = y.i),
    dead AS (SELECT x.i, x.val * y.val * u.val AS val FROM b x JOIN b y ON x.i = y.i JOIN u ON u.i = x.i)"""


@pytest.fixture
def ctx() -> SessionContext:
    return session({"w": {"i": [0, 1, 2], "val": W}, "u": {"i": [0, 1, 2], "val": [1.0, 2.0, -0.5]}})


def close(ctx: SessionContext, sql: str, wanted: object) -> None:
    np.testing.assert_allclose(ctx.sql(sql).to_pydict()["d"], np.asarray(wanted), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        "SELECT SUM(val) AS l FROM b",
        "SELECT SUM(val) AS l FROM (SELECT val FROM b UNION ALL SELECT val FROM dead WHERE false) t",
        """SELECT CASE WHEN x.l > 1e9 THEN y.l ELSE x.l END AS l
           FROM (SELECT SUM(val) AS l FROM b) x CROSS JOIN (SELECT SUM(val) AS l FROM dead) y""",
    ],
    ids=["nobody", "a union", "CASE"],
)
def test_a_cte_that_a_dead_branch_reads(ctx: SessionContext, loss: str) -> None:
    with_ = f"WITH {LAYERS}, loss AS ({loss}) SELECT"
    close(ctx, f"{with_} grad((SELECT l FROM loss), val) AS d FROM w ORDER BY i", 2 * np.tanh(W) * TANH)
    close(ctx, f"{with_} grad((SELECT l FROM loss), val) AS d FROM u ORDER BY i", np.zeros(3))


def test_views_on_three_levels_and_in_both_branches_of_a_union(ctx: SessionContext) -> None:
    ctx.sql("CREATE VIEW v1 AS SELECT i, val * val AS val FROM w")
    ctx.sql("CREATE VIEW v2 AS SELECT a.i, a.val * b.val AS val FROM v1 a JOIN w b ON a.i = b.i")
    ctx.sql("""CREATE VIEW v3 AS SELECT a.i, a.val + b.val + c.val AS val
               FROM v2 a JOIN v1 b ON a.i = b.i JOIN w c ON c.i = a.i""")
    value = "SELECT SUM(a.val * b.val) FROM v3 a JOIN v1 b ON a.i = b.i"
    close(ctx, f"SELECT grad(({value}), val) AS d FROM w ORDER BY i", 5 * W**4 + 4 * W**3 + 3 * W**2)
    value = (
        "SELECT SUM(val * val) FROM (SELECT val FROM v3 UNION ALL SELECT 2 * val FROM v3 UNION ALL SELECT val FROM w) t"
    )
    wanted = 10 * (W**3 + W**2 + W) * (3 * W**2 + 2 * W + 1) + 2 * W
    close(ctx, f"SELECT grad(({value}), val) AS d FROM w ORDER BY i", wanted)


@pytest.mark.parametrize("is_view", [False, True], ids=["a CTE", "a view"])
def test_in_a_recursive_term_and_outside_of_it(ctx: SessionContext, *, is_view: bool) -> None:
    layer = "SELECT i, tanh(val) AS val FROM w"
    if is_view:
        ctx.sql(f"CREATE VIEW h AS {layer}")
    sql = f"""WITH RECURSIVE {"" if is_view else f"h AS ({layer}),"} r AS (
            SELECT 0 AS step, i, val FROM h
            UNION ALL SELECT * FROM (
                SELECT r.step + 1, r.i, r.val * h.val + g.s FROM r JOIN h ON h.i = r.i
                CROSS JOIN (SELECT SUM(val) AS s FROM h) g WHERE r.step < 3) q),
        loss AS (SELECT SUM(r.val * h.val) AS l FROM r JOIN h ON h.i = r.i)
        SELECT grad((SELECT l FROM loss), val) AS d FROM w ORDER BY i"""

    def loss(w: jax.Array) -> jax.Array:
        h = jnp.tanh(w)
        r, total = h, (h * h).sum()
        for _ in range(3):
            r = r * h + h.sum()
            total += (r * h).sum()
        return total

    close(ctx, sql, jax.grad(loss)(W))


@pytest.mark.parametrize(("variable", "wanted"), [("a", 6 * W), ("c", 2 + 0 * W)])
def test_ctes_of_equal_text_stay_two(ctx: SessionContext, variable: str, wanted: object) -> None:
    layer = "SELECT a.i, a.val * a.val + 10 * b.val AS val FROM a JOIN b ON a.i = b.i"
    sql = f"""WITH a AS (SELECT i, 1.0 * val AS val FROM w), b AS (SELECT i, 1.0 * val AS val FROM w),
        c AS ({layer}), e AS ({layer}), loss AS (SELECT SUM(c.val * 2 + e.val) AS l FROM c JOIN e ON c.i = e.i)
        SELECT grad((SELECT l FROM loss), val) AS d FROM {variable} ORDER BY i"""
    close(ctx, sql, wanted)


def test_a_recursion_that_does_not_vary_reads_its_rows_several_times(ctx: SessionContext) -> None:
    sql = """WITH RECURSIVE r AS (
            SELECT 0 AS step, i, val FROM w
            UNION ALL SELECT * FROM (
                WITH mean AS (SELECT AVG(val) AS m FROM r), most AS (SELECT MAX(val) AS m FROM r)
                SELECT a.step + 1, a.i, a.val - mean.m / 2 + b.val * most.m / 10
                FROM r a JOIN r b ON a.i = b.i CROSS JOIN mean CROSS JOIN most WHERE a.step < 2) q),
        loss AS (SELECT SUM(power(r.val - u.val, 2)) AS l FROM r JOIN u ON u.i = r.i WHERE r.step = 2)
        SELECT grad((SELECT l FROM loss), val) AS d FROM u ORDER BY i"""
    r = W
    for _ in range(2):
        r = r - r.mean() / 2 + r * r.max() / 10
    close(ctx, sql, -2 * (r - np.array([1.0, 2.0, -0.5])))


def test_frames_joined_with_themselves_by_the_names_of_views(ctx: SessionContext) -> None:
    frame = ctx.table("w").select("i", f.tanh(col("val")).alias("val"))
    for n in range(7):
        other = frame.select(col("i").alias("same"), col("val").alias("also"))
        mean = ((col("val") + col("also")) / lit(2.0)).alias("val")
        ctx.register_view(f"layer{n}", frame.join(other, left_on="i", right_on="same").select("i", mean))
        frame = ctx.table(f"layer{n}")
    loss = frame.aggregate([], [f.sum(col("val") * col("val")).alias("l")])
    found = xql_ffi.gradients(ctx, loss, ["w.val"]).by["w"].sort("i").to_pydict()["d_val"]
    np.testing.assert_allclose(found, 2 * np.tanh(W) * TANH, rtol=1e-12)


@pytest.mark.parametrize(
    "first",
    [
        "SELECT id, x FROM t WHERE id IN (SELECT id FROM s)",
        "SELECT id, x FROM t WHERE EXISTS (SELECT 1 FROM s WHERE s.id = t.id)",
        "SELECT id, x FROM t WHERE x > (SELECT MIN(q.x) - 1 FROM t q WHERE q.id = t.id) AND id <> 3",
    ],
    ids=["in", "exists", "correlated"],
)
def test_views_over_a_view_with_a_subquery(first: str) -> None:
    """DataFusion 55 does not write such a view as bytes, and would write out each of the others for every reader."""
    ctx = session({"t": {"id": [1, 2, 3], "x": [0.5, 0.25, -0.3]}, "s": {"id": [1, 2]}})
    layer = "SELECT a.id, 0.5 * a.x * b.x + a.x / 2 AS x FROM {0} a JOIN {0} b ON a.id = b.id"
    ctx.sql(f"CREATE VIEW v0 AS {first}").collect()
    for number in range(1, 12):
        ctx.sql(f"CREATE VIEW v{number} AS {layer.format(f'v{number - 1}')}").collect()
    heads = [f"v0 AS ({first})", *(f"v{n} AS ({layer.format(f'v{n - 1}')})" for n in range(1, 12))]
    query = "SELECT id, grad((SELECT SUM(x) FROM v11), x) AS d FROM t ORDER BY id"
    found = ctx.sql(query).to_pydict()
    assert found == ctx.sql(f"WITH {', '.join(heads)} {query}").to_pydict()
    assert found["d"][2] == 0.0
    ((plan,),) = (
        [row["plan"]] for row in ctx.sql(f"EXPLAIN {query}").to_pylist() if row["plan_type"] == "physical_plan"
    )
    assert len(plan) < 200_000
