"""Runs a stock `datafusion` for another process: reads requests as pickles from stdin and answers on stdout."""

import os
import pickle
import sys
from typing import Any

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

import xql_ffi


def written(table: pa.Table) -> bytes:
    """A table as bytes that every version of Arrow reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


class Worker:
    """One session at a time."""

    def open(self, tables: dict[str, bytes]) -> None:
        config = SessionConfig().with_target_partitions(1)
        # For DataFusion, coalesce(x, 1) is no longer NOT NULL when another `x IS NOT NULL` has been drawn out of it.
        self.ctx = SessionContext(config.set("datafusion.execution.skip_physical_aggregate_schema_check", "true"))
        for name, data in tables.items():
            with pa.ipc.open_stream(data) as stream:
                table = stream.read_all()
            batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
            self.ctx.register_record_batches(name, [batches])

    def expand(self, statement: str) -> str:
        return xql_ffi.expand_sql(statement, self.ctx)

    def run(self, text: str) -> tuple[bytes, bytes]:
        frame = self.ctx.sql(text)
        return frame.schema().serialize().to_pybytes(), written(frame.to_arrow_table())


def main() -> None:
    # What a library prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    assert not xql_ffi.engine_status().startswith("active")
    worker = Worker()
    while True:
        try:
            name, *arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: tuple[str, Any]
        try:
            answer = "done", getattr(worker, name)(*arguments)
        except BaseException as error:  # a panic is none of Exception
            answer = "failed", f"{type(error).__name__}: {error}"
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
