"""Datasets of xarray as tables: the rows of all types, what is read and when, and what is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from datafusion import SessionContext
from xarray.core import indexing

import xql_ffi
from xql_ffi.xarray import from_dataset, query, to_dataset

Array = np.typing.NDArray[Any]


@pytest.fixture
def ctx() -> SessionContext:
    return xql_ffi.register(SessionContext())


def of_all_types() -> xr.Dataset:
    """Three dimensions, in an order of their own, with coordinates of several types and variables that lack some."""
    random = np.random.default_rng(1)
    shape = (3, 4, 2)
    made = xr.Dataset(
        {
            "single": (("time", "lat", "member"), random.normal(size=shape).astype("f4")),
            "turned": (("member", "lat", "time"), random.normal(size=shape[::-1]), {"units": "K"}),
            "swapped": (("time", "lat", "member"), random.normal(size=shape).astype(">f8")),
            "small": (("lat", "member"), random.integers(-9, 9, (4, 2)).astype("i2")),
            "flag": (("time",), [True, False, True]),
            "word": (("lat",), ["a", "b", "c", "d"]),
            "constant": ((), 7.5),
            "span": (("time",), np.array([1, 2, 3], "m8[ns]")),
        },
        {
            "time": np.array(["2020-01-03", "2020-01-01", "2020-01-02"], "M8[ns]"),
            "lat": ("lat", [60.0, 30.0, 0.0, -30.0], {"units": "degrees_north"}),
            "height": ("lat", [1.0, 2.0, 3.0, 4.0], {"units": "m"}),
            "run": 3,
        },
        {"title": "all types"},
    )
    made["single"][1, 2, 0] = np.nan
    return made


def test_a_round_trip_is_the_same_dataset() -> None:
    given = of_all_types()
    names = ", ".join(["time", "lat", "member", *given.data_vars])
    found = query({"t": given}, f"SELECT {names} FROM t ORDER BY random()")
    # A column is a variable of all dimensions, in native order, and a dimension without coordinates has some.
    expected = given.assign_coords(member=[0, 1])
    for name, variable in expected.data_vars.items():
        whole = variable.broadcast_like(expected["single"]).transpose("time", "lat", "member")
        expected[name] = whole.astype(whole.dtype.newbyteorder("="))
    expected = expected.isel(time=[0, 1, 2])
    for name in expected.data_vars:
        np.testing.assert_array_equal(found[name].values, expected[name].values, err_msg=str(name))
        assert found[name].dims == ("time", "lat", "member")
        assert found[name].attrs == given[name].attrs
    for name in ("time", "lat", "height", "run"):
        xr.testing.assert_identical(found[name].variable, given[name].variable)
    assert found.attrs == given.attrs
    assert found["single"].dtype == np.float32
    assert found["small"].dtype == np.int16


def test_columns_of_coordinates(ctx: SessionContext) -> None:
    from_dataset(ctx, "t", of_all_types())
    assert ctx.table("t").schema().names == ["time", "lat", "member", "height", "run", *of_all_types().data_vars]
    found = ctx.sql("SELECT DISTINCT lat, height, run FROM t ORDER BY lat").to_pydict()
    assert found == {"lat": [-30.0, 0.0, 30.0, 60.0], "height": [4.0, 3.0, 2.0, 1.0], "run": [3] * 4}


def test_what_is_missing_is_null(ctx: SessionContext) -> None:
    from_dataset(ctx, "t", of_all_types())
    found = ctx.sql("SELECT COUNT(*) AS n, COUNT(single) AS m, AVG(single) AS a FROM t").to_pydict()
    assert (found["n"], found["m"]) == ([24], [23])
    assert found["a"] == [pytest.approx(float(of_all_types()["single"].mean(dtype="f8")), rel=1e-7)]


@pytest.mark.parametrize("seed", range(20))
def test_random_datasets(seed: int) -> None:
    """Dimensions, chunks and conditions at random, against xarray."""
    random = np.random.default_rng(seed)
    dims = [f"d{n}" for n in range(random.integers(1, 5))]
    sizes = {dim: int(random.integers(1, 6)) for dim in dims}
    coordinates = {dim: random.permutation(np.arange(20.0))[: sizes[dim]] for dim in dims if random.random() < 0.8}
    part = [dim for dim in random.permutation(dims) if random.random() < 0.7]
    given = xr.Dataset(
        {
            "a": (dims, random.normal(size=tuple(sizes.values()))),
            "b": (part, random.normal(size=tuple(sizes[dim] for dim in part))),
        },
        coordinates,
    )
    chunks = {dim: int(random.integers(1, 4)) for dim in dims if random.random() < 0.7}
    ctx = xql_ffi.register(SessionContext())
    from_dataset(ctx, "t", given, chunks=chunks)
    frame = ctx.sql(f"SELECT {', '.join(dims)}, grad(a * a * b, a) AS d FROM t WHERE b > 0 OR a > 0.5")
    found = to_dataset(frame, dims, like=given)
    whole = (2 * given["a"] * given["b"]).where((given["b"] > 0) | (given["a"] > 0.5)).transpose(*dims)
    whole = whole.assign_coords({dim: range(sizes[dim]) for dim in dims if dim not in coordinates})
    assert int(found["d"].count()) == int(whole.count())
    xr.testing.assert_allclose(found["d"].reindex_like(whole), whole.rename("d"), rtol=1e-14)


class Counted(xr.backends.BackendArray):
    """An array that is nowhere: it says what is read of it."""

    def __init__(self, shape: tuple[int, ...], reads: list[tuple[Any, ...]]) -> None:
        self.shape, self.dtype, self.reads = shape, np.dtype("f8"), reads

    def __getitem__(self, key: Any) -> Any:
        adapt: Any = indexing.explicit_indexing_adapter
        return adapt(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[Any, ...]) -> Array:
        self.reads.append(key)
        time, *others = (np.arange(size)[part] for size, part in zip(self.shape, key, strict=True))
        made: Array = time[:, None] + 0.001 * others[0] if others else time
        return made


def counted(reads: dict[str, list[tuple[Any, ...]]], shape: tuple[int, int] = (12, 5)) -> xr.Dataset:
    arrays = {name: indexing.LazilyIndexedArray(Counted(shape, reads[name])) for name in reads}
    return xr.Dataset({name: (("time", "k"), array) for name, array in arrays.items()})


def test_only_what_a_statement_needs_is_read(ctx: SessionContext) -> None:
    reads: dict[str, list[tuple[Any, ...]]] = {"a": [], "b": [], "c": []}
    from_dataset(ctx, "t", counted(reads), chunks={"time": 2})
    assert not any(reads.values())
    assert ctx.sql("SELECT SUM(grad(a * a, a)) AS s FROM t WHERE b > 3").to_pydict()["s"]
    assert sorted(part[0].start for part in reads["a"]) == [0, 2, 4, 6, 8, 10]
    assert len(reads["b"]) == 6
    assert not reads["c"]


def test_blocks_are_those_of_the_file(ctx: SessionContext) -> None:
    reads: dict[str, list[tuple[Any, ...]]] = {"a": []}
    given = counted(reads)
    given["a"].encoding["preferred_chunks"] = {"time": 4, "k": 5}
    from_dataset(ctx, "t", given)
    assert ctx.sql("SELECT COUNT(a) AS n FROM t").to_pydict() == {"n": [60]}
    assert sorted((part[0].start, part[0].stop) for part in reads["a"]) == [(0, 4), (4, 8), (8, 12)]


def test_blocks_of_many_rows(ctx: SessionContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xql_ffi._datasets.rows.BLOCK_ROWS", 12)
    reads: dict[str, list[tuple[Any, ...]]] = {"a": []}
    from_dataset(ctx, "t", counted(reads))
    assert ctx.sql("SELECT COUNT(a) AS n FROM t").to_pydict() == {"n": [60]}
    assert sorted(part[0].start for part in reads["a"]) == [0, 2, 4, 6, 8, 10]


def test_an_empty_dataset_and_coordinates_of_no_variable(ctx: SessionContext) -> None:
    given = xr.Dataset({"a": ("time", [])}, {"time": ("time", []), "bounds": ("side", [0, 1])})
    from_dataset(ctx, "t", given)
    assert ctx.table("t").schema().names == ["time", "a"]
    assert ctx.sql("SELECT COUNT(*) AS n, SUM(grad(a * a, a)) AS s FROM t").to_pydict() == {"n": [0], "s": [None]}
    assert query({"t": given}, "SELECT time, grad(a * a, a) AS d FROM t")["d"].shape == (0,)


def test_a_failure_to_read_is_an_error(ctx: SessionContext) -> None:
    class Broken(Counted):
        def _read(self, key: tuple[Any, ...]) -> Array:
            msg = "the file is gone"
            raise OSError(msg)

    array = indexing.LazilyIndexedArray(Broken((2,), []))
    from_dataset(ctx, "t", xr.Dataset({"a": ("time", array)}))
    with pytest.raises(Exception, match="the file is gone"):
        ctx.sql("SELECT SUM(a) FROM t").collect()


@pytest.mark.parametrize(
    ("dataset", "kind", "message"),
    [
        (
            xr.Dataset({"a": ("x", [1.0]), "b": ("y", [1.0, 2.0])}),
            ValueError,
            r"'b' varies by y and 'a' does not.*\[\['b'\]\]",
        ),
        (xr.Dataset({"a": ("x", [1j])}), TypeError, r"'a' has values of type complex128.*drop_vars\('a'\)"),
        (xr.Dataset({"a": ("x", np.array([{}], object))}), TypeError, r"'a' has values of type object, as \{\}"),
        ({"a": [1.0]}, TypeError, "from_dataset takes a dataset of xarray, not"),
    ],
)
def test_what_is_no_table(ctx: SessionContext, dataset: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        from_dataset(ctx, "t", dataset)


@pytest.mark.parametrize("name", ["from_dataset", "to_dataset", "query"])
def test_without_xarray(monkeypatch: pytest.MonkeyPatch, ctx: SessionContext, name: str) -> None:
    nothing: Any = None
    calls: dict[str, Callable[[], Any]] = {
        "from_dataset": lambda: from_dataset(ctx, "t", nothing),
        "to_dataset": lambda: to_dataset(nothing),
        "query": lambda: query({"t": nothing}, "SELECT 1"),
    }
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ModuleNotFoundError, match="needs xarray: pip install xarray"):
        calls[name]()
