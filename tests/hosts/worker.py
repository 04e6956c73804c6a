"""Runs a stock `datafusion` for another process."""

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

import xql_ffi
from hosts.process import read, serve, written


class Worker:
    """One session at a time."""

    def open(self, tables: dict[str, bytes]) -> None:
        config = SessionConfig().with_target_partitions(1)
        # For DataFusion, coalesce(x, 1) is no longer NOT NULL when another `x IS NOT NULL` has been drawn out of it.
        self.ctx = SessionContext(config.set("datafusion.execution.skip_physical_aggregate_schema_check", "true"))
        for name, data in tables.items():
            table = read(data)
            batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
            self.ctx.register_record_batches(name, [batches])

    def expand(self, statement: str) -> str:
        return xql_ffi.expand_sql(statement, self.ctx)

    def run(self, text: str) -> tuple[bytes, bytes]:
        frame = self.ctx.sql(text)
        return frame.schema().serialize().to_pybytes(), written(frame.to_arrow_table())


if __name__ == "__main__":
    assert not xql_ffi.engine_status().startswith("active")
    serve(Worker)
