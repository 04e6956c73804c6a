"""Random expressions on a host: the values and derivatives that JAX has, where the host has the expression itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from conformance import verdict
from conformance.cases import Call, Case, Reference
from conformance.generation import generated
from conformance.points import Points, points
from conformance.verdict import Disagreement
from hosts.host import Host, HostError, RefusedError
from hosts.reasons import reason


@dataclass(frozen=True)
class _Given:
    """Cases, and what JAX says of them, which is the same for all hosts."""

    at: Points
    cases: Sequence[Case]
    references: dict[str, Sequence[Reference]]


@lru_cache(maxsize=2)
def _given(number: int, seed: int) -> _Given:
    return _Given(points(seed), generated(number, seed), {})


class _Path:
    """A host as a way of evaluating calls."""

    def __init__(self, host: Host, table: pa.Table) -> None:
        self.host = host
        # Not every host keeps the order of rows.
        numbered = table.append_column("row_number", pa.array(range(table.num_rows), pa.int64()))
        host.open({"points": numbered})

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        found = self.host.run(self.host.expand(self._statement(calls))).table
        return found.drop_columns(["row_number"])

    def derivative(self, table: pa.Table, call: str) -> str:
        return self.host.expand(self._statement([call]))

    @staticmethod
    def _statement(calls: Sequence[str]) -> str:
        listed = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
        return f"SELECT {listed}, row_number FROM points ORDER BY row_number"


class Judge(verdict.Judge):
    """Compares on a host, and counts what it refuses. What the host says of the expression itself is its own affair."""

    def __init__(self, host: Host, given: _Given) -> None:
        super().__init__(_Path(host, given.at.table), given.at)
        self._given = given

    def _of_case(self, case: Case, columns: Sequence[pa.ChunkedArray | Exception]) -> list[Disagreement]:
        self.counts["expressions"] += 1
        return super()._of_case(case, columns)

    def _references(self, case: Case) -> Sequence[Reference]:
        known = self._given.references
        if case.expression.sql not in known:
            known[case.expression.sql] = super()._references(case)
        return known[case.expression.sql]

    def _not_evaluated(self, error: Exception) -> None:
        assert isinstance(error, HostError), f"a statement without a call is refused: {error}"
        self.counts[f"the host has no such expression: {reason(error)}"] += 1

    def _failed(self, case: Case, call: Call, error: Exception) -> list[Disagreement]:
        self.counts["calls"] += 1
        if isinstance(error, RefusedError):
            self.counts[f"refused: {reason(error)}"] += 1
            return []
        return super()._failed(case, call, error)

    def _compare(self, case: Case, call: Call, column: pa.ChunkedArray, reference: Reference) -> list[Disagreement]:
        found = super()._compare(case, call, column, reference)
        self.counts["calls"] += 1
        self.counts["calls that agree"] += not found
        return found


def judged(host: Host, number: int, seed: int) -> tuple[Judge, list[Disagreement]]:
    """What a host makes of so many expressions."""
    given = _given(number, seed)
    judge = Judge(host, given)
    return judge, judge.disagreements(given.cases)
