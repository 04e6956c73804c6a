"""The tables under the random values: those of the random plans, and one with a column in single precision."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from datafusion import SessionContext

from relations import tables
from support import sessions
from support.tables import batch

SINGLE = "s"
TABLES: dict[str, dict[str, Sequence[float | None]]] = {
    **tables.TABLES,
    "f": {"id": [1, 3, 4], "k": [2, None, 1], "s": [0.625, -1.3125, 0.8125], "h": [1.2291, 0.4417, -0.6173]},
}


def add_row_tables(ctx: SessionContext) -> None:
    """Registers the tables."""
    tables.add_plan_tables(ctx)
    types = {"id": pa.int64(), "k": pa.int64(), "s": pa.float32(), "h": pa.float64()}
    columns = TABLES["f"]
    schema = pa.schema(pa.field(name, type_, nullable=None in columns[name]) for name, type_ in types.items())
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    sessions.add(ctx, {"f": batch(schema, rows)})
