"""Statements of every kind of derivative over small tables, and what they give."""

from __future__ import annotations

import pyarrow as pa
from datafusion import SessionConfig, SessionContext, col

import xql_ffi
from support.sessions import session

ROWS = 200
_NUMBERS = range(ROWS)
TABLES = {
    "t": pa.table(
        {"id": pa.array(_NUMBERS, pa.int64()), "x": [i / ROWS for i in _NUMBERS], "y": [1.0 + i % 7 for i in _NUMBERS]}
    ),
    "w": pa.table({"layer": [1, 1, 2, 2], "k": [0, 1, 0, 1], "val": [0.5, -0.25, 1.0, 2.0]}),
}
STATEMENTS = {
    "by itself": "SELECT id, grad(sin(x) * y, x) AS d FROM t",
    "through relations": """
        WITH m AS (SELECT y, w.val, w.val * x AS p FROM t CROSS JOIN w WHERE layer = 1)
        SELECT val, AVG(grad(power(p - y, 2), val)) AS d FROM m GROUP BY val""",
    "by row": """
        WITH p AS (SELECT t.id, t.y, SUM(w.val * t.x) AS p FROM t CROSS JOIN w GROUP BY t.id, t.y),
             l AS (SELECT AVG(power(p - y, 2)) AS l FROM p)
        SELECT layer, k, grad((SELECT l FROM l), val) AS d FROM w""",
    "iterations": """
        WITH RECURSIVE newton AS (
            SELECT 0 AS step, 1.0 AS z
            UNION ALL
            SELECT step + 1, z - (z * z - 2) / grad(z * z - 2, z) FROM newton WHERE step < 5)
        SELECT step, z FROM newton""",
    "a window": "SELECT id, jvp(SUM(x * x) OVER (ORDER BY id ROWS 2 PRECEDING), x, y) AS d FROM t",
}
REFUSED = "SELECT grad(array_element([x], 1), x) AS d FROM t"


def loaded(config: SessionConfig | None = None) -> SessionContext:
    """A session of the engine with the tables."""
    ctx = session(config=config or SessionConfig().with_target_partitions(2))
    for name, table in TABLES.items():
        ctx.register_record_batches(name, [table.to_batches(max_chunksize=64)])
    return ctx


def result(ctx: SessionContext, statement: str) -> list[str]:
    """The rows, with as many digits as the order of a sum leaves, in an order of their own."""
    return shown(ctx.sql(statement).to_arrow_table())


def text_result(ctx: SessionContext, statement: str) -> list[str]:
    """The same by the text of the statement."""
    schemas = {name: table.schema for name, table in TABLES.items()}
    return shown(ctx.sql(xql_ffi.expand_sql(statement, schemas)).to_arrow_table())


def frame_result(ctx: SessionContext) -> list[str]:
    """That of the first statement by the DataFrame API."""
    frame = ctx.sql("SELECT id, x, sin(x) * y AS v FROM t")
    return shown(frame.select(col("id"), *xql_ffi.gradient(col("v"), "x")).to_arrow_table())


def message(ctx: SessionContext) -> str:
    """That of a statement which has no derivative."""
    try:
        ctx.sql(REFUSED).collect()
    except xql_ffi.DifferentiationError as error:
        return str(error)
    return "not refused"


def shown(table: pa.Table) -> list[str]:
    """The rows as texts."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(str([f"{value:.9g}" if isinstance(value, float) else value for value in row]) for row in rows)
