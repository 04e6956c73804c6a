"""The profile of a loss: its least value where one parameter is held."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xql_ffi._objective.curvature import Matrix
    from xql_ffi._objective.parameters import Vector

    # The value and the gradient, and the Hessian, at a point.
    Differentiated = tuple[Callable[[Vector], tuple[float, Vector]], Callable[[Vector], Matrix]]


def least(of: Differentiated, x: Vector, place: int, grid: Vector, units: Vector) -> Vector:
    """Returns the least values of a loss where a parameter has each of these values, one after the other.

    Args:
        of: the loss.
        x: where to start from.
        place: which parameter is held.
        grid: its values.
        units: how far the parameters are to be moved for a change of the loss by a half.

    Raises:
        ImportError: SciPy is not installed.
        RuntimeError: no minimum is found.
    """
    import numpy as np

    if find_spec("scipy") is None:
        msg = "profile minimizes by SciPy, which is not installed: pip install scipy"
        raise ImportError(msg)
    from scipy.optimize import minimize

    differentiated, hessian = of
    rest = np.arange(len(x)) != place
    point, values = x.copy(), np.empty(len(grid))

    def at(moved: Vector) -> Vector:
        there: Vector = point.copy()
        there[rest] += moved * units[rest]
        return there

    def value_and_gradient(moved: Vector) -> tuple[float, Vector]:
        value, gradient = differentiated(at(moved))
        return value, gradient[rest] * units[rest]

    def curvature(moved: Vector) -> Matrix:
        scaled: Matrix = hessian(at(moved))[np.ix_(rest, rest)] * np.outer(units[rest], units[rest])
        return scaled

    for number, held in enumerate(grid):
        point[place] = held
        if not rest.any():
            values[number] = differentiated(point)[0]
            continue
        still = np.zeros(int(rest.sum()))
        found = minimize(
            value_and_gradient, still, jac=True, hess=curvature, method="trust-exact", options={"gtol": 1e-6}
        )
        if not found.success:
            msg = f"no minimum is found where the parameter is {held}: {found.message}"
            raise RuntimeError(msg)
        point, values[number] = at(found.x), found.fun
    return values
