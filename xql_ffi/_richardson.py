"""Derivatives from difference quotients: Richardson's extrapolation, at steps that no finer one contradicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

# In terms of the size of the variable: from an eighth down to where rounding errors have taken over.
STEPS = [2.0**-k for k in range(3, 32)]
# So many times its own estimate, a difference may be off.
SAFETY = 10.0
# At so many of the finest steps, differences vary by rounding alone, by no more than so many rounding errors.
_FINEST, _ROUNDED = 4, 2.0**20
# So many extrapolations have to agree. One is sure of itself if its error is no more than this share of it.
_AGREEING, _SURE = 3, 1e-4


class Difference(NamedTuple):
    """A derivative from differences, how far off it may be, and the step it was taken at."""

    value: float
    uncertainty: float
    step: float


def derive(steps: Sequence[float], quotients: Sequence[float], rounding: float, order: int) -> Difference | None:
    """Extrapolates difference quotients, at steps of which each is half of the one before, to a step of 0.

    The error of a quotient begins with the power ``order`` of its step, and its further terms rise by that: 2 if it is
    central, 1 if it is one-sided. Three neighbours make an extrapolation. Its error is estimated by how much it differs
    from its neighbours, and by rounding, which is what extrapolations at finer steps vary by. From the finest step
    upwards, extrapolations count as long as all may be right within their errors (Lepski's rule), so that what seems to
    converge at steps that are too coarse, as at multiples of a period, does not; that of least error is the result.
    None if too few agree, or more are sure of something else, or the function oscillates within the finest steps.
    """
    differences = [abs(q) * step for step, q in zip(steps, quotients, strict=True) if math.isfinite(q)]
    told = set(filter(None, differences))
    if len(told) >= _AGREEING and not quotients[-1]:  # the values have so few digits that fine steps do not change them
        rounding = max(rounding, min(told))
    middle = _extrapolated(quotients, 2.0**order)
    values = _extrapolated(middle, 4.0**order)
    varying = [abs(fine - coarse) * step for (coarse, fine), step in zip(pairwise(values), steps[1:], strict=True)]
    noise = max(filter(math.isfinite, varying[-_FINEST:]), default=0.0)
    if noise > math.sqrt(rounding * max(_ROUNDED * rounding, *differences, 0.0)):
        return None
    noise, low, high = max(noise, rounding), -math.inf, math.inf
    agreeing: list[Difference] = []
    sure = 0
    for k in reversed(range(_AGREEING, len(steps))):
        if math.isfinite(varying[k - 1]):
            noise = max(noise, varying[k - 1])
            error = max(abs(values[k] - middle[k]), abs(values[k] - values[k - 1])) + 2 * noise / steps[k]
            low, high = max(low, values[k] - SAFETY * error), min(high, values[k] + SAFETY * error)
            if low <= high:
                agreeing.append(Difference(values[k], error, steps[k]))
            sure += (error < _SURE * abs(values[k])) * (1 if low <= high else -1)
    return min(agreeing, key=lambda found: found.uncertainty) if len(agreeing) >= _AGREEING and sure >= 0 else None


def _extrapolated(quotients: Sequence[float], factor: float) -> list[float]:
    """Extrapolates: removes the error that was larger by this factor at the step before."""
    return [math.nan, *((factor * fine - coarse) / (factor - 1) for coarse, fine in pairwise(quotients))]
