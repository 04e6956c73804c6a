"""Sessions of the tests."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

import xql_ffi

# By name: the columns, or their rows in batches of Arrow, which say which columns are NOT NULL.
Tables = Mapping[str, Mapping[str, Sequence[Any]] | pa.Table | pa.RecordBatch]

# How sums of products are computed: `dense`, `sparse` or `fallback`, or else as they are by themselves.
CONTRACTIONS = os.environ.get("XQL_FFI_TEST_CONTRACTIONS")


def session(
    tables: Tables | None = None,
    *,
    config: SessionConfig | None = None,
    runtime: RuntimeEnvBuilder | None = None,
    differentiates: bool = True,
) -> SessionContext:
    """A session with these tables, and with the functions of this package unless it is to have none."""
    ctx = SessionContext(config, runtime)
    add(ctx, tables or {})
    if not differentiates:
        return ctx
    ctx = xql_ffi.register(ctx)
    if CONTRACTIONS:
        ctx.sql(f"SET xql.contractions = {CONTRACTIONS}")
    return ctx


def add(ctx: SessionContext, tables: Tables) -> None:
    """Registers tables with a session."""
    for name, rows in tables.items():
        if isinstance(rows, pa.Table):
            ctx.register_record_batches(name, [rows.to_batches()])
        elif isinstance(rows, pa.RecordBatch):
            ctx.register_record_batches(name, [[rows]])
        else:
            ctx.from_pydict({column: list(values) for column, values in rows.items()}, name=name)
