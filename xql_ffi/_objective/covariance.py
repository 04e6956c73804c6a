"""The covariance of estimates, from derivatives of a negative log-likelihood at its minimum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xql_ffi._errors import CovarianceError
from xql_ffi._objective.curvature import inverted

if TYPE_CHECKING:
    from xql_ffi._objective.curvature import Matrix
    from xql_ffi._objective.parameters import Vector

# How many standard errors a point may be away from the minimum, by one step of Newton's method.
NEAR = 0.01


def covariance(hessian: Matrix, gradient: Vector, names: Sequence[str]) -> Matrix:
    """Inverts the Hessian of a negative log-likelihood at its minimum.

    Args:
        hessian: a symmetric matrix of the shape (n, n).
        gradient: the derivatives at the same point, n of them.
        names: what the parameters are called.

    Raises:
        CovarianceError: the point is no minimum, or the likelihood does not determine all parameters there.
    """
    import numpy as np

    inverse = inverted(hessian, gradient, names, CovarianceError)
    step = inverse @ gradient
    distance = math.sqrt(max(float(step @ gradient), 0.0))
    if distance > NEAR:
        farthest = names[int(np.argmax(np.abs(step) / np.sqrt(np.diag(inverse))))]
        msg = (
            f"this point is {distance:.2g} standard errors away from the minimum, most along {farthest}: minimize on "
            'from here, as with method="trust-ncg", hessp=objective.hvp and options={"gtol": 1e-8}. If a bound holds '
            "a parameter there, the loss has no minimum in it: leave the parameter out by where, or let the loss "
            "compute it from one without bounds. If the loss is a mean, say by scale what the sum is"
        )
        raise CovarianceError(msg)
    return inverse
