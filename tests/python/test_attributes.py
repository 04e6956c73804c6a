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
    query = "SELECT lat, lon, t, t * p AS e, grad(t * p, t) AS d_t, grad(p * t, p) AS d_p FROM grid"
    result = ctx.sql(query).to_dataset()
    derivatives = {"d_t": (("e", "W m-2"), "t"), "d_p": ("t", "p")}
    annotated = xql_ffi.annotate(result, derivatives, template=grid)
    assert annotated["d_t"].attrs == {"long_name": "derivative of e with respect to t", "units": "W m-2 K-1"}
    assert annotated["d_p"].attrs == {"long_name": "derivative of t with respect to p", "units": "K m-1 s"}
    assert result["d_t"].attrs == {}
    xr.testing.assert_equal(annotated, result)
    # A computed column has no units that anybody knows.
    assert "units" not in xql_ffi.annotate(result, {"d_t": ("e", "t")}, template=grid)["d_t"].attrs


@pytest.mark.parametrize(
    ("of", "by", "units"),
    [
        ("Pa", "K", "Pa K-1"),
        ("K", "K", "1"),
        ("1", "K", "K-1"),
        ("K", "1", "K"),
        ("K", "kg kg-1", "K"),
        ("K", "kg kg**-1", "K"),
        ("K", "kg/kg", "K"),
        ("K", "(0 - 1)", "K"),
        ("K", "dimensionless", "K"),
        ("K", "g kg-1", "K g-1 kg"),
        ("K", "m s-1", "K m-1 s"),
        ("W/m2", "K", "W m-2 K-1"),
        ("W m**-2", "K", "W m**-2 K**-1"),
        ("kg m**-2 s**-1", "m s**-1", "kg m**-3"),
        ("J kg-1 K-1", "K", "J kg-1 K-2"),
        ("m2.s-1", "m", "m s-1"),
        ("hPa", "°C", "hPa °C-1"),
        # What is no product of units stays together.
        ("K", "1e-3 kg", "K (1e-3 kg)-1"),
        ("1e-3 kg", "K", "1e-3 kg K-1"),
        ("K", "hours since 1900-01-01", None),
        (None, "K", None),
        ("K", None, None),
    ],
)
def test_units(of: str | None, by: str | None, units: str | None) -> None:
    dataset = xr.Dataset({"d": ("k", [1.0])})
    attrs = xql_ffi.annotate(dataset, {"d": (("f", of), ("x", by))})["d"].attrs
    assert attrs == {"long_name": "derivative of f with respect to x"} | ({"units": units} if units else {})


def test_a_second_derivative_knows_the_first() -> None:
    dataset = xr.Dataset({"d_t": ("k", [1.0]), "d_t_t": ("k", [1.0]), "t": ("k", [280.0], {"units": "K"})})
    annotated = xql_ffi.annotate(dataset, {"d_t": (("e", "Pa"), "t"), "d_t_t": ("d_t", "t")})
    assert annotated["d_t_t"].attrs == {"long_name": "derivative of d_t with respect to t", "units": "Pa K-2"}
    assert dataset["d_t"].attrs == {}


def test_a_variable_that_is_missing(grid: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="no variable 'd_t' to annotate, only 't', 'p', 'lat', 'lon'"):
        xql_ffi.annotate(grid, {"d_t": ("p", "t")})


@pytest.mark.parametrize("parts", [("p", "tt"), ("tt", "p")])
def test_a_name_that_is_misspelt(grid: xr.Dataset, parts: tuple[str, str]) -> None:
    result = xr.Dataset({"d": ("k", [1.0])})
    with pytest.raises(ValueError, match=r"no dataset has a variable 'tt', only 'd' and 't', 'p', 'lat', 'lon'\. Give"):
        xql_ffi.annotate(result, {"d": parts}, template=grid)
