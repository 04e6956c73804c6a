"""The points at which expressions are evaluated: ordinary ones, edges, and NULLs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from conformance.expressions import COLUMNS
from conformance.language import DOUBLE
from support.stock import ON_STOCK

ORDINARY, EDGES = 10, 26
# DataFusion 54 tells it from 0, and 55 does not: what JAX is compared with is written for 54.
NEGATIVE_ZERO = 0.0 if ON_STOCK else -0.0
EDGE_VALUES = {
    8: [
        0.0,
        NEGATIVE_ZERO,
        1.0,
        -1.0,
        0.5,
        2.0,
        1e5,
        -1e5,
        1e160,
        1e300,
        1e-5,
        -1e-160,
        1e-300,
        np.nan,
        np.inf,
        -np.inf,
    ],
    4: [0.0, NEGATIVE_ZERO, 1.0, -1.0, 0.5, 2.0, 1e3, -1e3, 1e20, 1e37, 1e-3, -1e-20, 1e-37, np.nan, np.inf, -np.inf],
}
# Next to poles, to the ends of domains and to jumps; and of other sizes.
_BESIDE = {
    8: [1e-9, 1 + 1e-9, 1 - 1e-9, 1e-9 - 1, np.pi / 2 - 1e-7, np.pi / 2 + 1e-7, 2 + 1e-12],
    4: [1e-3, 1 + 1e-4, 1 - 1e-4, 1e-4 - 1, np.pi / 2 - 1e-3, np.pi / 2 + 1e-3, 2 + 1e-3],
}
NEAR_EDGES = {
    8: [*_BESIDE[8], -1e-9, np.pi, 30.0, -30.0, 1e9, -1e9, 1e15, 1e-15, -1e-20],
    4: [*_BESIDE[4], -1e-3, np.pi, 10.0, -10.0, 1e3, -1e3, 1e4, 1e-4, -1e-5],
}


@dataclass(frozen=True)
class Points:
    """A table of points: a row each, the ordinary ones first."""

    numbers: dict[str, NDArray[Any]]
    nulls: dict[str, NDArray[np.bool_]]

    @property
    def table(self) -> pa.Table:
        schema = pa.schema(
            [
                pa.field(name, pa.float64() if dtype == DOUBLE else pa.float32(), nullable=nullable)
                for name, (dtype, nullable) in COLUMNS.items()
            ]
        )
        arrays = [
            pa.array(self.numbers[name], field.type, mask=self.nulls[name], from_pandas=False)
            for name, field in zip(COLUMNS, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    @property
    def arguments(self) -> list[NDArray[Any]]:
        """The numbers and the masks of NULLs, in the order of JAX."""
        masks = [self.nulls[name] for name, (_, nullable) in sorted(COLUMNS.items()) if nullable]
        return [self.numbers[name] for name in sorted(COLUMNS)] + masks

    def extreme(self, columns: Iterable[str], *, single: bool, exponential: bool) -> NDArray[np.bool_]:
        """Where a column is so large or so small that small powers of it, or exponentials, are not finite, or 0."""
        found = np.zeros(ORDINARY + EDGES, bool)
        limit = 1e4 if single else 1e30
        for name in columns:
            size = np.abs(self.numbers[name])
            found |= (size > (50 if exponential else limit)) | ((size < 1 / limit) & (size > 0))
        return found

    def steepness(self, columns: Iterable[Iterable[str]]) -> NDArray[np.float64]:
        """What the derivatives of powers of the columns are large against, at ordinary sizes: 1 over the smallest."""
        found = np.ones(ORDINARY + EDGES)
        for name in set(itertools.chain.from_iterable(columns)):
            size = np.abs(self.numbers[name].astype(float))
            with np.errstate(all="ignore"):
                found = np.fmax(found, np.where((size > 1e-3) & (size < 1), 1 / size, 1.0))
        return found

    def row(self, number: int) -> dict[str, float | None]:
        """One point, for a message."""
        return {name: None if self.nulls[name][number] else float(self.numbers[name][number]) for name in COLUMNS}


def points(seed: int, at_edges: Mapping[int, Sequence[float]] = EDGE_VALUES) -> Points:
    """Ordinary points, then edges: the same one in all columns, or mixed with others and with ordinary values.

    The edges are by the size of a type in bytes.
    """
    random = np.random.default_rng(seed)
    numbers: dict[str, NDArray[Any]] = {}
    nulls: dict[str, NDArray[np.bool_]] = {}
    for name, (dtype, nullable) in COLUMNS.items():
        edges = at_edges[dtype.itemsize]
        mixed = random.choice(edges, EDGES - len(edges))
        anywhere = random.uniform(-2, 2, ORDINARY + len(mixed))
        mixed = np.where(random.random(len(mixed)) < 0.7, mixed, anywhere[ORDINARY:])
        numbers[name] = np.concatenate([anywhere[:ORDINARY], edges, mixed]).astype(dtype)
        nulls[name] = np.zeros(ORDINARY + EDGES, bool)
        if nullable:
            nulls[name][2 : ORDINARY + EDGES : 5 if name == "z" else 4] = True
        # What a NULL hides must not matter, but it is evaluated on the way.
        numbers[name][nulls[name]] = 0.5
    return Points(numbers, nulls)
