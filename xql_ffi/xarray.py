"""Datasets of xarray in and out of SQL, in sessions of DataFusion 55 and 54.

A dataset is a table with a row for each combination of its coordinates. Its columns are the dimensions, the further
coordinates and the variables:

>>> import xarray as xr
>>> import xql_ffi
>>> air = xr.Dataset(
...     {"e": ("k", [1.0, 4.0], {"units": "Pa"}), "t": ("k", [1.0, 2.0], {"units": "K"})}, {"k": [10, 20]}
... )
>>> sql = "SELECT k, t, grad(t * t, t) AS d FROM air"
>>> made = xql_ffi.xarray.query({"air": air}, sql, derivatives={"d": ("e", "t")})
>>> made["d"].sel(k=20).item(), made["d"].attrs["units"], made["t"].attrs
(4.0, 'Pa K-1', {'units': 'K'})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from datafusion import SessionContext

from xql_ffi._attributes import annotate
from xql_ffi._datasets.cells import dataset_of, dims_of
from xql_ffi._datasets.rows import Rows
from xql_ffi._expressions import shown
from xql_ffi._operators import register
from xql_ffi._rules import Rule

if TYPE_CHECKING:
    import xarray as xr

# What `annotate` takes: for each derivative, the function and the variable.
Derivatives = Mapping[str, tuple[Any, Any]]


def from_dataset(
    ctx: SessionContext, name: str, dataset: xr.Dataset, *, chunks: Mapping[str, int] | None = None
) -> None:
    """Registers a dataset as a table.

    Nothing is read before a statement runs. It then reads the columns that it needs block by block, one at a time in
    each partition, so that the dataset may be larger than memory: one that is opened from Zarr or NetCDF, with dask or
    without.

    >>> import xarray as xr
    >>> from datafusion import SessionContext
    >>> import xql_ffi
    >>> ctx = xql_ffi.register(SessionContext())
    >>> from_dataset(ctx, "air", xr.Dataset({"t": (("time", "k"), [[1.0, 2.0], [3.0, float("nan")]])}, {"k": [5, 6]}))
    >>> ctx.sql("SELECT time, k, t FROM air ORDER BY time, k").to_pydict()
    {'time': [0, 0, 1, 1], 'k': [5, 6, 5, 6], 't': [1.0, 2.0, 3.0, None]}

    Args:
        ctx: a session of the ``datafusion`` package.
        name: the name of the table.
        dataset: the dataset. One of its variables has all dimensions; the others may have fewer, and repeat.
        chunks: how many cells a block has at most along dimensions. By default, the chunks of the dataset, those of
            its file, or about a million rows.

    Raises:
        ModuleNotFoundError: xarray is not installed.
        TypeError: ``dataset`` is no dataset, or has values of a type that SQL has not.
        ValueError: no variable has all dimensions.
    """
    if not isinstance(dataset, _xarray("from_dataset").Dataset):
        msg = f"from_dataset takes a dataset of xarray, not {shown(dataset)}"
        raise TypeError(msg)
    ctx.register_dataset(name, Rows(dataset, chunks))


def to_dataset(
    frame: Any,
    dims: Sequence[str] | None = None,
    *,
    like: xr.Dataset | Iterable[xr.Dataset] = (),
    derivatives: Derivatives | None = None,
) -> xr.Dataset:
    """Returns the rows of a result as a dataset, each value in the cell that its coordinates say.

    Cells without a row are missing: NaN, or what else the type has for it. Coordinates that a dataset has are in its
    order, others sorted. Variables and coordinates have the attributes of those of the same name, and the coordinates
    that are left out in the query come back where their dimensions are there.

    Args:
        frame: a frame of the ``datafusion`` package, a relation of DuckDB, or a table of Arrow.
        dims: the columns that are dimensions. By default those that are dimensions of ``like``.
        like: the dataset that was queried, or several.
        derivatives: columns that are derivatives, each with its function and its variable, as `annotate` takes them:
            ``{"d_t": (("e_s", "Pa"), "t")}``.

    Raises:
        ModuleNotFoundError: xarray is not installed.
        ValueError: a dimension is no column, several rows are of one cell, or a derivative is none.
    """
    module = _xarray("to_dataset")
    sources: list[Any] = [like] if isinstance(like, module.Dataset) else list(like)
    table = frame.to_arrow_table() if hasattr(frame, "to_arrow_table") else pa.table(frame)
    made = dataset_of(table, dims_of(table, sources) if dims is None else list(dims), sources)
    if derivatives:
        described = {name: ((), 0, each.attrs) for source in sources for name, each in source.variables.items()}
        made = annotate(made, derivatives, template=module.Dataset(described))
    return made


def query(
    datasets: Mapping[str, xr.Dataset],
    sql: str,
    dims: Sequence[str] | None = None,
    *,
    derivatives: Derivatives | None = None,
    rules: Iterable[Rule] = (),
    functions: bool = False,
) -> xr.Dataset:
    """Returns the result of one statement over datasets, as a dataset.

    Args:
        datasets: the datasets by the names of their tables.
        sql: the statement.
        dims: the columns that are dimensions, as for `to_dataset`.
        derivatives: columns that are derivatives, as for `to_dataset`.
        rules: your own rules, as for `register`.
        functions: whether there are functions that DataFusion lacks, as for `register`.

    Raises:
        ModuleNotFoundError: xarray is not installed.
        TypeError: these are no datasets, or have values of a type that SQL has not.
        ValueError: as for `from_dataset` and `to_dataset`.
        DifferentiationError: the statement has a call without derivative.
    """
    ctx = register(SessionContext(), rules, functions=functions)
    for name, dataset in datasets.items():
        from_dataset(ctx, name, dataset)
    return to_dataset(ctx.sql(sql), dims, like=datasets.values(), derivatives=derivatives)


def _xarray(taker: str) -> ModuleType:
    """Returns the module of xarray.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    try:
        import xarray
    except ModuleNotFoundError as error:
        msg = f"xql_ffi.xarray.{taker} needs xarray: pip install xarray"
        raise ModuleNotFoundError(msg, name="xarray") from error
    return xarray
