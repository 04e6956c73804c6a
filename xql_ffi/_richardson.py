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
# At so many of the finest steps, differences vary by rounding alone, unless the function oscillates within the steps.
_FINEST = 4
# So many rounding errors are no oscillation.
_ROUNDED = 2.0**20
# So many extrapolations have to agree.
_AGREEING = 3
# An extrapolation is sure of itself if its estimated error is no more than this share of it.
_SURE = 1e-4


class Difference(NamedTuple):
    """A derivative from differences, how far off it may be, and the step it was taken at."""

    value: float
    uncertainty: float
    step: float


def derive(steps: Sequence[float], quotients: Sequence[float], rounding: float, order: int) -> Difference | None:
    """Extrapolates difference quotients to a step of 0.

    Three neighbouring quotients make an extrapolation (Richardson). Its error is estimated by how much it differs from
    its neighbours, and by rounding, which is what extrapolations at finer steps vary by. From the finest step upwards,
    extrapolations count as long as all may be right within their errors (Lepski): what seems to converge at steps that
    are too coarse for the function, as multiples of a period, is not looked at.

    Args:
        steps: the steps, each half of the one before.
        quotients: the difference quotient for each step.
        rounding: the rounding error that the difference of two values has at least.
        order: by which power of the step the error of a quotient begins, and its further terms rise: 2 if they are
            central, 1 if they are one-sided.

    Returns:
        Of the extrapolations that count, the one whose estimated error is least. None if there are too few, fewer than
        coarser ones that are sure of something else, or if the function still varies irregularly at the finest steps,
        as one does that oscillates within them.
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
    noise = max(noise, rounding)
    agreeing: list[Difference] = []
    others: list[Difference] = []
    low, high = -math.inf, math.inf
    for k in reversed(range(_AGREEING, len(steps))):
        if not math.isfinite(varying[k - 1]):
            continue
        noise = max(noise, varying[k - 1])
        truncation = max(abs(values[k] - middle[k]), abs(values[k] - values[k - 1]))
        here = Difference(values[k], truncation + 2 * noise / steps[k], steps[k])
        low, high = max(low, here.value - SAFETY * here.uncertainty), min(high, here.value + SAFETY * here.uncertainty)
        (agreeing if low <= high else others).append(here)
    if len(agreeing) < _AGREEING or _sure(agreeing) < _sure(others):
        return None
    return min(agreeing, key=lambda here: here.uncertainty)


def _extrapolated(quotients: Sequence[float], factor: float) -> list[float]:
    """What is left without the error that is the factor times as large at the step before."""
    return [math.nan, *((factor * fine - coarse) / (factor - 1) for coarse, fine in pairwise(quotients))]


def _sure(found: Sequence[Difference]) -> int:
    return sum(here.uncertainty < _SURE * abs(here.value) for here in found)
