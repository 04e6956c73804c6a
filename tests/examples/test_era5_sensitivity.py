"""The results of ``examples/era5_sensitivity.py``, against NumPy on the same file.

What is expected is computed here in float64, from the formulae as the literature has them and from the file itself; the
SQL, constants and NumPy of the example are not used. Derivatives are expected to be those of the complex step,
``imag(f(t + ih)) / h``, which is exact to rounding and owes nothing to rules of differentiation.

Tolerances are relative. The file is float32, but temperature meets a float64 constant or column in every expression
before anything is computed from it, so all arithmetic is float64 and errors are some units of 2e-16. They are larger

- in ``exp``, whose argument of up to 5 turns rounding of 1e-16 into 1e-15: 1e-13 for single cells;
- in the spread over members, where 0.03 K is what remains of 250 K: 1e-11;
- in sums over 585,600 cells in another order, repeated over 40 steps: 1e-11.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from support.programs import EXAMPLES, load

Array = npt.NDArray[np.float64]

CELL = 1e-13
SPREAD = 1e-11
FIT = 1e-11


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load("examples/era5_sensitivity")


@pytest.fixture(scope="module")
def ctx(example: ModuleType) -> Any:
    return example.connect(example.open_era5())


@pytest.fixture(scope="module")
def era5() -> xr.Dataset:
    """The file as it is, in float64."""
    dataset: xr.Dataset = xr.open_dataset(EXAMPLES / "data" / "era5-members.nc").load().astype(np.float64)
    return dataset


@pytest.fixture(scope="module")
def temperature(era5: xr.Dataset) -> Array:
    """Temperature in K by member, time, level, latitude, longitude."""
    values: Array = era5["t"].values
    return values


@pytest.fixture(scope="module")
def pressure(era5: xr.Dataset) -> Array:
    """Pressure in hPa, to go with the temperature."""
    values: Array = era5["isobaricInhPa"].values[:, np.newaxis, np.newaxis]
    return values


def water_vapour(t: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Saturation vapour pressure in hPa: IFS Documentation CY41R2, part IV, equations of section 7.2."""
    over_water = 611.21 * np.exp(17.502 * (t - 273.16) / (t - 32.19))
    over_ice = 611.21 * np.exp(22.587 * (t - 273.16) / (t + 0.7))
    mixed = ((t - 250.16) / (273.16 - 250.16)) ** 2
    alpha = np.where(t.real >= 273.16, 1.0, np.where(t.real <= 250.16, 0.0, mixed))
    return (alpha * over_water + (1.0 - alpha) * over_ice) / 100.0


def slope(f: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], t: Array) -> Array:
    """df/dt, by the complex step."""
    values: Array = np.imag(f(t + 1e-40j)) / 1e-40
    return values


def spread(values: Array) -> Array:
    """Sample standard deviation over the members."""
    deviation: Array = np.std(values, axis=0, ddof=1)
    return deviation


def assert_close(actual: xr.DataArray, expected: Array, rtol: float) -> None:
    assert actual.dtype == np.float64
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.values, expected, rtol=rtol, atol=0.0)


# Newton's method -----------------------------------------------------------------------------------------------------


def test_newton(example: ModuleType, ctx: Any) -> None:
    """Five steps from 1 reach the root to rounding: 1.4142135623730951, or the float before it."""
    assert example.newton(ctx) == pytest.approx(np.sqrt(2.0), rel=3e-16, abs=0.0)


# Sensitivity ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sensitivity(example: ModuleType, ctx: Any) -> xr.Dataset:
    result: xr.Dataset = example.sensitivities(ctx).load()
    return result


def test_sensitivity_is_on_the_grid_of_the_file(sensitivity: xr.Dataset, era5: xr.Dataset) -> None:
    grid = era5.rename(isobaricInhPa="level")
    for name in ("number", "time", "level", "latitude", "longitude"):
        np.testing.assert_array_equal(sensitivity[name].values, grid[name].values)
    assert sensitivity["t"].dtype == np.float32
    np.testing.assert_array_equal(sensitivity["t"].values, grid["t"].values)
    np.testing.assert_array_equal(sensitivity["z"].values, grid["z"].values)


