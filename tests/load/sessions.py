"""Two sessions with the same tables, of which one knows nothing of derivatives, and what is in them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
from datafusion import SessionContext

from load.hostile import names, quoted
from support.sessions import session

_K = pa.array([1, 2, 3, 4], pa.int64())


def parts_of(draw: random.Random) -> dict[str, str]:
    """Names of two tables and of their columns."""
    t, u = names(draw, 2)
    k, s, a, b = names(draw, 4)
    return {"t": t, "u": u, "k": k, "s": s, "a": a, "b": b}


def sessions(parts: dict[str, str]) -> tuple[SessionContext, SessionContext]:
    """The session of the engine, and the other one."""
    made = (session(), session(differentiates=False))
    for ctx in made:
        for table, shift in (("t", 0.0), ("u", 0.25)):
            columns = {
                parts["k"]: _K,
                parts["s"]: ["a", "b", None, "x"],
                parts["a"]: [0.5 + shift, -1.0, None, 2.0],
                parts["b"]: [2.0, 1.5, 0.25, -3.0 - shift],
            }
            ctx.register_record_batches("given", [pa.table(columns).to_batches()])
            ctx.sql(f"CREATE TABLE {quoted(parts[table])} AS SELECT * FROM given")
            ctx.deregister_table("given")
        ctx.sql("CREATE TABLE canary AS SELECT 1.0 AS x")
    return made


def rows(table: pa.Table) -> list[str]:
    """The names and types of the columns, and the rows in an order of their own."""
    return [
        str(table.schema.names),
        str(table.schema.types),
        *sorted(str(list(row.values())) for row in table.to_pylist()),
    ]


def contents(ctx: SessionContext) -> dict[str, list[str]]:
    """All tables of a session with their rows."""
    schema = ctx.catalog().schema("public")
    return {name: rows(ctx.sql(f"SELECT * FROM {quoted(name)}").to_arrow_table()) for name in schema.names()}


def reads(ctx: SessionContext, sql: str) -> set[str]:
    """The tables of a session that a statement reads, in subqueries as well."""
    plan = ctx.sql(f"EXPLAIN {sql}").logical_plan().display_indent()
    tables = ctx.catalog().schema("public").names()
    return {name for name in tables if f"TableScan: {name}" in plan or f"TableScan: {quoted(name)}" in plan}


def difference(found: Sequence[str], wanted: Sequence[str]) -> str:
    """The first line that is another one."""
    for one, other in zip(found, wanted, strict=False):
        if one != other:
            return f"{one} instead of {other}"
    return "" if len(found) == len(wanted) else f"{len(found)} lines instead of {len(wanted)}"
