"""Random plans on a host: the derivatives that differences have, and the rows that the host has without them."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pyarrow as pa
from datafusion import SessionContext

import xql_ffi
from hosts.host import Host, HostError, Ran, RefusedError, tables_of
from hosts.language import statement_of
from hosts.reasons import reason
from relations import verdict
from relations.statements import DERIVATIVE, Statement, statement
from relations.tables import add_plan_tables
from relations.verdict import Factors, Result, _integers, found_in
from support.choices import Choices
from support.differences import Sampled
from support.findings import Finding
from support.seed import SEED


class Session:
    """A host that expands what it runs."""

    def __init__(self, host: Host) -> None:
        self.host = host
        # The last text in which a call has been replaced.
        self.text = ""
        self._views: list[str] = []

    def sql(self, statement: str) -> Ran:
        written = statement_of(self.host.dialect, statement)
        text = self.host.expand(written)
        self.text = self.text if text == written else text
        ran = self.host.run(text)
        if made := re.match(r"CREATE OR REPLACE VIEW (\w+)", statement):
            self._views.append(made[1])
        return ran if self.host.dialect == "datafusion" else widened(ran.table)

    def forget(self) -> None:
        """Drops the views that have been made."""
        while self._views:
            self.host.run(f"DROP VIEW IF EXISTS {self._views.pop()}")


def widened(table: pa.Table) -> Ran:
    """Integers and floats of one type each. Which of them a host takes for what it computes is its own affair."""

    def wide(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_integer(kind):
            return pa.int64()
        return pa.float64() if pa.types.is_floating(kind) or pa.types.is_decimal(kind) else kind

    schema = pa.schema([pa.field(field.name, wide(field.type)) for field in table.schema])
    return Ran(schema, table.cast(schema))


class Judge(verdict.Judge):
    """Compares on a host, and counts what it refuses. What the host says of the primal is its own affair."""

    def __init__(self, host: Host) -> None:
        super().__init__(xql_ffi.register)
        # It has what a judge asks of a session.
        self._session: Any = Session(host)
        host.open(tables_of(add_plan_tables))

    def judge(self, statement: Statement) -> Finding | None:
        self.counts["plans"] += 1
        return super().judge(statement)

    def _run(self, statement: Statement, derivative: str, ctx: SessionContext | None = None) -> Result:
        return super()._run(statement, derivative, self._session)

    def _leak(self, statement: Statement, base: Sampled, found: Result) -> Finding | None:
        finding = super()._leak(statement, base, found)
        if finding and _integers(self._run(statement, statement.value.sql).table, statement) != base.rows:
            self.counts["the host has another value"] += 1
            return None
        return finding

    def _compare(self, statement: Statement, base: Sampled, factors: Factors, found: pa.Table) -> Finding | None:
        finding = super()._compare(statement, base, factors, found)
        # Rows that are others without a derivative as well are not compared.
        self.counts["plans that agree"] += finding is None and _integers(found, statement) == base.rows
        return finding

    def _refused(self, statement: Statement, base: Sampled, error: Exception) -> Finding | None:
        text = self._session.text
        try:
            self._run(statement, statement.value.sql)
        except RefusedError as below:
            self.counts[f"refused: {reason(below)}"] += 1
            return None
        except HostError as primal:
            self.counts[f"the host has no such plan: {reason(primal)}"] += 1
            return None
        # Some are refused when they are run, by a row that says why.
        if isinstance(error, RefusedError) or (statement.call.own_cell and "by the row's own" in str(error)):
            self.counts[f"refused: {reason(error)}"] += 1
            return None
        if "division by zero" in str(error) and self._has_no_number(statement):
            self.counts["the host has an error where the engine has no number"] += 1
            return None
        return found_in(statement, "fails on the host", f"{str(error)[:700]}\n{text}")

    def _has_no_number(self, statement: Statement) -> bool:
        """Whether the derivative is NULL, NaN or infinite on the engine in some row."""
        found = super()._run(statement, statement.call.sql, self._called).table[DERIVATIVE].to_pylist()
        return not all(value is not None and math.isfinite(value) for value in found)


def judged(host: Host, numbers: range, seed: int = SEED) -> tuple[Judge, list[Finding]]:
    """What a host makes of these plans."""
    judge = Judge(host)
    found = [judge.judge(statement(Choices(random.Random(f"{seed} {number}")))) for number in numbers]
    return judge, [finding for finding in found if finding]
