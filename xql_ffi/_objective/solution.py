"""The minimum of a loss as a function of further cells that the loss reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from xql_ffi._errors import MinimumError
from xql_ffi._objective.solver import solver
from xql_ffi._objective.weighted import quantities

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xql_ffi._objective.curvature import Matrix
    from xql_ffi._objective.evaluator import Evaluator
    from xql_ffi._objective.joint import Joint
    from xql_ffi._objective.parameters import Vector

# How far a point may be away from the minimum, as `Solution.distance` has it.
NEAR = 1e-3
# The share of a vector that a system of the Hessian may leave.
LEFT = 1e-6


class Solution:
    """The minimum of an objective as a function of further cells, as `Objective.solution` makes it.

    By the implicit function theorem its derivatives are ``-inverse(H) @ M``, with the Hessian ``H`` of the loss by the
    parameters, and ``M``, the derivatives of the gradient by the cells.

    Attributes:
        x: the minimum.
        start: the cells as the loss reads them, by column as `Objective.solution` was given these, then by row.
        names: what the cells are called, in their order: ``ridge.lam``, ``data.y[2]``.
        distance: how far x is from the minimum by one step of Newton's method: the length of that step, by the
            Hessian, beside that of x or the root of the loss, whichever is greater.
        residual: the greatest share of a vector that solving with the Hessian has left so far.
    """

    def __init__(self, evaluator: Evaluator, joint: Joint, x: Vector, told: Callable[[], None]) -> None:
        """Looks at a point.

        Args:
            evaluator: that of the loss, by the parameters and the cells.
            joint: which of these are parameters.
            x: the minimum.
            told: what is called after each product with the Hessian.

        Raises:
            MinimumError: it is no minimum.
            VariableError: the loss does not read one of the columns.
        """
        self._evaluator, self._joint, self._told = evaluator, joint, told
        self.x, self.start, self.names = x, joint.parameters.start()[joint.further], joint.names()
        self._point = joint.vector(x, self.start)
        evaluator.host.check(evaluator.value(self._point))
        value, gradient = evaluator.gradient(self._point)
        names = joint.parameters.names()
        own = [names[place] for place in joint.own]
        self._solver = solver(self._product, gradient[joint.own], own)
        self.residual = 0.0
        self.distance = self._distance(value, gradient[joint.own], own)

    def __repr__(self) -> str:
        columns = ", ".join(".".join(column) for column in self._joint.cells)
        return f"<xql_ffi.Solution: {len(self.x)} parameters by {len(self.names)} cells of {columns}>"

    def _distance(self, value: float, gradient: Vector, names: list[str]) -> float:
        """Checks that the point is the minimum, and says how far it is from it."""
        import numpy as np

        step = -self._solver.solve(gradient)
        length = math.sqrt(max(float(-step @ gradient), 0.0))
        size = math.sqrt(max(float(self.x @ self._product(self.x)), abs(value)))
        distance = 0.0 if not length else length / size if size else math.inf
        if not distance <= NEAR:
            place = int(np.argmax(np.abs(step) * self._solver.units))
            msg = (
                f"this point is no minimum: the gradient has the norm {np.linalg.norm(gradient):.3g}, and a step of "
                f"Newton's method moves {names[place]} by {step[place]:.3g}, which is {distance:.2g} of the way and at "
                f'most {NEAR} passes. Minimize on from here, as with method="trust-ncg", hessp=objective.hvp and '
                'options={"gtol": 1e-8}. If a bound holds a parameter there, leave it out by where'
            )
            raise MinimumError(msg)
        return distance

    def jvp(self, t: ArrayLike) -> Vector:
        """How the minimum moves where the cells move along a direction.

        Args:
            t: a number for each cell, in the order of `names`.

        Returns:
            A number for each parameter.

        Raises:
            DifferentiationError: the gradient has no such derivative.
            MinimumError: the system of the Hessian cannot be solved.
            ValueError: the vector has not one number for each cell.
        """
        joint = self._joint
        moved = self._along(joint.vector(self.x * 0, self._checked(t, self.start, "t", "cell")))
        return -self._solved(moved[joint.own])[0]

    def vjp(self, cotangent: ArrayLike) -> Vector:
        """Returns the derivatives of a function of the minimum by the cells, from its gradient by the parameters.

        It takes one solution of a system of the Hessian, and one derivative by all cells.

        Args:
            cotangent: the gradient, a number for each parameter.

        Returns:
            A number for each cell, in the order of `names`.

        Raises:
            DifferentiationError: the gradient has no such derivative.
            MinimumError: the system of the Hessian cannot be solved.
            ValueError: the vector has not one number for each parameter.
        """
        return -self._solved(self._checked(cotangent, self.x, "the cotangent", "parameter"))[1]

    def jacobian(self) -> Matrix:
        """Returns the derivatives of all parameters by all cells, in whichever mode takes fewer calls.

        Returns:
            An array of float64 of the shape (n, m) for n parameters and m cells.

        Raises:
            DifferentiationError: the gradient has no such derivative.
            MinimumError: a system of the Hessian cannot be solved.
        """
        import numpy as np

        n, m = len(self.x), len(self.start)
        if n <= m:
            return np.stack([self.vjp(unit) for unit in np.eye(n)])
        return np.stack([self.jvp(unit) for unit in np.eye(m)], axis=1)

    def sensitivity(self, of: str | ArrayLike) -> dict[str, pa.Table]:
        """Returns the derivatives of what is computed from the minimum by the cells, beside the rows that have these.

        Args:
            of: a query of one row, as `Objective.delta` takes it, each of whose columns of floats is differentiated.
                Where it reads the cells itself, that counts as well. Or a weight for each parameter, for the sum of
                these times the weights.

        Returns:
            The relations of the cells by their names, with all of their columns and rows: behind them ``d_f_y``, the
            derivative of the column ``f`` of the query by the column ``y``, and of a sum with weights ``d_y``. It is
            NULL where ``y`` is, and where it is a parameter.

        Raises:
            DifferentiationError: what the query computes, or the gradient, has no such derivative.
            MinimumError: a system of the Hessian cannot be solved.
            ValueError: the query gives another number of rows than one, no floats, or NULL among them; there is not
                one weight for each parameter; or a relation has a column that is called as a derivative is.
        """
        if not isinstance(of, str):
            return self._joint.tables([("d_", self.vjp(of))])
        evaluator, own, further = self._evaluator, self._joint.own, self._joint.further
        weighted = quantities(evaluator.sibling(), of, self._joint.parameters.values(self._point))
        if weighted.rows.num_rows != 1:
            msg = f"the query gives {weighted.rows.num_rows} rows: aggregate them, or select the columns of one"
            raise ValueError(msg)
        slopes = evaluator.jacobian(weighted, self._point)
        names = [field.name for field in weighted.rows.schema if pa.types.is_floating(field.type)]
        derivatives = [row[further] + self.vjp(row[own]) for row in slopes]
        return self._joint.tables([(f"d_{name}_", each) for name, each in zip(names, derivatives, strict=True)])

    def _checked(self, vector: ArrayLike, like: Vector, what: str, of: str) -> Vector:
        import numpy as np

        made: Vector = np.array(vector, dtype=np.float64)
        if made.shape != like.shape:
            msg = f"{what} must be a vector of {len(like)} numbers, one for each {of}; it has the shape {made.shape}"
            raise ValueError(msg)
        return made

    def _along(self, direction: Vector) -> Vector:
        """Returns the derivatives of the gradient, by parameters and cells, along a direction of both."""
        found = self._evaluator.hvp(self._point, direction)
        self._told()
        return found

    def _product(self, direction: Vector) -> Vector:
        """Returns the Hessian by the parameters times a vector."""
        return self._along(self._joint.vector(direction, self.start * 0))[self._joint.own]

    def _solved(self, right: Vector) -> tuple[Vector, Vector]:
        """Solves a system of the Hessian.

        Returns:
            The solution, and the derivatives by the cells of its product with the gradient.
        """
        import numpy as np

        solved = self._solver.solve(right)
        moved = self._along(self._joint.vector(solved, self.start * 0))
        units = self._solver.units
        size = float(np.linalg.norm(right / units))
        left = float(np.linalg.norm((moved[self._joint.own] - right) / units)) / size if size else 0.0
        if not left <= LEFT:
            msg = (
                f"a system of the Hessian is solved but for a share of {left:.2g}, of which {LEFT} passes: the loss "
                "hardly determines some of the parameters"
            )
            raise MinimumError(msg)
        self.residual = max(self.residual, left)
        return solved, moved[self._joint.further]
