"""Inverts a Hessian at a minimum, or reports why it has no inverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xql_ffi._errors import MinimumError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from xql_ffi._objective.parameters import Vector

    Matrix = NDArray[np.float64]

# The eigenvalue, for each parameter, at which the Hessian with a diagonal of 1 is taken for singular.
SINGULAR = 1e-13


def inverted(hessian: Matrix, gradient: Vector, names: Sequence[str], error: type[MinimumError]) -> Matrix:
    """Inverts the Hessian of a loss at its minimum.

    What is inverted has a diagonal of 1, so that the units of the parameters do not count.

    Args:
        hessian: a symmetric matrix of the shape (n, n).
        gradient: the derivatives at the same point, n of them.
        names: what the parameters are called.
        error: what is raised.

    Raises:
        MinimumError: the loss does not bend upwards in all directions there, or is not finite.
    """
    import numpy as np

    if not (np.isfinite(hessian).all() and np.isfinite(gradient).all()):
        finite = np.isfinite(np.diag(hessian)) & np.isfinite(gradient)
        if finite.all():
            finite = np.asarray(np.isfinite(hessian).all(axis=1))
        msg = f"the derivatives by {_listed(names, ~finite)} are not finite at this point"
        raise error(msg)
    flat = np.diag(hessian) <= 0
    if flat.any():
        msg = (
            f"the loss has no curvature upwards along {_listed(names, flat)} at this point: it does not depend on it "
            "there, or on a straight line as abs and greatest do, or the point is no minimum"
        )
        raise error(msg + _slope(gradient, names))
    width = 1 / np.sqrt(np.diag(hessian))
    eigenvalues, vectors = np.linalg.eigh(hessian * np.outer(width, width))
    if eigenvalues[0] < len(names) * SINGULAR:
        raise error(_not_determined(eigenvalues[0], vectors[:, 0] * width, names) + _slope(gradient, names))
    inverse: Matrix = np.outer(width, width) * ((vectors / eigenvalues) @ vectors.T)
    return inverse


def _not_determined(eigenvalue: float, direction: Vector, names: Sequence[str]) -> str:
    """Returns the message for a direction in which the loss is flat or bends down."""
    import numpy as np

    largest = direction[np.argmax(np.abs(direction))]
    shares = direction / largest
    part = np.abs(shares) > 1e-6
    moved = ", ".join(f"{name} by {share:.4g}" for name, share in zip(names, shares, strict=True) if abs(share) > 1e-6)
    if part.sum() > MOST:
        moved = _listed(names, part)
    if eigenvalue < -len(names) * SINGULAR:
        return f"this point is no minimum: the loss bends down where one moves {moved}"
    return (
        f"the data do not determine all parameters: the loss stays as it is where one moves {moved}. Leave one of them "
        "out, or hold it by where"
    )


def _slope(gradient: Vector, names: Sequence[str]) -> str:
    """Returns the end of a message, with the largest derivative."""
    import numpy as np

    place = int(np.argmax(np.abs(gradient)))
    return f". The largest slope there is {gradient[place]:.3g}, by {names[place]}"


MOST = 8


def _listed(names: Sequence[str], which: NDArray[np.bool_]) -> str:
    """Returns the names of some parameters, of many only the first."""
    named = [name for name, is_one in zip(names, which, strict=True) if is_one]
    return ", ".join(named[:MOST]) + (f" and {len(named) - MOST} more" if len(named) > MOST else "")
