"""What a path got wrong by derivatives in 50 digits, whatever JAX makes of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conformance.cases import Call, Case, Reference
from conformance.exact import CONTEXT, Exact, OutsideError
from conformance.paths import Path
from conformance.points import Points
from conformance.verdict import TOLERANCE, Disagreement, Judge

# As in the comparison with JAX: rounding errors of two ways of computing the same value, in terms of their spread.
_SPREADS = 8.0


class ExactJudge(Judge):
    """Compares calls at some points with their values in 50 digits.

    JAX has its say only where powers of the columns overflow or vanish, as what is computed on the way there is up to
    the formula, and a call has to be right only if JAX is; and in how far rounding in a derivative spreads: that of
    tanh, 1 - tanh(x)^2, loses its digits far from 0.
    """

    def __init__(self, path: Path, points: Points, *, at: int = 5) -> None:
        super().__init__(path, points)
        self._at = at

    def _compare(self, case: Case, call: Call, column: pa.ChunkedArray, reference: Reference) -> list[Disagreement]:
        values = np.array(column.fill_null(0.5), dtype=float)
        for point in self._chosen(call, ~np.array(column.is_null()), reference):
            exact = Exact(call, self.points, point)
            try:
                expected = float(exact.value())
            except OutsideError:
                self.counts["at a kink, a pole or outside of the domain"] += 1
                continue
            if not np.isfinite(expected) or abs(expected) > float(np.finfo(call.dtype).max):
                self.counts["too large for the type"] += 1
                continue
            self.counts["compared"] += 1
            jax = any(_right(way[0][point], expected, reference) for way in reference.values)
            self.counts["of which JAX has another value"] += not jax
            if _right(values[point], expected, reference):
                self.counts["of which only JAX has another value"] += not jax
                continue
            try:
                spread = exact.spread()
            except OutsideError:
                self.counts["at a pole of the derivative"] += 1
                continue
            off = abs(values[point] - expected)
            if not np.isfinite(spread):
                self.counts["rounding decides whether there is a derivative"] += 1
            elif off <= _SPREADS * spread:
                self.counts["right up to rounding in the expression"] += 1
            elif off <= _SPREADS * reference.spread[point] < np.inf:
                self.counts["right up to rounding in the derivative"] += 1
            elif self._left_open(call, reference, point, right=jax):
                self.counts["powers of the columns overflow or vanish"] += 1
            else:
                detail = f"is not {CONTEXT.nstr(exact.value(), 20)}, which moves by {spread:.3g} in rounding"
                return [Disagreement(case, call, detail, point, values[point], reference)]
        return []

    def _chosen(self, call: Call, known: NDArray[np.bool_], reference: Reference) -> Iterator[int]:
        """Some points at which the expression is a number, and all columns that it reads."""
        usable = known & ~reference.null & ~reference.doubtful & ~reference.outside
        for name in {name for operand in call.operands for name in operand.columns}:
            usable &= np.isfinite(self.points.numbers[name])
        points = [int(point) for point in np.flatnonzero(usable)]
        yield from random.Random(call.sql).sample(points, min(self._at, len(points)))

    @staticmethod
    def _left_open(call: Call, reference: Reference, point: int, *, right: bool) -> bool:
        of_the_formula = reference.product or reference.single or call.order > 1
        return bool(reference.extreme[point]) and (of_the_formula or not right)


def _right(value: float, expected: float, reference: Reference) -> bool:
    smallest = float(np.finfo(reference.dtype).smallest_normal)
    return abs(value - expected) <= TOLERANCE[reference.single] * abs(expected) + smallest
