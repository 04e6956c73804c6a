"""DuckDB, in this process."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import pyarrow as pa

import xql_ffi
from hosts.host import HostError, Ran, RefusedError, declared

_TYPES = {pa.int64(): "BIGINT", pa.int32(): "INTEGER", pa.float64(): "DOUBLE", pa.float32(): "FLOAT"}


class DuckDB:
    """A database in memory."""

    name = f"DuckDB {duckdb.__version__}"
    dialect = "duckdb"

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        self._connection = duckdb.connect()
        for name, table in tables.items():
            self._connection.execute(f'CREATE TABLE "{name}" ({declared(table.schema, _TYPES)})')
            self._connection.register("incoming", table)
            self._connection.execute(f'INSERT INTO "{name}" SELECT * FROM incoming')
            self._connection.unregister("incoming")

    def expand(self, statement: str) -> str:
        try:
            return xql_ffi.expand_sql(statement, self._connection, dialect=self.dialect)
        except ValueError as error:
            raise RefusedError(str(error)) from error

    def run(self, text: str) -> Ran:
        try:
            found = self._connection.sql(text)
            table = pa.table({}) if found is None else found.to_arrow_table()
        except duckdb.Error as error:
            raise HostError(str(error)) from error
        return Ran(table.schema, table)

    def close(self) -> None:
        self._connection.close()
