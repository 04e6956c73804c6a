"""Parameters and further cells of relations as one vector: of what a minimum depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from xql_ffi._objective.parameters import Parameters, Relation, relation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from xql_ffi._objective.parameters import Chosen, Vector

    Places = NDArray[np.int64]

# A relation and a variable of it.
Column = tuple[str, str]


@dataclass(frozen=True)
class Joint:
    """Parameters and further cells as one vector.

    Attributes:
        parameters: all of them.
        own: where in the vector the parameters are, in their order.
        further: where the further cells are, by column, then by row.
        cells: which rows of the relation of each column are further cells.
    """

    parameters: Parameters
    own: Places
    further: Places
    cells: Mapping[Column, Chosen]

    def vector(self, x: Vector, further: Vector) -> Vector:
        """Returns the vector of all."""
        import numpy as np

        made = np.empty(self.parameters.number)
        made[self.own], made[self.further] = x, further
        return made

    def names(self) -> list[str]:
        """The names of the further cells."""
        names = self.parameters.names()
        return [names[place] for place in self.further]

    def tables(self, derivatives: Sequence[tuple[str, Vector]]) -> dict[str, pa.Table]:
        """Returns the relations of the further cells, with derivatives by them in columns behind their own.

        Args:
            derivatives: vectors over the further cells, each behind what is put before the name of a column to call it.

        Returns:
            Tables by the names of the relations. A derivative is NULL in rows that have no further cell.

        Raises:
            ValueError: a relation has a column that is called as a derivative is.
        """
        import numpy as np

        rows = {r.name: r.rows for r in self.parameters.relations}
        tables: dict[str, pa.Table] = {}
        begin = 0
        for (name, column), chosen in self.cells.items():
            end = begin + int(chosen.sum())
            for prefix, vector in derivatives:
                numbers = np.zeros(len(chosen))
                numbers[chosen] = vector[begin:end]
                table = tables.get(name, rows[name])
                if (called := f"{prefix}{column}") in table.schema.names:
                    msg = f"{name} has a column {called} already, as a derivative is called: rename one of them"
                    raise ValueError(msg)
                tables[name] = table.append_column(called, pa.array(numbers, mask=~chosen))
            begin = end
        return tables


def joined(parameters: Parameters, rows: Mapping[str, pa.Table], columns: Sequence[Column]) -> Joint:
    """Joins parameters with the cells of further columns that are no parameters, and not NULL.

    Args:
        parameters: the parameters.
        rows: the rows of relations without parameters, by their names.
        columns: the further columns.

    Raises:
        ValueError: a relation has no such column, or a column no further cells.
        VariableError: a column is not one of Float64 or Float32.
    """
    import numpy as np

    known = {r.name: r for r in parameters.relations}
    wanted: dict[str, list[str]] = {name: [] for name in known}
    for name, column in columns:
        wanted.setdefault(name, []).append(column)
    relations, cells = [], dict[Column, "Chosen"]()
    for name, further in wanted.items():
        own = known.get(name)
        table = rows[name] if own is None else own.rows
        for column in further:
            if column not in table.schema.names:
                has = ", ".join(map(repr, table.schema.names))
                msg = f"{name} has no column {column!r} to differentiate by, only {has}"
                raise ValueError(msg)
        chosen = {} if own is None else dict(own.chosen)
        for column, present in relation(name, table, further, None).chosen.items():
            taken = chosen.get(column, np.zeros(table.num_rows, dtype=bool))
            chosen[column], cells[name, column] = taken | present, present & ~taken
            if not cells[name, column].any():
                msg = f"{name}.{column} has no cells that a minimum could depend on: all are parameters or NULL"
                raise ValueError(msg)
        relations.append(Relation(name, table, list(chosen), chosen))
    every = Parameters(relations)
    cells = {column: cells[column] for column in columns}
    return Joint(every, *_places(every.relations, known, cells), cells)


def _places(
    relations: Sequence[Relation], known: Mapping[str, Relation], cells: Mapping[Column, Chosen]
) -> tuple[Places, Places]:
    """Where in the vector of all the parameters are, and the further cells."""
    import numpy as np

    own, further, begin = list["Places"](), dict[Column, "Places"](), 0
    for r in relations:
        for variable, chosen in r.chosen.items():
            places = np.cumsum(chosen) - 1 + begin
            begin += int(chosen.sum())
            if r.name in known and variable in known[r.name].chosen:
                own.append(places[known[r.name].chosen[variable]])
            if (r.name, variable) in cells:
                further[r.name, variable] = places[cells[r.name, variable]]
    return np.concatenate(own), np.concatenate([further[column] for column in cells])
