"""A model: tables of weights and data, CTEs that compute a loss of them, and the same loss in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from support.ctes import with_ctes

Array = NDArray[np.float64]


def normal(seed: int, *shape: int) -> Array:
    """Random numbers with few digits."""
    return np.round(np.random.default_rng(seed).standard_normal(shape) / 2, 3)


@dataclass(frozen=True)
class Weights:
    """A table of an array: a row for each number, with its place on each axis and the number itself, `val`."""

    axes: Sequence[str]
    array: Array
    # What stands in a column in the place of the numbers 0, 1, ..., by the name of the axis.
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def table(self) -> pa.Table:
        """The rows, in an order that is not that of the array."""
        order = np.random.default_rng(self.array.size).permutation(self.array.size)
        places = np.unravel_index(order, self.array.shape)
        keys = {
            axis: np.asarray(self.names[axis])[place] if axis in self.names else place
            for axis, place in zip(self.axes, places, strict=True)
        }
        return pa.table({**keys, "val": self.array[places]})

    def of_rows(self, rows: pa.Table, column: str) -> Array:
        """An array of a column of such rows."""
        found = np.full(self.array.shape, np.nan)
        for row in rows.to_pylist():
            place = tuple(
                list(self.names[axis]).index(row[axis]) if axis in self.names else row[axis] for axis in self.axes
            )
            assert np.isnan(found[place]), f"two rows for {place}"
            found[place] = row[column]
        return found


@dataclass(frozen=True)
class Model:
    """A loss as the last of some CTEs, `loss`, which has the column `l`, and in JAX."""

    weights: Mapping[str, Weights]
    queries: Mapping[str, str]
    # Of the arrays of the weights by their tables.
    loss: Callable[[Mapping[str, Any]], Any]
    # What it is not differentiated by.
    data: Mapping[str, pa.Table] = field(default_factory=dict)
    # Whether CTEs read themselves. A gradient through them needs relations that are computed once.
    recursive: bool = False

    def statement(self, select: str) -> str:
        """The CTEs, and what is selected of them."""
        return with_ctes(select, self.queries, recursive=self.recursive)

    def arrays(self) -> dict[str, Array]:
        """The arrays of the weights by their tables."""
        return {name: weights.array for name, weights in self.weights.items()}

    def tables(self) -> dict[str, pa.Table]:
        """All tables that the model reads."""
        return {**{name: weights.table() for name, weights in self.weights.items()}, **self.data}
