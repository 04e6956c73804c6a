"""What a path got wrong, and its smallest example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conformance.cases import Call, Case, Reference
from conformance.paths import Path
from conformance.points import ORDINARY, Points

# Of the value, where rounding errors do not spread further.
TOLERANCE = {False: 1e-12, True: 2e-6}
# Rounding errors of two ways of computing the same value, in terms of the spread of one.
_SPREADS = 8.0
# What is left of 1 over a column of 1e160 or 1e300 when a product of it and a power of it overflows.
_NEXT_TO_NOTHING = 1e-290
_ARROW = {np.dtype(np.float32): pa.float32(), np.dtype(np.float64): pa.float64()}


@dataclass(frozen=True)
class Disagreement:
    """A call and where it is wrong."""

    case: Case
    call: Call
    reason: str
    point: int = 0
    found: Any = None
    reference: Reference | None = None

    def describe(self, path: Path, points: Points) -> str:
        lines = [f"{self.reason}", f"  call:       {self.call.sql}"]
        if self.reference:
            i = self.point
            ways = ", ".join(f"{rounded[i]!r} (exactly {extended[i]!r})" for rounded, extended in self.reference.values)
            read = {c for operand in self.call.operands for c in operand.columns}
            at = {name: number for name, number in points.row(i).items() if name in read}
            lines += [
                f"  at:         {at}",
                f"  found:      {self.found!r}",
                f"  JAX:        {'NULL' if self.reference.null[i] else ways}",
                f"  tolerance:  {_tolerance(self.reference, self.reference.values[0][0])[i]:.3g}",
            ]
        try:
            derivative = path.derivative(points.table, self.call.sql)
        except Exception as error:
            derivative = f"none: {error}"
        return "\n".join([*lines, f"  derivative: {derivative}"])


class Judge:
    """Runs cases through a path and collects what disagrees."""

    def __init__(self, path: Path, points: Points, *, batch: int = 8) -> None:
        self.path, self.points, self.batch = path, points, batch
        # How many values were compared, and how many of these could not be told right from wrong.
        self.counts: Counter[str] = Counter()

    def disagreements(self, cases: Sequence[Case]) -> list[Disagreement]:
        """At most one for each call, in the order of the calls."""
        found = []
        for start in range(0, len(cases), self.batch):
            batch = cases[start : start + self.batch]
            for case, columns in zip(batch, self._columns(batch), strict=True):
                found += self._of_case(case, columns)
        return found

    def _columns(self, batch: Sequence[Case]) -> list[list[pa.ChunkedArray | Exception]]:
        """The results of each case: all together, which is faster, or each by itself if one fails."""
        try:
            columns = iter(
                self.path.evaluate(self.points.table, [call.sql for case in batch for call in case.calls]).columns
            )
            return [[next(columns) for _ in case.calls] for case in batch]
        except Exception:
            if len(batch) > 1:
                return [columns for case in batch for columns in self._columns([case])]
            calls = [call.sql for call in batch[0].calls]
            (primal,) = self._evaluate(calls[:1])
            # Where the expression fails, the calls are not looked at.
            return [[primal] * len(calls) if isinstance(primal, Exception) else self._evaluate(calls)]

    def _evaluate(self, calls: Sequence[str]) -> list[pa.ChunkedArray | Exception]:
        """The results of calls: all together, or each by itself if one of them fails."""
        try:
            return list(self.path.evaluate(self.points.table, calls).columns)
        except Exception as error:
            if len(calls) == 1:
                return [error]
            half = len(calls) // 2
            return self._evaluate(calls[:half]) + self._evaluate(calls[half:])

    def _of_case(self, case: Case, columns: Sequence[pa.ChunkedArray | Exception]) -> list[Disagreement]:
        if isinstance(columns[0], Exception):
            self._not_evaluated(columns[0])
            return []
        found = []
        for call, column, reference in zip(case.calls, columns, self._references(case), strict=True):
            if isinstance(column, Exception):
                if any(isinstance(self._evaluate([e.sql])[0], Exception) for e in call.operands[1:]):
                    continue  # a factor of the user's fails
                found += self._failed(case, call, column)
            elif not self._has_type(call, column):
                found.append(Disagreement(case, call, f"is {column.type} instead of {_ARROW[call.dtype]}"))
            else:
                found += self._compare(case, call, column, reference)
        return found

    def _has_type(self, call: Call, column: pa.ChunkedArray) -> bool:
        return bool(column.type == _ARROW[call.dtype])

    def _references(self, case: Case) -> Sequence[Reference]:
        return case.references(self.points)

    def _not_evaluated(self, error: Exception) -> None:
        """Counts an expression that fails by itself."""
        self.counts["expressions that DataFusion cannot evaluate"] += 1

    def _failed(self, case: Case, call: Call, error: Exception) -> list[Disagreement]:
        """What is said of a call that fails."""
        return [Disagreement(case, call, f"fails, though the expression does not: {error}")]

    def _compare(self, case: Case, call: Call, column: pa.ChunkedArray, reference: Reference) -> list[Disagreement]:
        null = np.array(column.is_null())
        values = np.array(column.fill_null(0.5), dtype=float)
        wrong = (null != reference.null) & ~reference.doubtful
        if wrong.any():
            point = int(np.argmax(wrong))
            shown = None if null[point] else values[point]
            return [Disagreement(case, call, "is not NULL exactly where it should be", point, shown, reference)]
        compared = ~null & ~reference.doubtful
        self._count(compared, reference)
        wrong = compared & ~agrees(values, reference)
        if wrong.any():
            # Rounding errors may have spread further than a few samples show.
            position = list(case.calls).index(call)
            reference = case.references(self.points, samples=300, seed=1)[position]
            wrong &= ~agrees(values, reference) & ~reference.doubtful
        if wrong.any():
            point = int(np.argmax(wrong))
            return [Disagreement(case, call, "has another value", point, values[point], reference)]
        return []

    def _count(self, compared: NDArray[np.bool_], reference: Reference) -> None:
        value = reference.values[0][0]
        numbers = compared & np.isfinite(value)
        tight = TOLERANCE[reference.single] * np.abs(value)
        well = numbers & (_SPREADS * reference.spread <= np.maximum(tight, np.finfo(float).smallest_normal))
        vague = numbers & (_SPREADS * reference.spread > 0.01 * np.maximum(np.abs(value), 1e-6))
        for kind, which in (("ordinary", slice(0, ORDINARY)), ("edge", slice(ORDINARY, None))):
            self.counts[f"{kind}: finite"] += int(numbers[which].sum())
            self.counts[f"{kind}: well-conditioned"] += int(well[which].sum())
            self.counts[f"{kind}: lost in rounding errors"] += int(vague[which].sum())
        self.counts["not finite"] += int((compared & ~np.isfinite(value)).sum())

    def smallest(self, disagreement: Disagreement, *, attempts: int = 150) -> Disagreement:
        """The smallest expression found whose call, of the same kind, disagrees in the same way."""
        best = disagreement
        for _ in range(attempts):
            for case in best.case.smaller(best.call):
                found = [d for d in self.disagreements([case]) if d.call is case.calls[-1]]
                if found and found[0].reason[:6] == best.reason[:6]:
                    best = found[0]
                    break
            else:
                break
        return best


def _tolerance(reference: Reference, value: NDArray[Any]) -> NDArray[Any]:
    smallest = np.finfo(np.float32 if reference.single else np.float64).smallest_normal
    with np.errstate(all="ignore"):
        relative = TOLERANCE[reference.single] * np.abs(value) + smallest
        return np.asarray(np.maximum(relative, _SPREADS * reference.spread))


def agrees(values: NDArray[Any], reference: Reference) -> NDArray[np.bool_]:
    """Where the values are right.

    They may be more defined than JAX's, whose 0 * inf is NaN, but never less, and where JAX has a number or an
    infinity they have to be that, or what it is without rounding and overflow. Left open is

    - which of infinity and NaN a derivative is outside of the domain, and at a pole if JAX's two modes differ there or
      it is of higher order;
    - the sign of an infinity at a pole, which is that of a zero: (1 - x) - 1 is 0 where x is, and so is -x;
    - whether it is a number where powers of the columns overflow or vanish, and what it is there, if it is close to the
      smallest number, in single precision, of higher order, or a product with a factor of the user's, or JAX's own is
      not the exact one: it is a matter of the formula which powers it takes;
    - whether it is 0 there instead of next to nothing: what is to be divided by several factors is divided by their
      product, which may overflow where none of them does.
    """
    matches = np.zeros(len(values), bool)
    overflown = np.zeros(len(values), bool)
    defined, infinite = [], []
    limits = np.finfo(np.float32 if reference.single else np.float64)
    largest, smallest = limits.max, limits.smallest_normal
    with np.errstate(all="ignore"):
        for way in reference.values:
            overflown |= ~(np.abs(way[0]) < 1e-6 * largest) & np.isfinite(way[1])
            overflown |= reference.extreme & ~np.isclose(way[0], way[1], rtol=1e-9, atol=0)
            overflown |= reference.extreme & (np.maximum(np.abs(way[0]), np.abs(values)) < 1e6 * smallest)
            overflown |= reference.extreme & (values == 0) & (np.abs(way[0]) < _NEXT_TO_NOTHING)
            defined.append(~np.isnan(way[0]))
            infinite.append(~np.isfinite(way[0]))
            for value in way:
                close = np.abs(values - value) <= _tolerance(reference, value)
                matches |= (values == value) | (close & np.isfinite(value))
            cancelled = (way[0] == 0) & (way[1] == 0)
            matches |= cancelled & (np.abs(values) <= reference.residue)
    undefined = ~(np.all if reference.product or reference.order > 1 else np.any)(defined, axis=0)
    disputed = ~np.all(defined, axis=0) | (reference.order > 1)
    pole = np.all(infinite, axis=0) & ~np.isfinite(values) & (reference.outside | disputed | np.isinf(values))
    nowhere = np.isnan(values) & reference.outside | ~np.isfinite(values) & reference.extreme
    nowhere |= reference.extreme & (reference.product or reference.single or reference.order > 1)
    return np.asarray(matches | overflown | undefined | pole | nowhere | np.isinf(reference.spread))