def test_potential_temperature(sensitivity: xr.Dataset, temperature: Array, pressure: Array) -> None:
    def theta(t: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return t * (1000.0 / pressure) ** (2.0 / 7.0)

    assert_close(sensitivity["theta"], theta(temperature), CELL)
    assert_close(sensitivity["dtheta_dt"], slope(theta, temperature), CELL)


def test_saturation_pressure(sensitivity: xr.Dataset, temperature: Array) -> None:
    assert_close(sensitivity["es"], water_vapour(temperature), CELL)
    assert_close(sensitivity["des_dt"], slope(water_vapour, temperature), CELL)
    assert_close(sensitivity["dlnes_dt"], slope(lambda t: np.log(water_vapour(t)), temperature), CELL)


def test_every_branch_of_the_saturation_pressure_occurs(temperature: Array) -> None:
    """Or the test above would say nothing about one of them."""
    over_ice, over_water = temperature <= 250.16, temperature >= 273.16
    for branch in (over_ice, over_water, ~over_ice & ~over_water):
        assert branch.sum() > 100_000


def test_sensitivity_obeys_clausius_and_clapeyron(sensitivity: xr.Dataset, temperature: Array) -> None:
    """It is L / (R_v T^2), with the latent heat of water where warm and of ice where cold, to the 0.5 % of the fit."""
    vapour_gas_constant = 461.5250  # J kg-1 K-1
    for phase, latent_heat in (
        (temperature >= 273.16, 2.5008e6 - 2.36e3 * (temperature - 273.16)),
        (temperature <= 250.16, 2.8345e6 + 0.0 * temperature),
    ):
        expected = latent_heat / (vapour_gas_constant * temperature**2)
        np.testing.assert_allclose(sensitivity["dlnes_dt"].values[phase], expected[phase], rtol=5e-3)


# Error propagation ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def propagation(example: ModuleType, ctx: Any) -> xr.Dataset:
    result: xr.Dataset = example.error_propagation(ctx).load()
    return result


def test_error_propagation_is_on_the_grid_of_the_file(propagation: xr.Dataset, era5: xr.Dataset) -> None:
    grid = era5.rename(isobaricInhPa="level")
    for name in ("time", "level", "latitude", "longitude"):
        np.testing.assert_array_equal(propagation[name].values, grid[name].values)
    assert_close(propagation["z_mean"], grid["z"].values.mean(axis=0), CELL)
    assert_close(propagation["t_mean"], grid["t"].values.mean(axis=0), CELL)
    assert_close(propagation["t_spread"], spread(grid["t"].values), SPREAD)


def test_spread_of_potential_temperature(propagation: xr.Dataset, temperature: Array, pressure: Array) -> None:
    factor = (1000.0 / pressure) ** (2.0 / 7.0)
    assert_close(propagation["theta_spread"], spread(factor * temperature), SPREAD)
    assert_close(propagation["theta_predicted"], factor * spread(temperature), SPREAD)
    # linear in temperature at constant pressure, so first order is exact
    assert_close(propagation["theta_predicted"], propagation["theta_spread"].values, SPREAD)


def test_spread_of_saturation_pressure(propagation: xr.Dataset, temperature: Array) -> None:
    at_the_mean = np.abs(slope(water_vapour, temperature.mean(axis=0)))
    assert_close(propagation["es_spread"], spread(water_vapour(temperature)), SPREAD)
    assert_close(propagation["es_predicted"], at_the_mean * spread(temperature), SPREAD)


def test_first_order_error_of_the_saturation_pressure(example: ModuleType, propagation: xr.Dataset) -> None:
    """The two maps are computed apart, so they differ where e_s is curved, but seldom by more than a few percent."""
    error = np.abs(example.relative_error(propagation).values)
    assert 0.001 < np.median(error) < 0.01
    assert 0.05 < error.max() < 0.15


# Calibration ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def steps(example: ModuleType, ctx: Any) -> xr.Dataset:
    result: xr.Dataset = example.calibration(ctx).load()
    return result


@pytest.fixture(scope="module")
def features(era5: xr.Dataset) -> Array:
    """Of every temperature: 1, two Legendre polynomials of sin(latitude), +1 at 850 and -1 at 500 hPa."""
    sine = np.sin(np.deg2rad(era5["latitude"].values))[:, np.newaxis]
    first = np.polynomial.legendre.legval(sine, [0.0, 3.0**0.5])
    second = np.polynomial.legendre.legval(sine, [0.0, 0.0, 5.0**0.5])
    level = np.where(era5["isobaricInhPa"].values == 850.0, 1.0, -1.0)[:, np.newaxis, np.newaxis]
    columns = [np.broadcast_to(x, era5["t"].shape).ravel() for x in (1.0, first, second, level)]
    return np.stack(columns, axis=1)


@pytest.fixture(scope="module")
def area(era5: xr.Dataset) -> Array:
    """The weight of every temperature, 1 on average."""
    cosine = np.cos(np.deg2rad(era5["latitude"].values))[:, np.newaxis]
    weights = np.broadcast_to(cosine, era5["t"].shape).ravel()
    normalised: Array = weights / weights.mean()
    return normalised


def parameters(example: ModuleType, steps: xr.Dataset) -> Array:
    return np.stack([steps[name].values for name in example.PARAMETERS], axis=1)


def test_calibration_trajectory(
    example: ModuleType, steps: xr.Dataset, temperature: Array, features: Array, area: Array
) -> None:
    """Parameters and loss of all 41 rows are those of gradient descent with a gradient worked out by hand."""
    observed = temperature.ravel()
    current = np.array([250.0, 0.0, 0.0, 0.0])
    expected_parameters, expected_loss = [], []
    for _ in range(41):
        residual = features @ current - observed
        expected_parameters.append(current)
        expected_loss.append(np.mean(area * residual**2))
        current = current - 0.2 * (2.0 * (area * residual) @ features / observed.size)

    np.testing.assert_array_equal(steps["step"].values, np.arange(41))
    np.testing.assert_allclose(parameters(example, steps), expected_parameters, rtol=FIT, atol=0.0)
    np.testing.assert_allclose(steps["loss"].values, expected_loss, rtol=FIT, atol=0.0)


def test_calibration_by_stages(example: ModuleType, ctx: Any, steps: xr.Dataset) -> None:
    """Written through CTEs, with the derivative of the average loss, it takes the same steps."""
    by_stages = example.calibration(ctx, example.CALIBRATION_BY_STAGES).load()
    np.testing.assert_array_equal(by_stages["step"].values, steps["step"].values)
    np.testing.assert_allclose(parameters(example, by_stages), parameters(example, steps), rtol=FIT, atol=0.0)
    np.testing.assert_allclose(by_stages["loss"].values, steps["loss"].values, rtol=FIT, atol=0.0)


def test_calibration_reaches_least_squares(
    example: ModuleType, steps: xr.Dataset, temperature: Array, features: Array, area: Array
) -> None:
    """Each step leaves 0.6 of the distance, 1e-9 after 40; the loss is flat there, and agrees to rounding."""
    root = np.sqrt(area)
    optimum, squares, _, _ = np.linalg.lstsq(root[:, np.newaxis] * features, root * temperature.ravel())
    least_loss = squares[0] / temperature.size

    np.testing.assert_allclose(parameters(example, steps)[-1], optimum, rtol=2e-8)
    np.testing.assert_allclose(steps["loss"].values[-1], least_loss, rtol=FIT)
    assert np.all(np.diff(steps["loss"].values[:30]) < 0.0)

    solution, loss = example.least_squares(example.open_era5())
    np.testing.assert_allclose(solution, optimum, rtol=FIT)
    np.testing.assert_allclose(loss, least_loss, rtol=FIT)


def test_calibrated_model(example: ModuleType, era5: xr.Dataset, features: Array) -> None:
    """The model that is drawn is the model that was fitted."""
    expected = (features @ [270.0, -3.0, -11.0, 12.0]).reshape(era5["t"].shape)[0, 0, :, :, 0]
    latitude = era5["latitude"].values
    actual = [example.temperature_model(latitude, level, [270.0, -3.0, -11.0, 12.0]) for level in (850.0, 500.0)]
    np.testing.assert_allclose(actual, expected, rtol=CELL)


def test_lapse_rate(example: ModuleType, era5: xr.Dataset) -> None:
    """To 2 %, the file's own difference of temperature over its own difference of geopotential height."""
    fitted, _ = example.least_squares(example.open_era5())
    weights = np.cos(np.deg2rad(era5["latitude"].values))
    lower, upper = (era5.isel(isobaricInhPa=i).mean(["number", "time", "longitude"]) for i in (0, 1))
    fall = np.average((lower["t"] - upper["t"]).values, weights=weights)
    height = np.average((upper["z"] - lower["z"]).values, weights=weights) / 9.80665
    assert example.lapse_rate(fitted) == pytest.approx(1000.0 * fall / height, rel=0.02)


# What is printed and drawn -------------------------------------------------------------------------------------------


def test_bands_cover_the_globe_once(example: ModuleType, era5: xr.Dataset) -> None:
    latitudes = np.concatenate([example.in_band(era5["latitude"], *band).values for band in example.BANDS])
    np.testing.assert_array_equal(latitudes, era5["latitude"].values)


def test_error_propagation_table(example: ModuleType, propagation: xr.Dataset, temperature: Array) -> None:
    """The row of 60-30°N at 850 hPa: latitudes 57, 54, ..., 30, as 60 belongs to the band above."""
    t = temperature[:, :, 0, 11:21, :]
    cosine = np.cos(np.deg2rad(np.arange(57.0, 29.0, -3.0)))[:, np.newaxis]

    def rms(values: Array) -> float:
        return float(np.sqrt(np.average(values**2, weights=np.broadcast_to(cosine, values.shape))))

    predicted = np.abs(slope(water_vapour, t.mean(axis=0))) * spread(t)
    actual = spread(water_vapour(t))
    row = next(line for line in example.error_propagation_table(propagation).splitlines() if "850   60-30°N" in line)
    numbers = row.replace("60-30°N", "").split()
    ratio = predicted / actual
    assert numbers[0] == "850"
    assert numbers[1] == f"{rms(spread(t)):.3f}"
    assert numbers[5:] == [
        f"{rms(predicted):.5f}",
        f"{rms(actual):.5f}",
        f"{rms(predicted) / rms(actual):.4f}",
        f"{ratio.min():.4f}",
        f"{ratio.max():.4f}",
    ]


def test_maps_are_centred_on_greenwich(example: ModuleType, era5: xr.Dataset) -> None:
    field = era5["t"].isel(number=0, time=0, isobaricInhPa=0)
    turned = example.centred_on_greenwich(field)
    np.testing.assert_array_equal(turned["longitude"].values, np.arange(-180.0, 181.0, 3.0))
    for longitude in (-180.0, -177.0, -3.0, 0.0, 3.0, 177.0, 180.0):
        there = field.sel(longitude=longitude % 360.0)
        np.testing.assert_array_equal(turned.sel(longitude=longitude).values, there.values)


def test_one_command(example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole example: Newton's method first, then a table and a figure of each question."""
    output = tmp_path / "figures"
    example.main(["--output", str(output)])
    lines = capsys.readouterr().out.splitlines()

    first_number = next(line for line in lines if line.strip().replace(".", "").isdigit())
    assert first_number.strip() == "1.414213562373095"
    titles = [lines[i - 1] for i, line in enumerate(lines) if line and set(line) == {"-"}]
    assert [title.split()[0] for title in titles] == ["Newton's", "Sensitivity", "Error", "Calibration:"]

    for name in ("sensitivity", "error-propagation", "calibration"):
        figure = output / f"era5-{name}.png"
        assert figure.read_bytes().startswith(b"\x89PNG")
        assert any(str(figure) in line for line in lines)
