"""A relation that several places read computes the columns that these read, and no others."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from datafusion import SessionContext

from support.sessions import session

K, X = [1, 1, 2, 2], [0.5, 0.7, -0.3, 0.2]
T = {"id": [1, 2, 3, 4], "k": K, "x": X}
# Two relations, each read twice by the next, with a column that ends the statement that computes it.
FAILS = "1 / (p.id - q.id)"


@pytest.fixture
def ctx() -> SessionContext:
    return session({"t": pa.table(T)})


def layers(unread: str) -> str:
    return f"""
        a AS (SELECT p.id, p.k, p.x * q.x + q.x AS x FROM t p JOIN t q ON p.id = q.id),
        b AS (SELECT p.id, p.k, p.x * q.x - q.x AS x, {unread} AS unread FROM a p JOIN a q ON p.id = q.id)"""


def column(ctx: SessionContext, sql: str) -> list[float]:
    found: list[float] = ctx.sql(sql).to_arrow_table().column(0).to_pylist()
    return found


# By a name, the loss and what stands before it.
READERS = {
    "join": "loss AS (SELECT SUM(p.x * q.x) AS l FROM b p JOIN b q ON p.id = q.id)",
    "union": "loss AS (SELECT SUM(x) AS l FROM (SELECT id, x FROM b UNION ALL SELECT id, 0.3 * x FROM b) z)",
    "groups": """loss AS (SELECT SUM(s.x * b.x) AS l FROM (SELECT k, AVG(x) AS x FROM b GROUP BY k) s
        JOIN b ON s.k = b.k)""",
    "window": """loss AS (SELECT SUM(p.x * p.m * q.x) AS l
        FROM (SELECT id, x, MAX(x) OVER (PARTITION BY k) AS m FROM b) p JOIN b q ON p.id = q.id)""",
    "subquery": """loss AS (SELECT SUM(x) * (SELECT MAX(x) FROM b) AS l FROM b
        WHERE id IN (SELECT id FROM b WHERE x < 1))""",
    "renamed": """loss AS (SELECT SUM(p.y * q.y) AS l FROM b AS p (i, j, y, z) JOIN b AS q (i, j, y, z)
        ON p.i = q.i)""",
    "correlated": """c AS (SELECT id, x - 0.4 * (SELECT AVG(q.x) FROM b q WHERE q.k = b.k) AS x FROM b),
        loss AS (SELECT SUM(p.x * q.x) AS l FROM c p JOIN c q ON p.id = q.id)""",
    "lateral": """loss AS (SELECT SUM(p.x * s.m) AS l
        FROM b p CROSS JOIN LATERAL (SELECT SUM(q.x) AS m FROM b q WHERE q.k = p.k) s)""",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=list(READERS))
def test_what_nobody_reads_is_not_computed(ctx: SessionContext, reader: str) -> None:
    sql = f"WITH {{}}, {reader} SELECT grad((SELECT l FROM loss), x) AS d FROM t"
    expected = column(ctx, sql.format(layers("0")))
    assert column(ctx, sql.format(layers(FAILS))) == pytest.approx(expected, rel=1e-12)
    # Differences of the value, without a column that ends the statement.
    values = []
    for step in (-1e-6, 1e-6):
        moved = {**T, "x": [X[0] + step, *X[1:]]}
        other = session({"t": pa.table(moved)})
        values += column(other, f"WITH {layers('0')}, {reader} SELECT l FROM loss")
    assert expected[0] == pytest.approx((values[1] - values[0]) / 2e-6, rel=1e-6)


def test_what_is_read_is_computed(ctx: SessionContext) -> None:
    loss = "SELECT SUM(p.x * q.x) + MAX(q.unread) AS l FROM b p JOIN b q ON p.id = q.id"
    with pytest.raises(Exception, match="Divide by zero"):
        column(ctx, f"WITH {layers(FAILS)}, loss AS ({loss}) SELECT grad((SELECT l FROM loss), x) AS d FROM t")


def test_values_of_relations_computed_once(ctx: SessionContext) -> None:
    """Without a call, AS MATERIALIZED does as much."""
    once = layers(FAILS).replace("b AS", "b AS MATERIALIZED")
    assert len(column(ctx, f"WITH {once}, {READERS['join']} SELECT l FROM loss")) == 1
    (plan,) = (
        row["plan"]
        for row in ctx.sql(f"EXPLAIN WITH {once}, {READERS['join']} SELECT l FROM loss").to_pylist()
        if row["plan_type"] == "physical_plan"
    )
    (computes,) = re.findall(r"computes b, columns=\[(.*)\]", plan)
    assert computes == "id, x"


def test_one_reader_reads_what_another_does_not(ctx: SessionContext) -> None:
    """The columns are those of all readers, in whatever order each reads them."""
    wide = "w AS MATERIALIZED (SELECT id, k, x, 2 * x AS y, 3 * x AS z FROM t)"
    read = "(SELECT z, id FROM w) p JOIN (SELECT k, y, id FROM w) q ON p.id = q.id"
    sql = f"WITH {wide} SELECT p.z, q.k, q.y FROM {read} ORDER BY p.id"
    assert ctx.sql(sql).to_pylist() == [{"z": 3 * x, "k": k, "y": 2 * x} for k, x in zip(K, X, strict=True)]
    assert ctx.sql(f"WITH {wide} SELECT count(*) AS n FROM w a, w b").to_pylist() == [{"n": 16}]
    assert ctx.sql(f"WITH {wide} SELECT * FROM w a JOIN w b ON a.id = b.id").to_arrow_table().num_columns == 10


def test_a_view_of_a_derivative_is_read_again(ctx: SessionContext) -> None:
    """A data frame is read by others, which read other columns of what it has been made of."""
    ctx.sql(f"CREATE VIEW v AS WITH {layers('p.x')} SELECT id, unread, grad(x * x, x) AS d FROM b").collect()
    assert column(ctx, "SELECT d FROM v ORDER BY id") != column(ctx, "SELECT unread FROM v ORDER BY id")
    loss = "l AS (SELECT SUM(x) AS l FROM b)"
    frame = ctx.sql(f"WITH {layers('p.x')}, {loss} SELECT id, x, grad((SELECT l FROM l), x) AS d FROM t")
    one, both = frame.select("d"), frame.select("x", "d")
    assert one.to_arrow_table().column(0) == both.to_arrow_table().column("d") == frame.to_arrow_table().column("d")
