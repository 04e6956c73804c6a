"""A dataset of xarray as rows of Arrow that are read block by block."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

# The most rows of a block where neither the file nor the caller says how large blocks are.
BLOCK_ROWS = 2**20
Block = dict[str, slice]


class Rows(pads.Dataset):  # type: ignore[misc]
    """The rows of a dataset, one for each combination of its coordinates, as the datasets of pyarrow have rows.

    Nothing is read before a query is run. Each partition then reads one block after the other, of the columns that
    the query needs.
    """

    def __init__(self, dataset: xr.Dataset, chunks: Mapping[str, int] | None = None) -> None:
        """Takes the blocks from ``chunks``, the chunks of the dataset, those of its file, or by the number of rows."""
        # Not that of pyarrow, which forbids to make one.
        self._dims = _dims(dataset)
        missing = [dim for dim in self._dims if dim not in dataset.coords]
        self._dataset = dataset.assign_coords({dim: range(dataset.sizes[dim]) for dim in missing})
        self._columns = [
            *self._dims,
            *(
                str(name)
                for name, each in dataset.coords.items()
                if name not in self._dims and {*each.dims} <= {*self._dims}
            ),
            *(str(name) for name in dataset.data_vars),
        ]
        self._schema = pa.schema([_field(name, self._dataset.variables[name]) for name in self._columns])
        self._blocks = _blocks(self._dataset, self._dims, chunks)

    @property
    def schema(self) -> pa.Schema:
        """The columns: the dimensions, the other coordinates, and the variables."""
        return self._schema

    def get_fragments(self, filter: pads.Expression | None = None) -> Iterator[Fragment]:  # noqa: A002
        """Yields the partitions, each of which reads its blocks one after the other."""
        count = max(1, min(len(self._blocks), os.cpu_count() or 1))
        bounds = [len(self._blocks) * number // count for number in range(count + 1)]
        for first, end in pairwise(bounds):
            yield Fragment(self, self._blocks[first:end])

    def scanner(self, **options: Any) -> Scan:
        """Returns a scan of all rows."""
        return Fragment(self, self._blocks).scanner(**options)

    def batch(self, block: Block, schema: pa.Schema) -> pa.RecordBatch:
        """Returns the rows of a block, of these columns."""
        sizes = {dim: part.stop - part.start for dim, part in block.items()}
        return pa.RecordBatch.from_arrays([self._column(field, block, sizes) for field in schema], schema=schema)

    def _column(self, field: pa.Field, block: Block, sizes: Mapping[str, int]) -> pa.Array:
        """Returns a column of a block: the cells of a variable, for all that it does not vary by again and again."""
        variable = self._dataset.variables[field.name]
        part = variable.isel({dim: block[dim] for dim in variable.dims})
        values = _native(part.set_dims(dict(sizes)).transpose(*sizes).values).ravel()
        # What is missing in a dataset is NaN, and in a table NULL.
        made = pa.array(values, field.type, from_pandas=True)
        return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


class Fragment:
    """A partition of the rows, as the fragments of pyarrow's datasets."""

    def __init__(self, rows: Rows, blocks: Sequence[Block]) -> None:
        """The rows of these blocks."""
        self._rows, self._blocks = rows, blocks

    def scanner(
        self,
        _schema: pa.Schema | None = None,
        columns: Sequence[str] | None = None,
        filter: pads.Expression | None = None,  # noqa: A002
        batch_size: int = 8192,
    ) -> Scan:
        """Returns a scan of these columns, in the rows for which a condition holds."""
        names = self._rows.schema.names if columns is None else list(columns)
        return Scan(self._rows, self._blocks, names, filter, batch_size)


@dataclass(frozen=True)
class Scan:
    """A scan of columns, block by block. The scanners of pyarrow read many blocks ahead."""

    rows: Rows
    blocks: Sequence[Block]
    names: list[str]
    condition: pads.Expression | None
    batch_size: int

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns that are read."""
        return pa.schema([self.rows.schema.field(name) for name in self.names])

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows for which the condition holds, one block after the other."""
        # Names of a condition are in its text. One that is there by chance is read for nothing.
        condition = "" if self.condition is None else str(self.condition)
        fields = [each for each in self.rows.schema if each.name in self.names or each.name in condition]
        # Batches without columns have no rows that could be counted.
        schema = pa.schema(fields or [self.rows.schema.field(0)])
        for block in self.blocks:
            table = pa.Table.from_batches([self.rows.batch(block, schema)])
            if self.condition is not None:
                table = table.filter(self.condition)
            yield from table.select(self.names).to_batches(self.batch_size)


