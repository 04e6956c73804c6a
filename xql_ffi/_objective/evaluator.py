"""Runs the statements of a loss, and gives their results as numbers and vectors."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi._errors import DifferentiationError, translated, untagged
from xql_ffi._objective import statements
from xql_ffi._objective.parameters import Parameters
from xql_ffi._objective.weighted import Weighted, jacobian

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from xql_ffi._objective.curvature import Matrix
    from xql_ffi._objective.host import Host
    from xql_ffi._objective.parameters import Vector
    from xql_ffi._objective.statements import Kind


class Evaluator:
    """The loss of a host at vectors of parameters. Its calls wait for one another."""

    def __init__(self, host: Host, parameters: Parameters) -> None:
        self.host, self.parameters = host, parameters
        self._running = threading.Lock()

    def value(self, x: ArrayLike) -> float:
        """Returns the value, with NaN for NULL."""
        return _value(self._run("value", x, None))

    def gradient(self, x: ArrayLike) -> tuple[float, Vector]:
        """Returns the value and the gradient."""
        result = self._run("gradient", x, None)
        return _value(result), self._gathered(result)

    def jvp(self, x: ArrayLike, t: ArrayLike) -> float:
        """Returns the derivative of the value along a direction."""
        return _value(self._run("jvp", x, t))

    def hvp(self, x: ArrayLike, t: ArrayLike) -> Vector:
        """Returns the Hessian times a vector."""
        return self._gathered(self._run("hvp", x, t))

    def update(self, tables: Mapping[str, pa.Table]) -> None:
        """Updates the relations of the session with these rows."""
        with self._running:
            self.host.update(self.parameters.relations, tables)

    def replace(self, name: str, rows: pa.Table) -> None:
        """Replaces a table of the session by these rows, for the loss."""
        with self._running:
            self.host.replace(name, rows)

    def of(self, loss: str, parameters: Parameters) -> Evaluator:
        """Returns the evaluator of a loss by these parameters, over the tables that this one reads.

        The loss is known to be one number.
        """
        with self._running:
            host = self.host.sibling([relation.name for relation in parameters.relations])
        host.take(loss, parameters.relations)
        return Evaluator(host, parameters)

    def sibling(self) -> Host:
        """Returns a host for queries of the tables that this one reads, which knows the relations of the parameters."""
        return self.of("", self.parameters).host

    def jacobian(self, weighted: Weighted, x: Vector) -> Matrix:
        """Returns the derivatives of the numbers of a query by the parameters."""
        of = self.of(weighted.loss, Parameters([*self.parameters.relations, weighted.weights]))
        return jacobian(lambda x: of.gradient(x)[1], of.hvp, x, of.parameters.number - len(x))

    def _run(self, kind: Kind, x: ArrayLike, t: ArrayLike | None) -> pa.Table:
        point = self.parameters.values(self.parameters.checked(x, "x"))
        direction = self.parameters.tangents(None if t is None else self.parameters.checked(t, "t"))
        tables = [relation.name for relation in self.parameters.relations]
        refused = None
        try:
            with self._running:
                return self.host.run(kind, (point, direction))
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
        """Returns the derivatives as a vector."""
        import numpy as np

        columns: dict[str, dict[str, Vector]] = {}
        parts = result.column(statements.PART)
        for number, relation in enumerate(self.parameters.relations, start=1):
            own = result.filter(pc.equal(parts, number))
            places, columns[relation.name] = own.column(statements.ROW).to_numpy(), {}
            for place, variable in enumerate(relation.variables):
                derivatives = np.full(relation.rows.num_rows, np.nan)
                derivatives[places] = own.column(statements.by(place)).to_numpy()
                columns[relation.name][variable] = derivatives
        return self.parameters.gathered(columns)


def _value(result: pa.Table) -> float:
    """Returns the value of a result, which is the same in all rows."""
    value = result.column(statements.VALUE)[0].as_py()
    return float("nan") if value is None else value
