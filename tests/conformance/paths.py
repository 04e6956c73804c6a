"""Delivery paths: ways of evaluating calls of grad, jvp and vjp over a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from datafusion import SessionConfig, SessionContext

import xql_ffi


class Path(Protocol):
    """A way of evaluating calls."""

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        """A column of values for each call, over the rows of the table in order. Raises what the path raises."""

    def derivative(self, table: pa.Table, call: str) -> str:
        """What a call is replaced by, for messages."""


class Session:
    """A DataFusion session with the functions of this package."""

    def _context(self, table: pa.Table) -> SessionContext:
        ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
        ctx.register_record_batches("points", [table.to_batches()])
        return ctx

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        listed = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
        return self._context(table).sql(f"SELECT {listed} FROM points").to_arrow_table()

    def derivative(self, table: pa.Table, call: str) -> str:
        plan = self._context(table).sql(f"SELECT {call} AS d FROM points").optimized_logical_plan()
        return plan.display_indent()