def _dims(dataset: xr.Dataset) -> list[str]:
    """Returns the dimensions of the rows, in the order of the variable that has them all.

    Raises:
        ValueError: no variable has all of them.
    """
    widest = max(dataset.data_vars.values(), key=lambda variable: variable.ndim, default=None)
    if widest is None:
        return [str(dim) for dim in dataset.dims]
    for name, variable in dataset.data_vars.items():
        if lacking := [str(dim) for dim in variable.dims if dim not in widest.dims]:
            msg = (
                f"{name!r} varies by {', '.join(lacking)} and {widest.name!r} does not, so the dataset is no single "
                f"table: make one of each, as from dataset[[{str(name)!r}]]"
            )
            raise ValueError(msg)
    return [str(dim) for dim in widest.dims]


def _field(name: str, variable: Any) -> pa.Field:
    """Returns the column of a variable.

    Raises:
        TypeError: SQL has no type for its values.
    """
    import numpy as np

    dtype = variable.dtype.newbyteorder("=")
    is_text = dtype.kind in "UT" or (dtype.kind == "O" and all(isinstance(v, str) for v in np.ravel(variable.values)))
    try:
        return pa.field(name, pa.string() if is_text else pa.from_numpy_dtype(dtype))
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        first = "" if dtype.kind != "O" or not variable.size else f", as {np.ravel(variable.values)[0]!r}"
        msg = (
            f"{name!r} has values of type {dtype}{first}, for which SQL has no type: convert it, or drop_vars({name!r})"
        )
        raise TypeError(msg) from error


def _native(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the values in the order of bytes of this machine, which Arrow takes."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _blocks(dataset: xr.Dataset, dims: Sequence[str], chunks: Mapping[str, int] | None) -> list[Block]:
    """Returns the blocks of a dataset, of which one is read at a time."""
    cuts = []
    sizes = _sizes_of_blocks(dataset, dims, chunks)
    for dim in dims:
        ends = [0]
        for size in sizes[dim]:
            ends.append(ends[-1] + size)
        cuts.append([slice(start, end) for start, end in pairwise(ends)])
    return [dict(zip(dims, parts, strict=True)) for parts in product(*cuts)]


def _sizes_of_blocks(
    dataset: xr.Dataset, dims: Sequence[str], chunks: Mapping[str, int] | None
) -> dict[str, Sequence[int]]:
    """Returns the sizes of the blocks along each dimension."""
    if not chunks and dataset.chunks:
        return {dim: dataset.chunks.get(dim, (dataset.sizes[dim],)) for dim in dims}
    wanted = chunks or _chunks_of_file(dataset) or _chunks_by_rows(dataset, dims)
    sizes: dict[str, Sequence[int]] = {}
    for dim in dims:
        size, whole = dataset.sizes[dim], max(1, wanted.get(dim, dataset.sizes[dim]))
        sizes[dim] = [min(whole, size - start) for start in range(0, size, whole)]
    return sizes


def _chunks_of_file(dataset: xr.Dataset) -> dict[str, int]:
    """Returns the largest chunk along each dimension of what the file has of the variables."""
    found: dict[str, int] = {}
    for variable in dataset.data_vars.values():
        for dim, size in variable.encoding.get("preferred_chunks", {}).items():
            found[str(dim)] = max(size, found.get(str(dim), 0))
    return found


def _chunks_by_rows(dataset: xr.Dataset, dims: Sequence[str]) -> dict[str, int]:
    """As many whole inner dimensions as there may be rows."""
    rows, found = BLOCK_ROWS, {}
    for dim in reversed(dims):
        found[dim] = max(1, min(dataset.sizes[dim], rows))
        rows //= max(1, dataset.sizes[dim])
    return found
