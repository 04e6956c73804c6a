"""Solves systems of the Hessian of a loss at its minimum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from xql_ffi._errors import MinimumError
from xql_ffi._objective.curvature import inverted

if TYPE_CHECKING:
    from xql_ffi._objective.parameters import Vector

    Map = Callable[[Vector], Vector]

# Of so many parameters the Hessian is made, by as many products with a vector. Of more, conjugate gradients solve.
MADE = 256
# By how much these reduce a residual, and by how many products at most.
REDUCED, MOST = 1e-10, 10_000


@dataclass(frozen=True)
class Solver:
    """Solves systems of a Hessian.

    Attributes:
        solve: the vector whose product with the Hessian is this one.
        units: of a derivative by each parameter, in which residuals are measured.
    """

    solve: Map
    units: Vector


def solver(product: Map, gradient: Vector, names: Sequence[str]) -> Solver:
    """Makes the solver of a Hessian, which is known to be positive definite then.

    Args:
        product: the Hessian times a vector.
        gradient: the derivatives at the same point.
        names: what the parameters are called.

    Raises:
        ImportError: there are many parameters, and SciPy is not installed.
        MinimumError: the loss does not bend upwards in all directions.
    """
    import numpy as np

    n = len(gradient)
    if n <= MADE:
        products = np.stack([product(unit) for unit in np.eye(n)])
        inverse = inverted((products + products.T) / 2, gradient, names, MinimumError)
        return Solver(inverse.__matmul__, np.sqrt(np.diag(products)))
    if not np.isfinite(gradient).all():
        msg = f"the derivative by {names[int(np.argmin(np.isfinite(gradient)))]} is not finite at this point"
        raise MinimumError(msg)
    solve = _conjugate_gradients(product, names)
    # What conjugate gradients solve for a vector with a part in every direction has no direction without curvature:
    # along one, a residual stays as it is, and if the loss bends down, it grows.
    solve(np.random.default_rng(0).normal(size=n))
    return Solver(solve, np.ones(n))


def _conjugate_gradients(product: Map, names: Sequence[str]) -> Map:
    """Solves by conjugate gradients.

    Raises:
        ImportError: SciPy is not installed.
    """
    import numpy as np

    if find_spec("scipy") is None:
        msg = (
            f"the Hessian of more than {MADE} parameters is solved by SciPy, which is not installed: pip install scipy"
        )
        raise ImportError(msg)
    from scipy.sparse.linalg import LinearOperator, cg

    n = len(names)

    def bent(direction: Vector) -> Vector:
        along = product(direction)
        if not direction @ along > 0:
            most = names[int(np.argmax(np.abs(direction)))]
            msg = (
                "the loss does not bend upwards along a direction that conjugate gradients have met, which moves "
                f"{most} most: this point is no minimum, or the loss does not determine all parameters there. A "
                "penalty determines them, such as the sum of their squares times a small number"
            )
            raise MinimumError(msg)
        return along

    def solve(right: Vector) -> Vector:
        most = min(10 * n, MOST)
        found, failed = cg(LinearOperator((n, n), matvec=bent, dtype=float), right, rtol=REDUCED, atol=0, maxiter=most)
        if failed:
            left = np.linalg.norm(right - product(found)) / np.linalg.norm(right)
            msg = (
                f"conjugate gradients have not solved a system of the Hessian by {most} products: a share of "
                f"{left:.2g} is left. The loss hardly determines some of the parameters: add a penalty, such as the "
                "sum of their squares times a small number, or bring the parameters to one scale"
            )
            raise MinimumError(msg)
        solved: Vector = found
        return solved

    return solve
