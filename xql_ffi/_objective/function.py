"""The objective itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi._objective.covariance import covariance
from xql_ffi._objective.derived import Derived, derived
from xql_ffi._objective.evaluator import Evaluator
from xql_ffi._objective.joint import joined
from xql_ffi._objective.parameters import variables
from xql_ffi._objective.profile import least
from xql_ffi._objective.solution import Solution
from xql_ffi._objective.weighted import observations, quantities
from xql_ffi._progress import called

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xql_ffi._objective.curvature import Matrix
    from xql_ffi._objective.parameters import Vector


class Objective:
    """A loss as a function of the cells that it reads, as `objective` makes it.

    Threads may share one: its calls wait for one another. An objective keeps its session.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self._parameters = evaluator, evaluator.parameters

    def __repr__(self) -> str:
        names = ", ".join(f"{r.name}.{v}" for r in self._parameters.relations for v in r.variables)
        return f"<xql_ffi.Objective of {self._parameters.number} parameters: {names}>"

    @property
    def start(self) -> Vector:
        """The parameters as the relations had them when the objective was made, as a vector of float64.

        They are in the order of the relations as `objective` was given them, then in that of their columns, then in
        that of the rows: by the primary key of a DuckDB table that has one, and otherwise as the relation has them.
        NULL has no place in it.
        """
        return self._parameters.start()

    @property
    def names(self) -> list[str]:
        """The names of the parameters, in their order.

        ``par.a`` in a table of one row, and ``w.val[2]``, by the number of the row from 0 on, in one of several.
        """
        return self._parameters.names()

    def named(self, x: ArrayLike) -> dict[str, Any]:
        """Returns the numbers of a vector by the names of the parameters, or those of a matrix by the names of both.

        >>> from datafusion import SessionContext
        >>> import xql_ffi
        >>> ctx = xql_ffi.register(SessionContext())
        >>> par = ctx.from_pydict({"a": [1.0], "b": [2.0]}, name="par")
        >>> loss = xql_ffi.objective(ctx, "SELECT a * a * b FROM par", ["par.a", "par.b"])
        >>> loss.named(loss.start), loss.named(loss.hessian(loss.start))["par.b"]
        ({'par.a': 1.0, 'par.b': 2.0}, {'par.a': 2.0, 'par.b': 0.0})

        Beside the keys of their rows they are as tables, `parameters`.

        Raises:
            ValueError: there is not one number, or one row and one column, for each parameter.
        """
        import numpy as np

        if np.ndim(x) == 2:
            return {name: self.named(row) for name, row in zip(self.names, self._parameters.square(x), strict=True)}
        return dict(zip(self.names, self._parameters.checked(x, "x").tolist(), strict=True))

    def parameters(self, x: ArrayLike) -> dict[str, pa.Table]:
        """Returns the relations at a vector of parameters, by their names, with all of their columns and rows.

        Raises:
            ValueError: the vector has not one number for each parameter.
        """
        return self._parameters.tables(self._parameters.checked(x, "x"))

    def update(self, x: ArrayLike) -> None:
        """Gives the relations of the session these values, all of them or none.

        In DuckDB this is one transaction, which changes the cells in place. In DataFusion a table in memory takes the
        place of each relation; a view that was made before keeps the table that it was made with.

        Raises:
            ValueError: the vector has not one number for each parameter, or a relation has other rows or columns
                than when the objective was made.
        """
        self._evaluator.update(self.parameters(x))

    def replace(self, name: str, rows: pa.Table | Mapping[str, Sequence[Any]]) -> None:
        """Lets the loss read these rows in the place of a table of the session, as a batch, from now on.

        The session keeps its table. The first replacement of a table has the statements planned again, later ones do
        not.

        Args:
            name: the table, as the loss names it, which is no relation of parameters.
            rows: its columns.

        Raises:
            ValueError: there is no such table, or it has other columns.
        """
        if name in (relation.name for relation in self._parameters.relations):
            msg = f"{name} has parameters, which each call brings: hand them over as x"
            raise ValueError(msg)
        self._evaluator.replace(name, rows if isinstance(rows, pa.Table) else pa.table(dict(rows)))

    def __call__(self, x: ArrayLike) -> tuple[float, Vector]:
        """The value and the gradient, a vector of float64, as ``scipy.optimize.minimize(..., jac=True)`` takes them.

        NULL is NaN: a loss that is NULL, and its derivatives.

        Raises:
            DifferentiationError: the loss has no derivative by these columns.
            ValueError: the vector has not one number for each parameter.
        """
        value, gradient = self._evaluator.gradient(x)
        called(self, value, gradient)
        return value, gradient

    def value(self, x: ArrayLike) -> float:
        """Returns the value alone, with NaN for NULL.

        Raises:
            ValueError: the vector has not one number for each parameter.
        """
        value = self._evaluator.value(x)
        called(self, value)
        return value

    def jvp(self, x: ArrayLike, t: ArrayLike) -> float:
        """Returns the derivative of the value along a direction, in forward mode.

        Raises:
            DifferentiationError: the loss has no such derivative.
            ValueError: a vector has not one number for each parameter.
        """
        slope = self._evaluator.jvp(x, t)
        called(self)
        return slope

    def hvp(self, x: ArrayLike, t: ArrayLike) -> Vector:
        """The Hessian times a vector: the derivative of the gradient along it, in forward mode over reverse mode.

        Raises:
            DifferentiationError: the gradient has no such derivative, as where it passes through a recursive query.
            ValueError: a vector has not one number for each parameter.
        """
        product = self._evaluator.hvp(x, t)
        called(self)
        return product

    def hessian(self, x: ArrayLike) -> Matrix:
        """Returns the second derivatives, a symmetric array of float64 of the shape (n, n) for n parameters.

        They are n products with a vector, `Objective.hvp`, of one plan: the time is that of n calls, a few times that
        of n gradients, and the memory that of n * n numbers. For many parameters, a method that takes ``hessp`` needs
        far fewer products, and ``scipy.sparse.linalg.cg`` solves with them.

        Raises:
            DifferentiationError: the gradient has no derivative.
            ValueError: the vector has not one number for each parameter.
        """
        import numpy as np

        n = self._parameters.number
        products = np.empty((n, n))
        for product, unit in zip(products, np.eye(n), strict=True):
            product[:] = self.hvp(x, unit)
        symmetric: Matrix = (products + products.T) / 2
        return symmetric

    def covariance(self, x: ArrayLike, *, scale: float = 1.0, scores: str | None = None) -> Matrix:
        """Returns the covariance of the estimates where the loss is a negative log-likelihood, and x its minimum.

        It is the inverse of the Hessian, the observed information; with ``scores`` it is the sandwich
        ``inverse @ (scores.T @ scores) @ inverse``, which is right also where the likelihood is not (Huber 1967, White
        1982; by clusters Liang and Zeger 1986), without a factor for small samples. Standard errors are the square
        roots of its diagonal.

        Args:
            x: the minimum, as an optimizer gives it. It may be a hundredth of a standard error away.
            scale: what makes of the loss the negative log-likelihood. Of a mean of n rows it is n, and of a mean of n
                squares it is ``n / (2 * s2)`` with the variance ``s2`` of the residuals.
            scores: a query of the negative log-likelihood of each row, which reads the tables of the parameters as the
                loss does: ``SELECT i, <loss of the row> FROM ...``. What stands before the last column says of which
                observation a row is, or of which cluster of observations; the gradients of its rows are added.

        Returns:
            An array of float64 of the shape (n, n), in the order of the parameters.

        Raises:
            CovarianceError: x is no minimum, or the data do not determine all parameters there. The message names
                those.
            DifferentiationError: the gradient has no derivative.
            ValueError: the vector has not one number for each parameter, the scale is not positive, or the losses of
                ``scores`` do not add up to the loss times the scale.
        """
        if not scale > 0:
            msg = f"scale must be a positive number; it is {scale!r}"
            raise ValueError(msg)
        value, gradient = self(x)
        bread = covariance(scale * self.hessian(x), scale * gradient, self._parameters.names())
        if scores is None:
            return bread
        point = self._parameters.checked(x, "x")
        weighted = observations(self._evaluator.sibling(), scores, self._parameters.values(point))
        total, size = (pc.sum(weighted.rows.column(name)).as_py() for name in ("loss", "size"))
        if not abs(total - scale * value) <= 1e-6 * size:
            msg = (
                f"the losses of scores add up to {total!r}, and the loss times the scale is {scale * value!r}: write "
                "both of the same rows and terms"
            )
            raise ValueError(msg)
        slopes = self._evaluator.jacobian(weighted, point)
        sandwich: Matrix = bread @ (slopes.T @ slopes) @ bread
        return sandwich

    def delta(self, x: ArrayLike, sql: str, *, covariance: ArrayLike | None = None) -> Derived:
        """Computes numbers from the parameters by a query, with standard errors by the delta method.

        The covariance of what it computes is ``J @ covariance @ J.T`` with its derivatives ``J`` by the parameters.

        Args:
            x: the parameters.
            sql: a query of one number, or of several columns and rows. It reads the tables of the parameters as the
                loss does. All of its columns of floats get errors, and its other columns, such as text and integers,
                stay as they are. It may call ``grad``: the mean of a derivative is a marginal effect.
            covariance: that of the parameters, of the shape (n, n), by default ``self.covariance(x)``.

        Returns:
            The numbers, their errors and their covariance, as `Derived`. A number that does not depend on the
            parameters has an error of 0.

        Raises:
            CovarianceError: as `Objective.covariance` raises it.
            DifferentiationError: what the query computes has no derivative.
            ValueError: the query gives no floats, NULL among them, or two equal rows; or the vector has not one number
                for each parameter; or the covariance has another shape, or is none.
        """
        point = self._parameters.checked(x, "x")
        spread = self.covariance(point) if covariance is None else self._parameters.covariance(covariance)
        weighted = quantities(self._evaluator.sibling(), sql, self._parameters.values(point))
        slopes = self._evaluator.jacobian(weighted, point)
        propagated: Matrix = slopes @ spread @ slopes.T
        # Each variance is a sum of products, of which rounding leaves so much.
        rounding = 1e-10 * (abs(slopes) @ abs(spread) @ abs(slopes).T).diagonal()
        if (propagated.diagonal() < -rounding).any():
            msg = f"a number has the variance {propagated.diagonal().min()}: the covariance given is that of no numbers"
            raise ValueError(msg)
        return derived(weighted.rows, propagated)

    def solution(self, x: ArrayLike, wrt: str | Sequence[str]) -> Solution:
        """The minimum as a function of further cells that the loss reads, to first order, by implicit differentiation.

        >>> from datafusion import SessionContext
        >>> import xql_ffi
        >>> ctx = xql_ffi.register(SessionContext())
        >>> data = ctx.from_pydict({"i": [1, 2, 3], "y": [1.0, 2.0, 6.0]}, name="data")
        >>> par = ctx.from_pydict({"m": [0.0]}, name="par")
        >>> mean = xql_ffi.objective(ctx, "SELECT SUM((y - m) * (y - m)) FROM data CROSS JOIN par", "par.m")
        >>> solution = mean.solution([3.0], "data.y")
        >>> solution.vjp([1.0]).round(6).tolist()
        [0.333333, 0.333333, 0.333333]

        The Hessian of up to 256 parameters is made, as `hessian` makes it. Systems of a larger one are solved by
        conjugate gradients. Tables are read as they are now, or as `replace` has given them.

        Args:
            x: the minimum, as an optimizer gives it.
            wrt: the columns of Float64 or Float32 with the cells, each with its table: ``"data.y"``, ``"ridge.lam"``.
                All of their cells count that are neither NULL nor parameters.

        Returns:
            A `Solution`.

        Raises:
            DifferentiationError: the gradient has no derivative.
            ImportError: there are many parameters, and SciPy is not installed.
            MinimumError: x is no minimum, or the loss does not determine all parameters there.
            VariableError: a column is not one of floats, or the loss does not read it.
            ValueError: the vector has not one number for each parameter; there is no such table or column, or one is
                given twice, or without its table, or has no such cells.
        """
        point = self._parameters.checked(x, "x")
        columns = variables(wrt)
        known = [relation.name for relation in self._parameters.relations]
        rows = {name: self._evaluator.host.rows_read(name) for name in columns if name not in known}
        joint = joined(self._parameters, rows, [(name, column) for name in columns for column in columns[name]])
        evaluator = self._evaluator.of(self._evaluator.host.loss, joint.parameters)
        return Solution(evaluator, joint, point, lambda: called(self))

    def profile(self, x: ArrayLike, name: str, grid: ArrayLike, *, scale: float = 1.0) -> Vector:
        """The profile of a parameter: the least values of the loss where the parameter has each value of a grid.

        The others are minimized anew by SciPy's ``trust-exact``, in units of their standard errors, from where they
        were for the value before: let the values of the grid lead away from x step by step.

        Args:
            x: the minimum.
            name: the parameter that is held, as `names` has it.
            grid: its values.
            scale: what makes of the loss the negative log-likelihood, as `covariance` takes it.

        Returns:
            A vector of the losses times the scale, as long as the grid. Where one is ``chi2.ppf(p, 1) / 2`` above
            the loss at x is a border of the confidence interval of level p.

        Raises:
            CovarianceError: as `covariance` raises it.
            DifferentiationError: the gradient has no derivative.
            ImportError: SciPy is not installed.
            RuntimeError: SciPy finds no minimum for a value.
            ValueError: no parameter has this name, or the vector has not one number for each parameter.
        """
        import numpy as np

        if name not in self.names:
            msg = f"there is no parameter {name!r}, only {', '.join(self.names)}"
            raise ValueError(msg)
        point, values = self._parameters.checked(x, "x"), np.atleast_1d(np.asarray(grid, dtype=np.float64))
        units = np.sqrt(np.diag(self.covariance(point, scale=scale)))

        def scaled(x: Vector) -> tuple[float, Vector]:
            value, gradient = self(x)
            return scale * value, scale * gradient

        return least((scaled, lambda x: scale * self.hessian(x)), point, self.names.index(name), values, units)
