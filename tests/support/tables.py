"""Small tables, once for DataFusion and once as Python rows to compute expected values from."""

from typing import NamedTuple

import pyarrow as pa


class Row(NamedTuple):
    """A row of `t`: x, y, s and w are NOT NULL, z has NULLs, s is Float32."""

    id: int
    g: str
    k: int
    x: float
    y: float
    z: float | None
    s: float
    w: float


class Pair(NamedTuple):
    """A row of `u` and of `v`."""

    id: int
    x: float
    y: float


T = [
    Row(1, "a", 1, 0.5, 2.0, 1.25, 0.5, 1.0),
    Row(2, "a", 2, 1.0, -1.5, None, 1.5, 2.0),
    Row(3, "b", 3, -1.5, 0.25, -2.0, -0.25, 1.0),
    Row(4, "b", 4, 2.0, 3.0, 0.0, 2.0, 2.0),
    Row(5, "b", 5, -0.75, 0.5, None, -1.75, 3.0),
    Row(6, "c", 6, 3.25, -2.0, 4.5, 0.75, 3.0),
]
U = [Pair(1, 0.5, 2.0), Pair(2, 1.5, -1.0), Pair(3, -2.0, 0.5), Pair(4, 3.0, 1.0)]
V = [Pair(2, 2.0, 4.0), Pair(3, 0.25, -3.0), Pair(4, -1.0, 5.0), Pair(5, 7.0, 6.0)]

_T_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("g", pa.string(), nullable=False),
        pa.field("k", pa.int64(), nullable=False),
        pa.field("x", pa.float64(), nullable=False),
        pa.field("y", pa.float64(), nullable=False),
        pa.field("z", pa.float64(), nullable=True),
        pa.field("s", pa.float32(), nullable=False),
        pa.field("w", pa.float64(), nullable=False),
    ]
)
_PAIR_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("x", pa.float64(), nullable=False),
        pa.field("y", pa.float64(), nullable=False),
    ]
)


def batch(schema: pa.Schema, rows: list[dict[str, object]]) -> pa.RecordBatch:
    """Rows with the nullability that `schema` has."""
    return pa.RecordBatch.from_pylist(rows, schema=schema)


# `empty` has the columns of `t` and no rows.
TABLES = {
    "t": batch(_T_SCHEMA, [row._asdict() for row in T]),
    "u": batch(_PAIR_SCHEMA, [row._asdict() for row in U]),
    "v": batch(_PAIR_SCHEMA, [row._asdict() for row in V]),
    "empty": batch(_T_SCHEMA, []),
}
