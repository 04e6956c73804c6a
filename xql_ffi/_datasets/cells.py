"""Rows of Arrow as a dataset of xarray: each value in the cell that its coordinates say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    Array = np.ndarray[Any, Any]


def dataset_of(table: pa.Table, dims: Sequence[str], sources: Sequence[xr.Dataset]) -> xr.Dataset:
    """Returns the dataset with the columns of a table over those that are its dimensions.

    Raises:
        ValueError: a dimension is no column or is NULL somewhere, or several rows are of one cell.
    """
    import numpy as np
    import xarray as xr

    _check_dims(table, dims)
    coordinates, places = {}, []
    for dim in dims:
        coordinates[dim], of_rows = _coordinate(table[dim], dim, sources)
        places.append(of_rows)
    shape = tuple(len(coordinates[dim]) for dim in dims)
    cells = np.ravel_multi_index(places, shape) if dims else np.zeros(table.num_rows, np.intp)
    _check_cells(table, dims, cells)
    variables = {
        name: (tuple(dims), _filled(table[name], cells, shape)) for name in table.column_names if name not in dims
    }
    made = xr.Dataset(variables, {dim: (dim, values) for dim, values in coordinates.items()})
    for source in reversed(sources):
        made.attrs.update(source.attrs)
    return _with_coordinates(made, sources)


def dims_of(table: pa.Table, sources: Sequence[xr.Dataset]) -> list[str]:
    """Returns the columns that are dimensions of the datasets, in the order that these have them.

    Raises:
        ValueError: there are several rows, and none.
    """
    order: dict[str, None] = {}
    for source in sources:
        for variable in (*source.data_vars.values(), *source.coords.values()):
            order.update(dict.fromkeys(str(dim) for dim in variable.dims))
    found = [dim for dim in order if dim in table.column_names]
    if not found and table.num_rows != 1:
        msg = (
            f"no column of {', '.join(table.column_names)} is a dimension of the dataset: select its dimensions beside "
            "the values, or name columns, dims=[...]"
        )
        raise ValueError(msg)
    return found


def _check_dims(table: pa.Table, dims: Sequence[str]) -> None:
    names = table.column_names
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        msg = f"the result has several columns {repeated[0]!r}: give each another name"
        raise ValueError(msg)
    for dim in dims:
        if dim not in names:
            msg = f"the result has no column {dim!r} for a dimension, only {', '.join(names)}"
            raise ValueError(msg)
        if table[dim].null_count:
            msg = f"{dim!r} is NULL in some rows, which have no place in a dataset: leave these out by WHERE"
            raise ValueError(msg)


def _check_cells(table: pa.Table, dims: Sequence[str], cells: Array) -> None:
    import numpy as np

    _, firsts = np.unique(cells, return_index=True)
    if len(firsts) == len(cells):
        return
    repeated = int(np.setdiff1d(np.arange(len(cells)), firsts)[0])
    at = ", ".join(f"{dim} = {table[dim][repeated].as_py()}" for dim in dims)
    by = f"of {at}" if dims else "without a dimension"
    msg = (
        f"there are several rows {by}, and a dataset has one cell: select what tells them apart as a dimension, "
        "or aggregate"
    )
    raise ValueError(msg)


def _coordinate(column: pa.ChunkedArray, dim: str, sources: Sequence[xr.Dataset]) -> tuple[Array, Array]:
    """The values of a dimension, in the order of the dataset that has them, and the place of each row among them."""
    import numpy as np

    values = _values(column)
    for source in sources:
        if dim not in source.dims:
            continue
        index = source.get_index(dim)
        of_rows = index.get_indexer(values) if index.is_unique else np.array([-1])
        if (of_rows >= 0).all():
            kept, places = np.unique(of_rows, return_inverse=True)
            return source[dim].values[kept], places
    return np.unique(values, return_inverse=True)


def _values(column: pa.ChunkedArray) -> Array:
    """Returns the values of a column in NumPy. A whole number beside NULL is a float, if it can be one."""
    import numpy as np

    if column.null_count and pa.types.is_integer(column.type):
        column = pc.cast(column, pa.float64(), safe=True)
    made = np.asarray(column.to_numpy())
    return made.astype(object) if pa.types.is_boolean(column.type) and column.null_count else made


def _filled(column: pa.ChunkedArray, cells: Array, shape: tuple[int, ...]) -> Array:
    """Returns an array with the values in their cells, and with what is missing in those without a row."""
    import numpy as np

    size = int(np.prod(shape))
    if len(cells) < size:
        column = pa.chunked_array([*column.chunks, pa.nulls(1, column.type)], column.type)
        with_missing = _values(column)
        values, lacking = with_missing[:-1], with_missing[-1]
    else:
        values, lacking = _values(column), None
    made = np.empty(size, values.dtype) if lacking is None else np.full(size, lacking, values.dtype)
    made[cells] = values
    return made.reshape(shape)


def _with_coordinates(made: xr.Dataset, sources: Sequence[xr.Dataset]) -> xr.Dataset:
    """The dataset with the attributes of the variables that have its names, and the further coordinates that fit."""
    for source in sources:
        for name, coordinate in source.coords.items():
            is_known = name in made.variables or name in made.dims
            if is_known or not set(coordinate.dims) <= set(made.dims):
                continue
            if all(_has_all(source, made, dim) for dim in coordinate.dims):
                there = {dim: made[dim] for dim in coordinate.dims if dim in source.coords}
                made = made.assign_coords({name: coordinate.sel(there)})
    for name in made.variables:
        found = next((source[name] for source in sources if name in source.variables), None)
        if found is not None:
            made[name].attrs.update(found.attrs)
    return made


def _has_all(source: xr.Dataset, made: xr.Dataset, dim: Any) -> bool:
    """Returns whether the coordinates of a result are among those of the dataset."""
    import numpy as np

    return dim in source.coords and bool(np.isin(made[dim].values, source[dim].values).all())
