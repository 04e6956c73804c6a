"""Sessions of the tests."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from datafusion import RuntimeEnvBuilder, SessionConfig, SessionContext

import xql_ffi

# By name: the columns, or their rows in batches of Arrow, which say which columns are NOT NULL.
Tables = Mapping[str, Mapping[str, Sequence[Any]] | pa.Table | pa.RecordBatch]


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
    return xql_ffi.register(ctx) if differentiates else ctx


def add(ctx: SessionContext, tables: Tables) -> None:
    """Registers tables with a session."""
    for name, rows in tables.items():
        if isinstance(rows, pa.Table):
            ctx.register_record_batches(name, [rows.to_batches()])
        elif isinstance(rows, pa.RecordBatch):
            ctx.register_record_batches(name, [[rows]])
        else:
            ctx.from_pydict({column: list(values) for column, values in rows.items()}, name=name)
