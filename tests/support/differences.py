"""Derivatives by central differences of what DataFusion computes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Points = dict[str, Values]

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


def differences(
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
