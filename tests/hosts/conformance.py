"""Random expressions on a host: the values and derivatives that JAX has, where the host has the expression itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conformance import verdict
from conformance.cases import Call, Case, Reference, value
from conformance.generation import generated
from conformance.points import Points, points
from conformance.verdict import Disagreement, agrees
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
        # By call, the rows at which the host raises an error: some do at a pole, or where a number overflows.
        self.raised: dict[str, NDArray[np.bool_]] = {}
        # Not every host keeps the order of rows.
        numbered = table.append_column("row_number", pa.array(range(table.num_rows), pa.int64()))
        self._numbered = numbered
        # Texts by call that are run on some rows after the other.
        self._texts: dict[str, str] = {}
        host.open({"points": numbered})

    def evaluate(self, table: pa.Table, calls: Sequence[str]) -> pa.Table:
        text = self.host.expand(_statement(calls))
        try:
            return self.host.run(text).table.drop_columns(["row_number"])
        except HostError:
            if len(calls) > 1:
                raise
        # It fails at none of the rows if the host knows what it is asked for.
        self._rows(calls[0], range(0))
        values: list[float | None] = []
        self._by_rows(calls[0], range(table.num_rows), values)
        self.raised[calls[0]] = np.array([value is _RAISED for value in values])
        return pa.table({"c0": pa.array([None if value is _RAISED else value for value in values], pa.float64())})

    def _by_rows(self, call: str, which: range, values: list[float | None]) -> None:
        """Adds the values of these rows, halving them where they fail."""
        try:
            values += self._rows(call, which)
        except HostError:
            if len(which) == 1:
                values.append(_RAISED)
                return
            middle = which.start + len(which) // 2
            self._by_rows(call, range(which.start, middle), values)
            self._by_rows(call, range(middle, which.stop), values)

    def _rows(self, call: str, which: range) -> list[float | None]:
        """The values of these rows."""
        if self.host.dialect == "datafusion":
            # It may compute below a filter what is above it.
            self.host.open({"points": self._numbered.slice(which.start, len(which))})
            try:
                return self._first(self.host.expand(_statement([call])))
            finally:
                self.host.open({"points": self._numbered})
        if call not in self._texts:
            self._texts[call] = self.host.expand(_statement([call], _ANY))
        text = self._texts[call].replace(_where(_ANY), _where(which))
        return self._first(text if _where(_ANY) in self._texts[call] else self.host.expand(_statement([call], which)))

    def _first(self, text: str) -> list[float | None]:
        values: list[float | None] = self.host.run(text).table.column(0).to_pylist()
        return values

    def derivative(self, table: pa.Table, call: str) -> str:
        return self.host.expand(_statement([call]))


_RAISED = float("nan")
# Rows that no table has, in the place of which others are written.
_ANY = range(1234567, 7654321)


def _where(which: range) -> str:
    return f"row_number >= {which.start} AND row_number < {which.stop}"


def _statement(calls: Sequence[str], which: range | None = None) -> str:
    listed = ", ".join(f"{call} AS c{number}" for number, call in enumerate(calls))
    where = "" if which is None else f" WHERE {_where(which)}"
    return f"SELECT {listed}, row_number FROM points{where} ORDER BY row_number"


class Judge(verdict.Judge):
    """Compares on a host, and counts what it refuses. What the host says of the expression itself is its own affair."""

    def __init__(self, host: Host, given: _Given) -> None:
        self.path: _Path
        super().__init__(_Path(host, given.at.table), given.at)
        self._given = given

    def _columns(self, batch: Sequence[Case]) -> list[list[pa.ChunkedArray | Exception]]:
        if self.path.host.dialect == "datafusion":
            return super()._columns(batch)
        # Other hosts lack more, and one after the other it is found out sooner what.
        found = []
        for case in batch:
            (primal,) = self._evaluate([case.calls[0].sql])
            failed = isinstance(primal, Exception)
            rest = [primal] * len(case.calls[1:]) if failed else self._evaluate([call.sql for call in case.calls[1:]])
            found.append([primal, *rest])
        return found

    def _of_case(self, case: Case, columns: Sequence[pa.ChunkedArray | Exception]) -> list[Disagreement]:
        self.counts["expressions"] += 1
        self._elsewhere = np.zeros(len(self.points.numbers["x"]), bool)
        if self.path.host.dialect == "sqlite":
            # It has stored NULL for these.
            for numbers in self.points.numbers.values():
                self._elsewhere |= np.isnan(numbers)
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
        column = self._with_nan(column, reference)
        raised = self._raised(call.sql)
        if call is case.calls[0] and self.path.host.dialect != "datafusion":
            self._elsewhere |= raised | self._wrong(column, reference)
            self.counts["expressions that the host evaluates"] += 1
            self.counts["expressions with another value or an error somewhere"] += bool(self._elsewhere.any())
            return []
        self.counts["calls"] += 1
        doubtful = reference.doubtful | self._elsewhere
        if self.path.host.dialect == "sqlite":
            # A quotient by 0 is NULL there, as at a pole.
            null = np.isnan(np.array(column.cast(pa.float64()).fill_null(np.nan)))
            doubtful |= null & np.all([np.isinf(rounded) for rounded, _ in reference.values], axis=0)
        undefined = reference.extreme | reference.outside | np.isinf(reference.spread)
        for rounded, extended in reference.values:
            undefined |= ~np.isfinite(rounded) | ~np.isfinite(extended)
        if (unwanted := raised & ~doubtful & ~undefined).any():
            reason = "raises an error where the derivative is a number"
            return [Disagreement(case, call, reason, int(np.argmax(unwanted)), None, reference)]
        self.counts["calls that raise an error at some poles or overflows"] += bool(raised.any())
        doubtful |= raised
        found = super()._compare(case, call, column, replace(reference, doubtful=doubtful))
        if found and len(call.operands) > 1 and self.path.host.dialect != "datafusion":
            doubtful |= self._factors_elsewhere(call)
            found = super()._compare(case, call, column, replace(reference, doubtful=doubtful))
        self.counts["calls that agree"] += not found
        return found

    def _factors_elsewhere(self, call: Call) -> NDArray[np.bool_]:
        """Where a factor of the user's has another value on the host."""
        elsewhere = np.zeros(len(self.points.numbers["x"]), bool)
        for factor in call.operands[1:]:
            (column,) = self._evaluate([factor.sql])
            if isinstance(column, Exception):
                return np.ones_like(elsewhere)
            (reference,) = Case(factor, [value(factor)]).references(self.points)
            elsewhere |= self._raised(factor.sql) | self._wrong(self._with_nan(column, reference), reference)
        return elsewhere

    def _raised(self, call: str) -> NDArray[np.bool_]:
        return self.path.raised.get(call, np.zeros(len(self.points.numbers["x"]), bool))

    def _with_nan(self, column: pa.ChunkedArray, reference: Reference) -> pa.ChunkedArray:
        """SQLite has NULL for NaN: it is NULL where it has to be, and NaN elsewhere."""
        if self.path.host.dialect != "sqlite":
            return column
        values = np.array(column.cast(pa.float64()).fill_null(np.nan))
        return pa.chunked_array([pa.array(values, mask=np.isnan(values) & reference.null)])

    def _has_type(self, call: Call, column: pa.ChunkedArray) -> bool:
        """Other hosts have types of their own, and DataFusion 55 a double for the root of a float."""
        return self.path.host.name != "datafusion 54.0.0" or super()._has_type(call, column)

    @staticmethod
    def _wrong(column: pa.ChunkedArray, reference: Reference) -> NDArray[np.bool_]:
        null = np.array(column.is_null())
        values = np.array(column.cast(pa.float64()).fill_null(0.5))
        no_number = np.isnan(values) != np.isnan(reference.values[0][0])
        return np.asarray((null != reference.null) | ~(null | agrees(values, reference) & ~no_number))


def judged(host: Host, number: int, seed: int) -> tuple[Judge, list[Disagreement]]:
    """What a host makes of so many expressions."""
    given = _given(number, seed)
    judge = Judge(host, given)
    return judge, judge.disagreements(given.cases)
