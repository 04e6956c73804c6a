"""The cells of relations that are parameters, as one vector, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from xql_ffi._columns import paths
from xql_ffi._errors import VariableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Vector = NDArray[np.float64]
    Chosen = NDArray[np.bool_]

# The rows of a relation for each of its variables.
Columns = Mapping[str, "Vector"]


@dataclass(frozen=True)
class Relation:
    """A relation, its rows as they were read, and which of its cells are parameters.

    Attributes:
        name: its name, as a variable has it: ``w`` of ``w.val``.
        rows: all of its columns.
        variables: the columns that have parameters.
        chosen: for each of them, which rows are parameters: those without NULL, and for which ``where`` is true.
    """

    name: str
    rows: pa.Table
    variables: Sequence[str]
    chosen: Mapping[str, Chosen]


def variables(wrt: str | Sequence[str]) -> dict[str, list[str]]:
    """Returns the columns by their relations, in the order in which these are named.

    Raises:
        TypeError: one of them is not a column.
        ValueError: there is none, or one twice; or one is named without its table, or with a schema.
    """
    found: dict[str, list[str]] = {}
    for path, name in paths(wrt):
        if not path:
            msg = f"the column {name!r} is named without its table: write '<table>.{name}'"
            raise ValueError(msg)
        of = path[-1]
        if len(path) > 1:
            msg = (
                f"{'.'.join(path)} is named with its schema, where no other rows can be put in its place in the loss: "
                f"make the schema the default one of the session, and write '{of}.{name}'"
            )
            raise ValueError(msg)
        found.setdefault(of, []).append(name)
    return found


def relation(name: str, rows: pa.Table, variables: Sequence[str], where: Chosen | None) -> Relation:
    """Returns a relation with these rows.

    Args:
        name: its name.
        rows: its rows.
        variables: the columns that have parameters.
        where: the rows that have parameters; all of them if it is None.

    Raises:
        VariableError: a column is not one of Float64 or Float32.
    """
    chosen = {}
    for variable in variables:
        column = rows.column(variable)
        if column.type not in (pa.float64(), pa.float32()):
            msg = (
                f"a parameter must be a Float64 or Float32; {name}.{variable} is {column.type}. Make it a column of "
                "floats: CAST(... AS DOUBLE)"
            )
            raise VariableError(msg)
        present = pc.is_valid(column).to_numpy()
        chosen[variable] = present if where is None else present & where
    return Relation(name, rows, variables, chosen)


class Parameters:
    """The parameters of relations as one vector: by relation, by column in it, by row in that."""

    def __init__(self, relations: Sequence[Relation]) -> None:
        import numpy as np

        self._np = np
        self.relations = relations
        self._start = {r.name: {v: _floats(r.rows.column(v)) for v in r.variables} for r in relations}
        self._still = {r.name: {v: np.zeros(r.rows.num_rows) for v in r.variables} for r in relations}
        self.number = sum(int(chosen.sum()) for r in relations for chosen in r.chosen.values())

    def names(self) -> list[str]:
        """The names of the parameters: ``par.a`` in a table of one row, and ``w.val[2]`` by the number of a row."""
        return [
            f"{r.name}.{v}" if r.rows.num_rows == 1 else f"{r.name}.{v}[{row}]"
            for r in self.relations
            for v in r.variables
            for row in self._np.flatnonzero(r.chosen[v])
        ]

    def start(self) -> Vector:
        """Returns the parameters as the relations had them."""
        return self.gathered(self._start)

    def gathered(self, columns: Mapping[str, Columns]) -> Vector:
        """Returns the vector of those cells of columns of all rows that are parameters."""
        parts = [columns[r.name][v][r.chosen[v]] for r in self.relations for v in r.variables]
        return self._np.concatenate(parts, dtype=self._np.float64)

    def checked(self, vector: ArrayLike, what: str) -> Vector:
        """Returns a vector of floats of its own.

        Raises:
            ValueError: it has not one number for each parameter.
        """
        made: Vector = self._np.array(vector, dtype=self._np.float64)
        if made.shape != (self.number,):
            msg = (
                f"{what} must be a vector of {self.number} numbers, one for each parameter as in objective.start; it "
                f"has the shape {made.shape}"
            )
            raise ValueError(msg)
        return made

    def square(self, matrix: ArrayLike) -> NDArray[np.float64]:
        """Returns a square matrix of floats with a row for each parameter.

        Raises:
            ValueError: it has another shape.
        """
        made: NDArray[np.float64] = self._np.asarray(matrix, dtype=self._np.float64)
        if made.shape != (self.number, self.number):
            msg = f"a matrix must have the shape {(self.number, self.number)}; it has {made.shape}"
            raise ValueError(msg)
        return made

    def covariance(self, matrix: ArrayLike) -> NDArray[np.float64]:
        """Returns a covariance matrix of the parameters.

        Raises:
            ValueError: it has another shape; or it is the covariance of no numbers: it is not symmetric, a variance is
                negative, or two numbers have a correlation beyond -1 and 1.
        """
        made = self.square(matrix)
        variances = self._np.diag(made)
        # Products of rounded numbers are no more symmetric than this.
        slack = 1e-8 * self._np.abs(variances).max(initial=0.0)
        wrong = ""
        if not self._np.isfinite(made).all():
            wrong = "has a number that is not finite"
        elif self._np.abs(made - made.T).max(initial=0.0) > slack:
            wrong = "is not symmetric"
        elif variances.min(initial=0.0) < -slack:
            wrong = f"has the variance {variances.min()} on its diagonal"
        elif (made**2 > self._np.outer(variances, variances) * (1 + 1e-8) + slack**2).any():
            wrong = "has a correlation beyond -1 and 1"
        if wrong:
            msg = f"the covariance {wrong}: give variances and covariances, not errors or correlations"
            raise ValueError(msg)
        return made

    def values(self, vector: Vector) -> dict[str, dict[str, pa.Array]]:
        """Returns the columns of the variables, with all of their rows, at a vector of parameters."""
        return self._placed(self._start, vector)

    def tangents(self, vector: Vector | None) -> dict[str, dict[str, pa.Array]]:
        """How the rows of each variable move along a vector; they do not at all if there is none."""
        if vector is None:
            vector = self._np.zeros(self.number)
        return self._placed(self._still, vector)

    def _placed(self, columns: Mapping[str, Columns], vector: Vector) -> dict[str, dict[str, pa.Array]]:
        placed: dict[str, dict[str, pa.Array]] = {}
        begin = 0
        for r in self.relations:
            placed[r.name] = {}
            for variable in r.variables:
                chosen, column = r.chosen[variable], r.rows.column(variable)
                numbers = columns[r.name][variable].copy()
                end = begin + int(chosen.sum())
                numbers[chosen], begin = vector[begin:end], end
                nulls = pc.is_null(column).to_numpy() if column.null_count else None
                with self._np.errstate(over="ignore"):  # infinite, as a float32 is then
                    typed = numbers.astype(column.type.to_pandas_dtype())
                placed[r.name][variable] = pa.array(typed, column.type, mask=nulls)
        return placed

    def tables(self, vector: Vector) -> dict[str, pa.Table]:
        """Returns the relations with all of their columns, at a vector of parameters."""
        values = self.values(vector)
        return {r.name: _replaced(r.rows, values[r.name]) for r in self.relations}


def _floats(column: pa.ChunkedArray) -> Any:
    """Returns the numbers of a column, NaN where it is NULL."""
    return column.to_numpy().astype("float64")


def _replaced(rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    for name, values in columns.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), values)
    return rows


def same_beside(one: pa.Table, other: pa.Table, variables: Sequence[str]) -> bool:
    """Returns whether two tables have the same rows in the same order, but for the values of these columns."""
    if one.schema.names != other.schema.names or one.num_rows != other.num_rows:
        return False
    pairs = ((one.column(name), other.column(name)) for name in one.schema.names if name not in variables)
    return all(_same(*pair) for pair in pairs)


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if one.type != other.type or not pa.types.is_floating(one.type):
        return bool(one.equals(other))
    # NaN is equal to itself here.
    nan = [pc.and_kleene(pc.is_valid(column), pc.is_nan(column)) for column in (one, other)]
    return bool(nan[0].equals(nan[1])) and bool(
        pc.if_else(nan[0], pa.scalar(0, one.type), one).equals(pc.if_else(nan[1], pa.scalar(0, one.type), other))
    )
