"""Attributes of derivatives in xarray datasets."""

import numpy as np
import pytest
import xarray as xr
import xarray_sql

import xql_ffi


@pytest.fixture
def grid() -> xr.Dataset:
    values = np.arange(6, dtype="float64").reshape(2, 3) + 1
    return xr.Dataset(
        {"t": (("lat", "lon"), values, {"units": "K"}), "p": (("lat", "lon"), values, {"units": "m s-1"})},
        coords={"lat": [0.0, 30.0], "lon": [0.0, 90.0, 180.0]},
    )


def test_of_a_query(grid: xr.Dataset) -> None:
    ctx = xql_ffi.register(xarray_sql.XarrayContext())
    ctx.from_dataset("grid", grid, chunks={"lat": 1})
    result = ctx.sql("SELECT lat, lon, t, grad(t * p, t) AS d_t, grad(p * t, p) AS d_p FROM grid").to_dataset()
    derivatives = {"d_t": (("flux", "W m-2"), "t"), "d_p": ("t", "p")}
    annotated = xql_ffi.annotate(result, derivatives, template=grid)
    assert annotated["d_t"].attrs == {"long_name": "derivative of flux by t", "units": "W m-2 K-1"}
    assert annotated["d_p"].attrs == {"long_name": "derivative of t by p", "units": "K (m s-1)-1"}
    assert result["d_t"].attrs == {}
    xr.testing.assert_equal(annotated, result)


@pytest.mark.parametrize(
    ("of", "by", "units"),
    [("K", "K", "1"), ("1", "K", "K-1"), ("K", "1", "K"), (None, "K", None), ("K", None, None)],
)
def test_units(of: str | None, by: str | None, units: str | None) -> None:
    dataset = xr.Dataset({"d": ("k", [1.0])})
    attrs = xql_ffi.annotate(dataset, {"d": (("f", of), ("x", by))})["d"].attrs
    assert attrs == {"long_name": "derivative of f by x"} | ({"units": units} if units else {})


def test_a_variable_that_is_missing(grid: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="no variable 'd_t' to annotate, only 't', 'p'"):
        xql_ffi.annotate(grid, {"d_t": ("p", "t")})
