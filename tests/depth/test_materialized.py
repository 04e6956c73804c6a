"""AS MATERIALIZED and AS NOT MATERIALIZED say whether a common table expression is computed once."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from datafusion import SessionContext

import xql_ffi
from support.sessions import session

ONCE, EACH = "AS MATERIALIZED", "AS NOT MATERIALIZED"


@pytest.fixture
def ctx() -> SessionContext:
    return session({"t": pa.table({"i": [1, 2, 3], "x": [0.5, -1.5, 2.0]})})


def rows(ctx: SessionContext, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in ctx.sql(sql).to_pylist()]


def draws(says: str, query: str = "SELECT i, random() AS r FROM t") -> str:
    """A statement that is true where both readers of a CTE see the same numbers."""
    return f"WITH k {says} ({query}) SELECT bool_and(a.r = b.r) AS same FROM k a JOIN k b ON a.i = b.i"


@pytest.mark.parametrize(
    ("sql", "is_same"),
    [
        (draws("AS"), False),
        (draws(ONCE), True),
        (draws("as\n  Materialized -- (\n"), True),
        (draws(EACH), False),
        (draws(ONCE).replace("k AS", "k (i, r) AS"), True),
        (
            draws(ONCE).replace("WITH k", 'WITH "K" ').replace("FROM k a", 'FROM "K" a').replace("JOIN k", 'JOIN "K"'),
            True,
        ),
        (draws(ONCE).replace("FROM k a", "FROM K a"), True),
        (f"SELECT * FROM ({draws(ONCE)}) AS q", True),
        (f"SELECT ({draws(ONCE)}) AS same", True),
        (f"SELECT false AS same WHERE false UNION ALL ({draws(ONCE)})", True),
        (draws(ONCE, f"WITH k {ONCE} (SELECT i, random() AS r FROM t) SELECT * FROM k"), True),
        # One reads the other, which one place reads.
        (draws(ONCE).replace("SELECT bool", f", l {EACH} (SELECT * FROM k) SELECT bool").replace("k a", "l a"), True),
    ],
)
def test_what_is_materialized_is_drawn_once(ctx: SessionContext, sql: str, *, is_same: bool) -> None:
    assert rows(ctx, sql) == [(is_same,)]


def test_statements_with_a_query_in_them(ctx: SessionContext) -> None:
    (plan,) = (row[1] for row in rows(ctx, f"EXPLAIN {draws(ONCE)}") if row[0] == "physical_plan")
    assert str(plan).count("SharedScanExec: ") == 2, plan
    for made in ("TABLE made", "VIEW made"):
        ctx.sql(f"CREATE {made} AS {draws(ONCE)}").collect()
        assert rows(ctx, "SELECT * FROM made") == [(True,)]
        ctx.sql(f"DROP {made}").collect()
    ctx.sql("CREATE TABLE kept (same BOOLEAN)").collect()
    ctx.sql(f"INSERT INTO kept {draws(ONCE)}").collect()
    assert rows(ctx, "SELECT * FROM kept") == [(True,)]


def test_a_prepared_statement(ctx: SessionContext) -> None:
    query = "SELECT sum(a.y * b.y) AS s FROM k a JOIN k b ON a.i = b.i"
    ctx.sql(f"PREPARE p AS WITH k {ONCE} (SELECT i, x * $1 AS y FROM t) {query}").collect()
    assert rows(ctx, "EXECUTE p(2.0)") == [(26.0,)]


@pytest.mark.parametrize("says", [ONCE, EACH, "AS"])
def test_derivatives_are_those_of_the_query(ctx: SessionContext, says: str) -> None:
    sql = f"""
        WITH k {says} (SELECT i, x * x AS y FROM t),
        total {says} (SELECT sum(a.y * b.y) AS s FROM k a JOIN k b ON a.i = b.i)
        SELECT i, grad((SELECT s FROM total), x) AS d FROM t ORDER BY i"""
    assert rows(ctx, sql) == [(1, 0.5), (2, -13.5), (3, 32.0)]
    sql = f"WITH k {says} (SELECT i, x, x * x AS y FROM t) SELECT i, grad(y * y, x) AS d FROM k ORDER BY i"
    assert rows(ctx, sql) == [(1, 0.5), (2, -13.5), (3, 32.0)]


def test_a_relation_of_several_readers_within_a_recursion(ctx: SessionContext) -> None:
    sql = f"""
        WITH RECURSIVE r {ONCE} (
          SELECT 0 AS step, i, x FROM t
          UNION ALL
          SELECT * FROM (
            WITH h {ONCE} (SELECT step + 1 AS step, i, x, random() AS noise FROM r WHERE step < 3),
            mean {ONCE} (SELECT avg(x) AS m, avg(noise) AS n FROM h)
            SELECT h.step, h.i, (h.x - mean.m) / 2 + 0 * h.noise * mean.n AS x
            FROM h CROSS JOIN mean JOIN h same ON same.i = h.i AND same.noise = h.noise) AS q)
        SELECT i, x FROM r WHERE step = 3 ORDER BY i"""
    found = rows(ctx, sql)
    centred = [0.5 - 1 / 3, -1.5 - 1 / 3, 2.0 - 1 / 3]
    assert [i for i, _ in found] == [1, 2, 3]
    assert [x for _, x in found] == pytest.approx([value / 8 for value in centred])


def test_a_model_of_many_layers_is_run(ctx: SessionContext) -> None:
    layers, previous = [], "t"
    for number in range(40):
        query = f"SELECT a.i, tanh(a.x - avg(b.x)) AS x FROM {previous} a CROSS JOIN {previous} b GROUP BY a.i, a.x"
        layers.append(f"l{number} {ONCE} ({query})")
        previous = f"l{number}"
    begun = time.process_time()
    found = rows(ctx, f"WITH {', '.join(layers)} SELECT count(x) FROM {previous}")
    assert found == [(3,)]
    # Written out it has 2 ** 40 readers of the table.
    assert time.process_time() - begun < 30


@pytest.mark.parametrize("says", [ONCE, EACH])
def test_as_text(ctx: SessionContext, says: str) -> None:
    sql = f"""
        WITH k {says} (SELECT i, x * x AS y FROM t), l {says} (SELECT i, x, x * x AS y FROM t)
        SELECT i, grad(y * y, x) AS d, (SELECT sum(y) FROM k) AS s FROM l ORDER BY i"""
    expanded = xql_ffi.expand_sql(sql, {"t": pa.schema({"i": pa.int64(), "x": pa.float64()})})
    assert rows(ctx, expanded) == rows(ctx, sql) == [(1, 0.5, 6.5), (2, -13.5, 6.5), (3, 32.0, 6.5)]


def test_errors_are_those_of_the_query(ctx: SessionContext) -> None:
    for sql, message in (
        (f"WITH k {ONCE} (SELECT nothing FROM t) SELECT * FROM k a, k b", "nothing"),
        (f"WITH k {ONCE} (SELECT 1), k {ONCE} (SELECT 2) SELECT * FROM k", "k"),
        (f"WITH k {ONCE} SELECT 1", "Expected"),
    ):
        with pytest.raises(Exception, match=message) as caught:
            ctx.sql(sql).collect()
        assert "∂" not in str(caught.value)


def test_an_alias_of_that_name_stays(ctx: SessionContext) -> None:
    assert rows(ctx, "SELECT a FROM t AS materialized (a, b) WHERE a = 1") == [(1,)]


NOISE = "noise AS MATERIALIZED (SELECT i, x, random() AS r FROM t)"
LOSS = "loss AS (SELECT sum(t.x * a.r * (b.r + 1)) AS l FROM t JOIN noise a ON a.i = t.i JOIN noise b ON b.i = t.i)"
DERIVATIVE = "grad((SELECT l FROM loss), t.x)"


def test_draws_within_a_derivative(ctx: SessionContext) -> None:
    """Readers within what is differentiated have the same draws: x * (r - r) has the derivative 0."""
    loss = LOSS.replace("a.r * (b.r + 1)", "(a.r - b.r)")
    assert rows(ctx, f"WITH {NOISE}, {loss} SELECT {DERIVATIVE} AS d FROM t") == [(0.0,)] * 3
    # So has the value beside it, which is linear in x.
    both = f"SELECT t.x, {DERIVATIVE} AS d, (SELECT l FROM loss) AS l FROM t"
    ((by_derivative, value),) = rows(ctx, f"WITH {NOISE}, {LOSS} SELECT sum(x * d), max(l) FROM ({both})")
    assert by_derivative == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT {DERIVATIVE} AS d, noise.r FROM t JOIN noise ON noise.i = t.i",
        f"SELECT {DERIVATIVE} AS d FROM t UNION ALL SELECT r FROM noise",
        "SELECT a.r, grad(a.x * b.r, a.x) AS d FROM noise a JOIN noise b ON a.i = b.i",
        f"""SELECT p.d - q.d AS d FROM (SELECT i, {DERIVATIVE} AS d FROM t) p
            JOIN (SELECT i, {DERIVATIVE} AS d FROM t) q ON p.i = q.i""",
    ],
    ids=["from", "union", "beside", "twice"],
)
def test_draws_that_a_derivative_would_draw_again(ctx: SessionContext, query: str) -> None:
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"noise draws random numbers once .* in a table"):
        ctx.sql(f"WITH {NOISE}, {LOSS} {query}").collect()
    # So they can be had alike.
    ctx.sql("CREATE TABLE kept AS SELECT i, x, random() AS r FROM t").collect()
    kept = f"{LOSS} {query}".replace("noise", "kept")
    assert rows(ctx, f"WITH {kept}")


def test_draws_that_a_sweep_leaves_out_do_not_count(ctx: SessionContext) -> None:
    """A sum that draws for itself has no part in the derivative, which draws the rest a second time."""
    loss = "loss AS (SELECT sum(t.x * a.r + random()) AS l FROM t JOIN noise a ON a.i = t.i)"
    with pytest.raises(xql_ffi.UnsupportedRelationError, match=r"noise draws random numbers once .* in a table"):
        ctx.sql(f"WITH {NOISE}, {loss} SELECT {DERIVATIVE} AS d FROM t UNION ALL SELECT r FROM noise").collect()


def test_draws_of_what_a_derivative_stands_beside(ctx: SessionContext) -> None:
    """Only one place is left that reads the draws."""
    sql = "SELECT r, grad(x * r, x) AS d FROM (SELECT a.x, a.r FROM noise a)"
    assert all(r == d for r, d in rows(ctx, f"WITH {NOISE} {sql}"))


def test_draws_without_shared_relations(ctx: SessionContext) -> None:
    ctx.sql("SET xql.share_relations = false")
    with pytest.raises(xql_ffi.UnsupportedRelationError, match="noise is AS MATERIALIZED and draws"):
        ctx.sql(f"WITH {NOISE} SELECT a.r = b.r AS same FROM noise a JOIN noise b ON a.i = b.i").collect()
    assert rows(
        ctx, f"WITH {NOISE.replace('random()', 'x')} SELECT sum(a.r * b.r) AS s FROM noise a JOIN noise b ON a.i = b.i"
    )
