"""SQLite, as Python has it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import pyarrow as pa

from hosts.given import Given
from hosts.host import HostError, Ran, declared

_TYPES = {pa.int64(): "INTEGER", pa.int32(): "INTEGER", pa.float64(): "REAL", pa.float32(): "REAL"}


class SQLite(Given):
    """A database in memory. Its numbers are integers and doubles, and NaN is NULL."""

    name = f"SQLite {sqlite3.sqlite_version}"
    dialect = "sqlite"

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._give(tables)
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        for name, table in tables.items():
            # NaN cannot be stored in a column that is NOT NULL.
            columns = declared(table.schema, _TYPES).replace(" NOT NULL", "")
            self._connection.execute(f'CREATE TABLE "{name}" ({columns})')
            marks = ", ".join("?" * table.num_columns)
            rows = [tuple(row.values()) for row in table.to_pylist()]
            self._connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)

    def _query(self, text: str) -> Ran:
        try:
            cursor = self._connection.execute(text)
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise HostError(str(error)) from error
        names = [column[0] for column in cursor.description or ()]
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        table = pa.Table.from_arrays([_array(column) for column in columns], names=names)
        return Ran(table.schema, table)

    def close(self) -> None:
        self._connection.close()


def _array(column: Sequence[object]) -> pa.Array:
    """Values of any types as a column of one: as floats, if some are."""
    if any(isinstance(value, str) for value in column):
        return pa.array([None if value is None else str(value) for value in column], pa.string())
    integers = [value for value in column if isinstance(value, int)]
    known = [value for value in column if value is not None]
    return pa.array(column, pa.int64() if known and len(integers) == len(known) else pa.float64())
