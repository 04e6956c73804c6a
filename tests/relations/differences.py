"""Derivatives of a query's values by differences, extrapolated to no step, with an estimate of their error.

Richardson's extrapolation, see E. Hairer, S. P. Norsett, G. Wanner, Solving Ordinary Differential Equations I, II.9.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEVELS = 3
_FIRST, _SECOND = 2.0**-8, 2.0**-5
_EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Sampled:
    """The values of the rows, NaN where they are NULL, and what tells the rows apart."""

    values: Floats
    null: NDArray[np.bool_]
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Estimate:
    """A derivative in every row, and how far off it may be; infinitely where differences say nothing."""

    value: Floats
    error: Floats


Evaluate = Callable[[Sequence[float]], Sampled]


def first(evaluate: Evaluate, base: Sampled, index: int, variables: int) -> Estimate:
    """The derivative by one of the variables."""

    def at(step: float) -> Sampled:
        return evaluate([step if number == index else 0.0 for number in range(variables)])

    steps = [_FIRST / 2**level for level in range(_LEVELS)]
    ups, downs = [at(step) for step in steps], [at(-step) for step in steps]
    usable = _usable(base, [*ups, *downs])
    if usable is None:
        return nothing(base)
    size = np.abs(base.values)
    with np.errstate(all="ignore"):
        slopes = [(up.values - down.values) / (2 * h) for up, down, h in zip(ups, downs, steps, strict=True)]
        bends = [(up.values + down.values - 2 * base.values) / h for up, down, h in zip(ups, downs, steps, strict=True)]
        value, error = _extrapolated(slopes, [2, 4])
        error += 8 * _EPSILON * size / steps[-1]
        # What is left of these without a step is the jump of the slope at a kink.
        jump, uncertainty = _extrapolated(bends, [1, 3])
        kinked = np.abs(jump) > 1e-7 * (1 + np.abs(value)) + 32 * _EPSILON * size / steps[-1] + 4 * uncertainty
        # A function that jumps right here has differences that grow.
        kinked |= np.abs(bends[-1]) > 1.5 * np.abs(bends[0]) + 1e-6 * (1 + np.abs(value))
        kinked |= np.abs(jump) > 1e-3 * (1 + np.abs(value))
    usable &= np.isfinite(value) & np.isfinite(error) & ~kinked
    return Estimate(value, np.where(usable, error, np.inf))


def second(evaluate: Evaluate, base: Sampled) -> Estimate:
    """The derivative by both of two variables, which may be the same."""
    steps = [_SECOND / 2**level for level in range(_LEVELS)]
    corners = [[evaluate([a * h, b * h]) for a in (1, -1) for b in (1, -1)] for h in steps]
    usable = _usable(base, [sample for samples in corners for sample in samples])
    if usable is None:
        return nothing(base)
    with np.errstate(all="ignore"):
        slopes = [
            (pp.values - pm.values - mp.values + mm.values) / (4 * h * h)
            for (pp, pm, mp, mm), h in zip(corners, steps, strict=True)
        ]
        value, error = _extrapolated(slopes, [2, 4])
        error += 16 * _EPSILON * np.abs(base.values) / steps[-1] ** 2
    usable &= np.isfinite(value) & np.isfinite(error)
    return Estimate(value, np.where(usable, error, np.inf))


def _extrapolated(values: list[Floats], powers: Sequence[int]) -> tuple[Floats, Floats]:
    """The limit of values at halved steps whose errors have these powers, and how much the last refinement changed."""
    before = values
    for power in powers:
        before, values = (
            values,
            [(2**power * fine - coarse) / (2**power - 1) for coarse, fine in itertools.pairwise(values)],
        )
    return values[-1], np.abs(values[-1] - before[-1])


def _usable(base: Sampled, samples: Sequence[Sampled]) -> NDArray[np.bool_] | None:
    """The rows that are NULL in none; nothing where other rows come out."""
    if any(sample.rows != base.rows for sample in samples):
        return None
    return np.asarray(~base.null & ~np.logical_or.reduce([sample.null for sample in samples]))


def nothing(base: Sampled) -> Estimate:
    """What is known without differences."""
    return Estimate(np.full(len(base.values), np.nan), np.full(len(base.values), np.inf))
