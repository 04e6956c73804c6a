"""The objective itself."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi._errors import DifferentiationError, translated, untagged
from xql_ffi._objective import statements
from xql_ffi._objective.parameters import Parameters
from xql_ffi._progress import called

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xql_ffi._objective.host import Host
    from xql_ffi._objective.parameters import Vector
    from xql_ffi._objective.statements import Kind


class Objective:
    """A loss as a function of the cells that it reads, as `objective` makes it.

    Threads may share one: its calls wait for one another. An objective keeps its session.
    """

    def __init__(self, host: Host, parameters: Parameters) -> None:
        self._host, self._parameters = host, parameters
        self._running = threading.Lock()

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

    def parameters(self, x: ArrayLike) -> dict[str, pa.Table]:
        """The relations at a vector of parameters, by their names, with all of their columns and rows.

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
        tables = self.parameters(x)
        with self._running:
            self._host.update(self._parameters.relations, tables)

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
        table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows))
        with self._running:
            self._host.replace(name, table)

    def __call__(self, x: ArrayLike) -> tuple[float, Vector]:
        """The value and the gradient, a vector of float64, as ``scipy.optimize.minimize(..., jac=True)`` takes them.

        NULL is NaN: a loss that is NULL, and its derivatives.

        Raises:
            DifferentiationError: the loss has no derivative by these columns.
            ValueError: the vector has not one number for each parameter.
        """
        result = self._run("gradient", x, None)
        value, gradient = _value(result), self._gathered(result)
        called(self, value, gradient)
        return value, gradient

    def value(self, x: ArrayLike) -> float:
        """The value alone, with NaN for NULL.

        Raises:
            ValueError: the vector has not one number for each parameter.
        """
        value = self._value(x)
        called(self, value)
        return value

    def jvp(self, x: ArrayLike, t: ArrayLike) -> float:
        """The derivative of the value along a direction, in forward mode.

        Raises:
            DifferentiationError: the loss has no such derivative.
            ValueError: a vector has not one number for each parameter.
        """
        slope = _value(self._run("jvp", x, t))
        called(self)
        return slope

    def hvp(self, x: ArrayLike, t: ArrayLike) -> Vector:
        """The Hessian times a vector: the derivative of the gradient along it, in forward mode over reverse mode.

        Raises:
            DifferentiationError: the gradient has no such derivative, as where it passes through a recursive query.
            ValueError: a vector has not one number for each parameter.
        """
        product = self._gathered(self._run("hvp", x, t))
        called(self)
        return product

    def _value(self, x: ArrayLike) -> float:
        """The value, of which no block of `progress` is told."""
        return _value(self._run("value", x, None))

    def _run(self, kind: Kind, x: ArrayLike, t: ArrayLike | None) -> pa.Table:
        point = self._parameters.values(self._parameters.checked(x, "x"))
        direction = self._parameters.tangents(None if t is None else self._parameters.checked(t, "t"))
        tables = [relation.name for relation in self._parameters.relations]
        refused = None
        try:
            with self._running:
                return self._host.run(kind, (point, direction))
        except DifferentiationError as error:
            refused = error
        except Exception as error:
            if (refused := translated(str(error))) is None:
                said = untagged(str(error), tables)
                if said == str(error):
                    raise
                raise type(error)(said) from None
        said = untagged(str(refused), tables)
        if kind == "hvp":
            said += ". The Hessian needs more than the gradient does: use a method that takes the gradient alone"
        raise type(refused)(said)

    def _gathered(self, result: pa.Table) -> Vector:
        """The derivatives as a vector."""
        import numpy as np

        columns: dict[str, dict[str, Vector]] = {}
        parts = result.column(statements.PART)
        for number, relation in enumerate(self._parameters.relations, start=1):
            own = result.filter(pc.equal(parts, number))
            places, columns[relation.name] = own.column(statements.ROW).to_numpy(), {}
            for place, variable in enumerate(relation.variables):
                derivatives = np.full(relation.rows.num_rows, np.nan)
                derivatives[places] = own.column(statements.by(place)).to_numpy()
                columns[relation.name][variable] = derivatives
        return self._parameters.gathered(columns)


def _value(result: pa.Table) -> float:
    """The value of a result, which is the same in all rows."""
    value = result.column(statements.VALUE)[0].as_py()
    return float("nan") if value is None else value
