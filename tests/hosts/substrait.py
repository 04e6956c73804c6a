"""Plain DataFusion behind Substrait: each text is written as a plan there, and run as what is read of that."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

import xql_ffi
from hosts.host import HostError, Ran, RefusedError


class Substrait:
    """A session that never learns a text. Views are made by text, for Substrait has queries alone."""

    name = "substrait"
    dialect = "datafusion"

    def open(self, tables: Mapping[str, pa.Table]) -> None:
        config = SessionConfig().with_target_partitions(1)
        # For DataFusion, coalesce(x, 1) is no longer NOT NULL when another `x IS NOT NULL` has been drawn out of it.
        self._ctx = SessionContext(config.set("datafusion.execution.skip_physical_aggregate_schema_check", "true"))
        for name, table in tables.items():
            batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
            self._ctx.register_record_batches(name, [batches])

    def expand(self, statement: str) -> str:
        try:
            return xql_ffi.expand_sql(statement, self._ctx)
        except ValueError as error:
            raise RefusedError(str(error)) from error

    def run(self, text: str) -> Ran:
        try:
            if text.lstrip().upper().startswith(("CREATE", "DROP")):
                frame = self._ctx.sql(text)
            else:
                frame = xql_ffi.from_substrait(self._ctx, xql_ffi.to_substrait(self._ctx, text))
            return Ran(frame.schema(), frame.to_arrow_table())
        except Exception as error:
            raise HostError(str(error)) from error

    def close(self) -> None:
        pass
