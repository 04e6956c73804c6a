"""Differences with Richardson's extrapolation and an estimate of their error.

C. J. F. Ridders, Accurate computation of F'(x) and F'(x) F''(x), Advances in Engineering Software 4 (1982).
W. H. Press et al., Numerical Recipes, section 5.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

# In terms of the size of the variable: from an eighth down to where rounding errors have taken over.
STEPS = [2.0**-k for k in range(3, 29)]
# At the last of them, what is left between two quotients is rounding.
_FINE = 14


class Difference(NamedTuple):
    """A derivative from differences, how far off it may be, and the step it was taken at."""

    value: float
    uncertainty: float
    step: float


def derive(steps: Sequence[float], quotients: Sequence[float], rounding: float, order: int) -> Difference | None:
    """Extrapolates difference quotients to a step of 0.

    Args:
        steps: the steps, each half of the one before.
        quotients: the difference quotient for each step.
        rounding: the rounding error that the difference of two values has at least.
        order: by which power of the step the error of a quotient begins, and its further terms rise: 2 if they are
            central, 1 if they are one-sided.

    Returns:
        The extrapolation whose estimated error is least, or none if no two neighbouring quotients are finite. The
        error is by how much it differs from its neighbours in Neville's tableau, and what rounding adds to it. Where
        extrapolations from different steps contradict one another, as those to either side of a scale at which the
        function jumps, the error is by how much they do.
    """
    noise = max(rounding, _irregularity(steps, quotients))
    rows: list[Difference] = []
    above: list[float] = []
    for step, quotient in zip(steps, quotients, strict=True):
        row = [quotient]
        found = []
        for column, previous in enumerate(above, start=1):
            factor = 2.0 ** (order * column)
            row.append((factor * row[-1] - previous) / (factor - 1))
            truncation = max(abs(row[column] - row[column - 1]), abs(row[column] - previous))
            # An extrapolation multiplies the rounding error by (factor + 1) / (factor - 1) at most.
            found.append(Difference(row[column], truncation + 4 * noise / step, step))
        rows += sorted((d for d in found if math.isfinite(d.uncertainty)), key=lambda d: d.uncertainty)[:1]
        above = row
    if not rows:
        return None
    best = min(rows, key=lambda d: d.uncertainty)
    apart = max(abs(best.value - d.value) for d in rows if d is best or _contradict(best, d))
    return best._replace(uncertainty=max(best.uncertainty, apart))


def _irregularity(steps: Sequence[float], quotients: Sequence[float]) -> float:
    """The rounding error of a difference, from how much quotients at the finest steps vary."""
    fine = list(zip(steps, quotients, strict=True))[-_FINE:]
    varied = [abs(q - previous) * step for (_, previous), (step, q) in pairwise(fine)]
    # The middle one: a jump between two steps is no rounding error.
    return 4 * median([error for error in varied if math.isfinite(error)] or [0.0])


def _contradict(one: Difference, other: Difference) -> bool:
    return abs(one.value - other.value) > 10 * (one.uncertainty + other.uncertainty)
