"""Numbers that are computed from estimates, with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from xql_ffi._objective.curvature import Matrix


@dataclass(frozen=True)
class Derived:
    """Numbers that are computed from estimates, as `Objective.delta` and `propagate` give them.

    Attributes:
        rows: the rows of the query, ordered by its columns, those of floats last. After each column ``f`` of floats
            stands ``f_error``, its standard errors.
        covariance: of all floats, by column of the query, then by row: an array of the shape (m, m).
    """

    rows: pa.Table
    covariance: Matrix

    @property
    def value(self) -> float:
        """The number, of a query that gives one.

        Raises:
            ValueError: it gives several.
        """
        return self._of_one(0)

    @property
    def error(self) -> float:
        """The standard error of the number, of a query that gives one.

        Raises:
            ValueError: it gives several.
        """
        return self._of_one(1)

    def _of_one(self, offset: int) -> float:
        if len(self.covariance) != 1:
            msg = f"the query gives {len(self.covariance)} numbers: read them in rows"
            raise ValueError(msg)
        place = next(place for place, kind in enumerate(self.rows.schema.types) if pa.types.is_floating(kind))
        return float(self.rows.column(place + offset)[0].as_py())


def derived(rows: pa.Table, covariance: Matrix) -> Derived:
    """Returns the numbers of a query with the errors that their covariance has.

    Args:
        rows: the rows of the query.
        covariance: that of the numbers, by column, then by row.
    """
    import numpy as np

    # Rounding may make a variance that is 0 negative.
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    columns, names, begin = list[pa.Array](), list[str](), 0
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        columns.append(column)
        names.append(name)
        if pa.types.is_floating(column.type):
            columns.append(pa.array(errors[begin : begin + rows.num_rows]))
            names.append(f"{name}_error")
            begin += rows.num_rows
    return Derived(pa.table(columns, names=names), covariance)
