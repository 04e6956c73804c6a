"""Derivatives by differences of what DataFusion computes: the one harness of all tests.

- `central`: of something at a few steps, for values that are known to be smooth there
- `first`, `second`: of the rows of a query, extrapolated to no step, with an estimate of their error
- `of_points`: of a function of columns at many points at once, and where they are sound

Nothing of this looks at the derivative that is tested. The extrapolation is Richardson's, see E. Hairer, S. P. Norsett,
G. Wanner, Solving Ordinary Differential Equations I, II.9.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Points = dict[str, Values]

# The step of `central`: its error and what rounding makes of it are some 1e-12 of a function of everyday size.
_STEP = 1e-3


def central(moved: Callable[[float], Any]) -> Values:
    """The derivatives of values by a number that moves them, at 0, by differences of order 4; NaN where one is NULL."""
    near, far = (
        np.asarray(moved(step), np.float64) - np.asarray(moved(-step), np.float64) for step in (_STEP, 2 * _STEP)
    )
    return (8 * near - far) / (12 * _STEP)


# Rows of a query


_LEVELS = 3
_FIRST, _SECOND = 2.0**-8, 2.0**-5
_EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Sampled:
    """The values of the rows, NaN where they are NULL, and what tells the rows apart."""

    values: Values
    null: Flags
    rows: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Estimate:
    """A derivative in every row, and how far off it may be; infinitely where differences say nothing."""

    value: Values
    error: Values


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


def _extrapolated(values: list[Values], powers: Sequence[int]) -> tuple[Values, Values]:
    """The limit of values at halved steps whose errors have these powers, and how much the last refinement changed."""
    before = values
    for power in powers:
        before, values = (
            values,
            [(2**power * fine - coarse) / (2**power - 1) for coarse, fine in itertools.pairwise(values)],
        )
    return values[-1], np.abs(values[-1] - before[-1])


def _usable(base: Sampled, samples: Sequence[Sampled]) -> Flags | None:
    """The rows that are NULL in none; nothing where other rows come out."""
    if any(sample.rows != base.rows for sample in samples):
        return None
    return np.asarray(~base.null & ~np.logical_or.reduce([sample.null for sample in samples]))


def nothing(base: Sampled) -> Estimate:
    """What is known without differences."""
    return Estimate(np.full(len(base.values), np.nan), np.full(len(base.values), np.inf))


# Points of a function


# Of order 8: the error is h^8 f^(9) / 630. With steps of a hundredth, that and the rounding of f / h are below 1e-11 of
# a smooth f, so that agreement to 1e-10 of the derivative is certain.
_WEIGHTS = np.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0.0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
_OFFSETS = np.arange(-4, 5)
_AGREEMENT = 1e-11
# Of order 4, from one side.
_FORWARD = np.array([0, 0, 0, 0, -25 / 12, 4, -3, 4 / 3, -1 / 4])
_KINK = 1e-3


@dataclass(frozen=True)
class Differences:
    """The derivative at each point, where it is known to be `sound`, and how far rounding reaches there.

    Points are `inside` if all that was evaluated for them lies in the domain.
    """

    derivative: Values
    sound: Flags
    inside: Flags
    rounding: Values
    magnitude: Values


def step(at: Values) -> Values:
    """A step that suits a point, and no fraction of one, so that it does not keep step with a staircase."""
    return 0.83 / 64 * np.clip(np.abs(np.nan_to_num(at)), 2.0**-3, 1.0)


def of_points(
    evaluate: Callable[[Points], Values], is_inside: Callable[[Points], Flags], points: Points, by: str, h: Values
) -> Differences:
    """Central differences of a function by one of its inputs.

    They are sound where they are the same for half the step, and the same from the left as from the right. Nothing of
    this looks at the derivative that is tested.
    """
    wide, inside = _around(evaluate, is_inside, points, by, h)
    narrow, _ = _around(evaluate, is_inside, points, by, h / 2)
    with np.errstate(invalid="ignore", over="ignore"):
        derivative, coarse = narrow @ _WEIGHTS / (h / 2), wide @ _WEIGHTS / h
        right, left = narrow @ _FORWARD / (h / 2), -(narrow @ _FORWARD[::-1]) / (h / 2)
        magnitude = np.abs(wide).max(axis=1)
        rounding = 64 * np.finfo(np.float64).eps * magnitude / h
        agree = np.abs(derivative - coarse) <= _AGREEMENT * np.abs(derivative) + rounding
        smooth = np.abs(right - left) <= _KINK * np.abs(derivative) + rounding
    return Differences(derivative, agree & smooth & inside & np.isfinite(derivative), inside, rounding, magnitude)


def _around(
    evaluate: Callable[[Points], Values], is_inside: Callable[[Points], Flags], points: Points, by: str, h: Values
) -> tuple[Values, Flags]:
    """The values at each point and its neighbours along one input, and whether all lie in the domain."""
    neighbours: Points = {name: np.ma.repeat(values, len(_OFFSETS)) for name, values in points.items()}
    neighbours[by] = neighbours[by] + (h[:, None] * _OFFSETS).ravel()
    inside = is_inside(neighbours)
    values = np.full(len(inside), np.nan)
    if inside.any():
        values[inside] = evaluate({name: array[inside] for name, array in neighbours.items()})
    shape = (len(h), len(_OFFSETS))
    return values.reshape(shape), np.all(inside.reshape(shape), axis=1)
