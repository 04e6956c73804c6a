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
# At so many of the last of them, what is left between two extrapolations is rounding; or at so many at least.
_FINE, _FINEST = 14, 4
# An extrapolation is sure of itself if its estimated error is no more than this share of it.
_SURE = 1e-4
# The most that differences vary by rounding, in terms of the rounding error of one value.
_ROUNDED = 2.0**10


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
        The extrapolation whose estimated error is least, first of those that are sure of themselves. The error is by
        how much it differs from its neighbours in Neville's tableau, and what rounding adds to it. Where extrapolations
        from different steps contradict one another, as those to either side of a scale at which the function jumps,
        the error is by how much they do. None if no two neighbouring quotients are finite, or if the function still
        varies irregularly at the finest steps, as one does that oscillates within them.
    """
    tableau = _neville(quotients, order)
    irregular = _irregularities(steps, tableau)
    finest = _middle(irregular[-_FINEST:])
    spread = max((abs(q) * step for step, q in zip(steps, quotients, strict=True) if math.isfinite(q)), default=0.0)
    if finest > max(_ROUNDED * rounding, math.sqrt(rounding * spread)):
        return None
    rows = _rows(steps, tableau, irregular, rounding)
    if not rows:
        return None
    sure = [d for d in rows if d.uncertainty < _SURE * abs(d.value)]
    best = min(sure, key=lambda d: d.uncertainty / abs(d.value)) if sure else min(rows, key=lambda d: d.uncertainty)
    # What seems to converge at steps that are multiples of a period, finer ones contradict.
    rivals = [d for d in rows if d in sure or d.step < best.step or not sure]
    apart = max((abs(best.value - d.value) for d in rivals if _contradict(best, d)), default=0.0)
    return best._replace(uncertainty=max(best.uncertainty, apart))


def _rows(
    steps: Sequence[float], tableau: Sequence[Sequence[float]], irregular: Sequence[float], rounding: float
) -> list[Difference]:
    """The extrapolation of each row whose estimated error is least, if the row has one that is finite."""
    rows: list[Difference] = []
    for number, (step, (above, row)) in enumerate(zip(steps[1:], pairwise(tableau), strict=True), start=1):
        # Coarser steps may be too coarse to tell rounding from truncation.
        finer = min(max(len(steps) - number, _FINEST), _FINE)
        noise = max(rounding, _middle(irregular[-finer:]))
        found = []
        for column in range(1, len(row)):
            truncation = max(abs(row[column] - row[column - 1]), abs(row[column] - above[column - 1]))
            # An extrapolation multiplies the rounding error by (factor + 1) / (factor - 1) at most.
            found.append(Difference(row[column], truncation + 4 * noise / step, step))
        rows += sorted((d for d in found if math.isfinite(d.uncertainty)), key=lambda d: d.uncertainty)[:1]
    return rows


def _neville(quotients: Sequence[float], order: int) -> list[list[float]]:
    """Neville's tableau: a row for each quotient, with one extrapolation more than the row before."""
    tableau: list[list[float]] = []
    for quotient in quotients:
        row = [quotient]
        for column, previous in enumerate(tableau[-1] if tableau else [], start=1):
            factor = 2.0 ** (order * column)
            row.append((factor * row[-1] - previous) / (factor - 1))
        tableau.append(row)
    return tableau


def _irregularities(steps: Sequence[float], tableau: Sequence[Sequence[float]]) -> list[float]:
    """By how much differences at neighbouring steps vary, without the first two terms of the truncation error."""
    entries = [row[min(2, len(row) - 1)] for row in tableau]
    return [abs(fine - coarse) * step for (coarse, fine), step in zip(pairwise(entries), steps[1:], strict=True)]


def _middle(irregularities: Sequence[float]) -> float:
    """The rounding error of a difference, from the middle one: a jump between two steps is no rounding error."""
    return 4 * median([error for error in irregularities if math.isfinite(error)] or [0.0])


def _contradict(one: Difference, other: Difference) -> bool:
    return abs(one.value - other.value) > 10 * (one.uncertainty + other.uncertainty)
