"""Results as datasets of xarray: where values go, what is missing, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xarray as xr

import xql_ffi
from support.pages import ROOT
from xql_ffi.xarray import query, to_dataset


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


LIKE = xr.Dataset(
    {"t": (("y", "x"), np.zeros((3, 2)), {"units": "K"})},
    {"y": ("y", [30, 20, 10], {"units": "m"}), "x": [0.5, 1.5], "area": (("y", "x"), np.arange(6.0).reshape(3, 2))},
    {"title": "like"},
)


def test_rows_go_where_their_coordinates_say() -> None:
    found = to_dataset(table(x=[1.5, 0.5, 1.5], y=[10, 30, 30], t=[1.0, 2.0, 3.0]), like=LIKE)
    expected = xr.Dataset(
        {"t": (("y", "x"), [[2.0, 3.0], [np.nan, 1.0]], {"units": "K"})},
        {"y": ("y", [30, 10], {"units": "m"}), "x": [0.5, 1.5], "area": (("y", "x"), [[0.0, 1.0], [4.0, 5.0]])},
        {"title": "like"},
    )
    xr.testing.assert_identical(found, expected)


def test_coordinates_that_nobody_has_are_sorted() -> None:
    found = to_dataset(table(y=[3, 1, 2], v=[1.0, 2.0, 3.0]), ["y"])
    xr.testing.assert_identical(found, xr.Dataset({"v": ("y", [2.0, 3.0, 1.0])}, {"y": [1, 2, 3]}))
    # One of them is not in the dataset.
    found = to_dataset(table(y=[30, 10, 15], v=[1.0, 2.0, 3.0]), like=LIKE)
    assert found["y"].values.tolist() == [10, 15, 30]
    assert found["y"].attrs == {"units": "m"}
    assert "area" not in found.coords


def test_what_is_missing() -> None:
    rows = table(
        x=pa.array([0, 1, 2]),
        y=pa.array([0, 0, 1]),
        whole=pa.array([1, None, 3]),
        complete=pa.array([1, 2, 3]),
        flag=pa.array([True, None, False]),
        word=pa.array(["a", None, "c"]),
        time=pa.array([1, None, 3], pa.timestamp("ns")),
    )
    found = to_dataset(rows, ["x", "y"])
    assert found["whole"].dtype == np.float64
    np.testing.assert_array_equal(found["whole"], [[1, np.nan], [np.nan, np.nan], [np.nan, 3]])
    np.testing.assert_array_equal(found["complete"], [[1, np.nan], [2, np.nan], [np.nan, 3]])
    assert found["flag"].values.tolist() == [[True, None], [None, None], [None, False]]
    assert found["word"].isnull().values.tolist() == [[False, True], [True, True], [True, False]]
    assert found["word"].values[0, 0] == "a"
    assert np.isnat(found["time"].values).tolist() == [[False, True], [True, True], [True, False]]
    # Without a hole whole numbers stay what they are, however large.
    assert to_dataset(table(x=[0, 1], v=[2**62 + 1, 1]), ["x"])["v"].values.tolist() == [2**62 + 1, 1]


@pytest.mark.parametrize(
    ("rows", "dims", "message"),
    [
        (table(y=[10, 20, 10], v=[1.0, 2.0, 3.0]), None, r"several rows of y = 10.*or aggregate"),
        (table(y=[10, None], v=[1.0, 2.0]), None, "'y' is NULL in some rows"),
        (table(v=[1.0, 2.0]), None, r"no column of v is a dimension of the dataset.*dims=\[\.\.\.\]"),
        (table(v=[1.0]), ["step"], "no column 'step' for a dimension, only v"),
        (table(v=[1.0, 2.0]), [], "several rows without a dimension"),
        (pa.table([[1], [2]], names=["v", "v"]), [], "several columns 'v'"),
        (table(y=[1, 2], x=[1, 2], v=[2**62 + 1, None]), ["y", "x"], "4611686018427387905"),
    ],
)
def test_what_is_refused(rows: pa.Table, dims: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_dataset(rows, dims, like=LIKE)


def test_one_row_without_dimensions() -> None:
    found = query({"t": LIKE}, "SELECT SUM(grad(t * t, t) + 1) AS s FROM t")
    assert found["s"].item() == 6.0
    assert found["s"].dims == ()


def test_attributes_of_derivatives() -> None:
    sql = "SELECT y, x, t, grad(exp(t), t) AS d, grad(grad(exp(t), t), t) AS dd FROM t"
    found = query({"t": LIKE}, sql, derivatives={"d": (("e", "Pa"), "t"), "dd": ("d", "t")})
    assert found["d"].attrs == {"long_name": "derivative of e with respect to t", "units": "Pa K-1"}
    assert found["dd"].attrs["units"] == "Pa K-2"
    with pytest.raises(ValueError, match="no variable 'dt' to annotate"):
        query({"t": LIKE}, sql, derivatives={"dt": ("t", "t")})


def test_two_datasets() -> None:
    other = xr.Dataset({"w": ("y", [1.0, 2.0, 3.0], {"units": "kg"})}, {"y": [10, 20, 30]}, {"source": "other"})
    sql = "SELECT a.y, a.x, grad((a.t + 2) * w * w, w) AS d FROM a JOIN b ON a.y = b.y"
    found = query({"a": LIKE, "b": other}, sql, derivatives={"d": ("t", "w")})
    np.testing.assert_array_equal(found["d"], 4 * np.array([[3.0] * 2, [2.0] * 2, [1.0] * 2]))
    assert found["d"].attrs["units"] == "K kg-1"
    assert found.attrs == {"title": "like", "source": "other"}
    assert found["area"].equals(LIKE["area"])


def era5() -> xr.Dataset:
    opened: xr.Dataset = xr.open_dataset(ROOT / "examples" / "data" / "era5-members.nc").rename(isobaricInhPa="level")
    return opened


def saturation(t: Any) -> Any:
    return 6.112 * np.exp(17.67 * (t - 273.15) / (t - 29.65))


E_S = "6.112 * exp(17.67 * ({0} - 273.15) / ({0} - 29.65))"
SLOPE_FACTOR = 17.67 * (273.15 - 29.65)


def test_sensitivities_of_era5() -> None:
    given = era5()
    sql = f"SELECT time, level, latitude, longitude, number, t, grad({E_S.format('t')}, t) AS d FROM era5"
    found = query({"era5": given}, f"{sql} WHERE number < 2", derivatives={"d": (("e_s", "hPa"), "t")})
    t = given["t"].isel(number=slice(2)).astype("f8")
    xr.testing.assert_allclose(found["d"], (saturation(t) * SLOPE_FACTOR / (t - 29.65) ** 2).rename("d"), rtol=1e-13)
    xr.testing.assert_identical(found["t"], given["t"].isel(number=slice(2)).load())
    xr.testing.assert_identical(found["latitude"].variable, given["latitude"].variable)
    assert found["d"].attrs["units"] == "hPa K-1"


def test_error_propagation_of_era5() -> None:
    """What the picture of the page shows."""
    given = era5().sel(level=850.0).isel(time=[0], latitude=slice(0, 61, 6))
    sql = f"""
        WITH ensemble AS (
            SELECT time, latitude, longitude, AVG(t) AS m, STDDEV(t) AS s FROM era5 GROUP BY time, latitude, longitude)
        SELECT time, latitude, longitude, abs(grad({E_S.format("m")}, m)) * s AS predicted FROM ensemble
    """
    found = query({"era5": given}, sql)
    t = given["t"].astype("f8")
    mean, spread = t.mean("number"), t.std("number", ddof=1)
    expected = saturation(mean) * SLOPE_FACTOR / (mean - 29.65) ** 2 * spread
    np.testing.assert_allclose(found["predicted"], expected.transpose("time", "latitude", "longitude"), rtol=1e-6)
    assert float(found["level"]) == 850.0


def test_a_fit_over_a_dataset_by_recursion() -> None:
    """Gradient descent reads the dataset in each step; the steps are a dimension."""
    given = era5().isel(number=0, time=0)
    sql = """
        WITH RECURSIVE fit AS (
            SELECT 0 AS step, 250.0 AS a
            UNION ALL
            SELECT step + 1, a - 0.25 * AVG(grad(power(a - t, 2), a)) FROM fit CROSS JOIN era5 WHERE step < 30
            GROUP BY step, a)
        SELECT step, a FROM fit"""
    found = query({"era5": given}, sql, ["step"])
    assert found["a"].dims == ("step",)
    assert float(found["a"][-1]) == pytest.approx(float(given["t"].astype("f8").mean()), rel=1e-9)


def test_by_row_over_a_dataset() -> None:
    given = LIKE.assign(t=LIKE["t"] + np.arange(6.0).reshape(3, 2))
    sql = "WITH l AS (SELECT AVG(t * t * t) AS l FROM t) SELECT y, x, grad((SELECT l FROM l), t) AS g FROM t"
    np.testing.assert_allclose(query({"t": given}, sql)["g"], given["t"] ** 2 / 2, rtol=1e-14)


def test_a_refusal_is_that_of_the_statement() -> None:
    with pytest.raises(xql_ffi.MissingRuleError, match="erf"):
        query({"t": LIKE}, "SELECT y, x, grad(erf(t), t) AS d FROM t")
    found = query({"t": LIKE}, "SELECT y, x, grad(erf(t), t) AS d FROM t", functions=True)
    np.testing.assert_allclose(found["d"], 2 / np.sqrt(np.pi))
