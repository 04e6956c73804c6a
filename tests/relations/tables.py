"""The tables under the random plans: NULLs, duplicates, and numbers in no particular relation to each other."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from datafusion import SessionContext

from support import sessions
from support.tables import batch

# Columns by table: integers first, then floats; the first column is unique.
TABLES: dict[str, dict[str, Sequence[float | None]]] = {
    "d": {
        "id": [1, 2, 3, 4, 5, 6],
        "k": [1, 2, 1, None, 3, 2],
        "x": [0.4137, None, 0.4137, -1.2391, 0.8713, 1.6179],
        "y": [0.7321, -0.5413, 1.1917, 0.2657, 0.2657, -1.3083],
    },
    "p": {"id": [1, 2], "w": [0.6173, 1.3719], "b": [-0.2917, 1.1131]},
    "u": {
        "id": [2, 3, 5, 7],
        "k": [1, 1, 2, 4],
        "z": [None, 0.9431, -0.3719, 0.5683],
        "r": [1.0973, 0.3331, 1.0973, -0.7129],
    },
}
SIZES = {name: len(columns["id"]) for name, columns in TABLES.items()}


def is_integer(column: str) -> bool:
    return column in ("id", "k")


def add_plan_tables(ctx: SessionContext) -> None:
    """Registers the tables; what has no NULL is NOT NULL."""
    for name, columns in TABLES.items():
        schema = pa.schema(
            pa.field(column, pa.int64() if is_integer(column) else pa.float64(), nullable=None in values)
            for column, values in columns.items()
        )
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        sessions.add(ctx, {name: batch(schema, rows)})
