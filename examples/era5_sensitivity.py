"""Sensitivities of ERA5 temperatures, differentiated inside SQL.

    python examples/era5_sensitivity.py [--output DIR]

Ten ensemble members of the ERA5 reanalysis, opened with xarray and registered as a SQL table by xarray-sql, answer four
questions. The derivative in each is ``grad(expression, column)``, written in plain SQL:

1. Newton's method: the square root of two, from a recursive query that divides by a derivative.
2. Sensitivity: how do potential temperature and saturation vapour pressure respond to a change of temperature?
3. Error propagation: how well does ``|df/dT| * stddev(T)`` predict the ensemble's spread of ``f(T)``?
4. Calibration: gradient descent in one recursive query fits a model of temperature by latitude and pressure.

Units are those of the file, K for temperature and m2 s-2 for geopotential, and hPa for every pressure.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter
from report import heading, save
from xarray_sql import XarrayContext

from xql_ffi import progress, register

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "era5-members.nc"

# --------------------------------------------------------------------------------------------------------------------
# Physics. Each function returns SQL for a quantity, given the name of a column that holds temperatures in K.
#
# Formulae and constants are those of the model that produced ERA5: ECMWF, IFS Documentation CY41R2 (2016), Part IV,
# Physical Processes, chapters 7 and 12.
# --------------------------------------------------------------------------------------------------------------------

REFERENCE_PRESSURE = 1000.0  # hPa
KAPPA = 2.0 / 7.0  # R_d / c_pd of dry air, 1: the model takes c_pd = 7/2 R_d
DRY_AIR_GAS_CONSTANT = 287.0597  # R_d, J kg-1 K-1
GRAVITY = 9.80665  # g, m s-2

TRIPLE_POINT = 273.16  # K: at and above, saturation is over water
ICE_POINT = 250.16  # K: at and below, saturation is over ice, and in between over a mixture of both
TRIPLE_POINT_PRESSURE = 6.1121  # hPa
WATER = (17.502, 32.19)  # a3 (1) and a4 (K) of Tetens' formula over water; Buck (1981)
ICE = (22.587, -0.7)  # a3 (1) and a4 (K) of Tetens' formula over ice; Alduchov and Eskridge (1996)


def potential_temperature(t: str) -> str:
    """Potential temperature in K, that of air brought adiabatically to 1000 hPa from the pressure ``level`` in hPa."""
    return f"({t} * power({REFERENCE_PRESSURE} / level, {KAPPA}))"


def saturation_pressure_over(t: str, phase: tuple[float, float]) -> str:
    """Saturation vapour pressure in hPa over one phase, water or ice, by Tetens' formula."""
    a3, a4 = phase
    return f"{TRIPLE_POINT_PRESSURE} * exp({a3} * ({t} - {TRIPLE_POINT}) / ({t} - {a4}))"


def saturation_pressure(t: str) -> str:
    """Saturation vapour pressure in hPa, over water, over ice, or between the two over a mixture."""
    over_water = saturation_pressure_over(t, WATER)
    over_ice = saturation_pressure_over(t, ICE)
    water_fraction = f"power(({t} - {ICE_POINT}) / {TRIPLE_POINT - ICE_POINT:.1f}, 2)"
    return f"""(
        CASE WHEN {t} >= {TRIPLE_POINT} THEN {over_water}
             WHEN {t} <= {ICE_POINT} THEN {over_ice}
             ELSE {water_fraction} * {over_water} + (1 - {water_fraction}) * {over_ice}
        END)"""


# --------------------------------------------------------------------------------------------------------------------
# The queries
# --------------------------------------------------------------------------------------------------------------------

NEWTON = """
    WITH RECURSIVE newton AS (
        SELECT 0 AS step, 1.0 AS x
        UNION ALL
        SELECT step + 1, x - (x * x - 2) / grad(x * x - 2, x) FROM newton WHERE step < 6)
    SELECT x FROM newton ORDER BY step DESC LIMIT 1
"""

SENSITIVITY = f"""
    SELECT number, time, level, latitude, longitude, z, t,
           {potential_temperature("t")}               AS theta,
           grad({potential_temperature("t")}, t)      AS dtheta_dt,
           {saturation_pressure("t")}                 AS es,
           grad({saturation_pressure("t")}, t)        AS des_dt,
           grad(ln({saturation_pressure("t")}), t)    AS dlnes_dt
    FROM era5
"""

ERROR_PROPAGATION = f"""
    WITH ensemble AS (
        SELECT time, level, latitude, longitude,
               AVG(z)                                      AS z_mean,
               AVG(t)                                      AS t_mean,
               STDDEV(t)                                   AS t_spread,
               STDDEV({potential_temperature("t")})        AS theta_spread,
               STDDEV({saturation_pressure("t")})          AS es_spread
        FROM era5
        GROUP BY time, level, latitude, longitude)
    SELECT time, level, latitude, longitude, z_mean, t_mean, t_spread, theta_spread, es_spread,
           abs(grad({potential_temperature("t_mean")}, t_mean)) * t_spread    AS theta_predicted,
           abs(grad({saturation_pressure("t_mean")}, t_mean)) * t_spread      AS es_predicted
    FROM ensemble
    ORDER BY time, level DESC, latitude DESC, longitude
"""

# The model of temperature is a + b P1(sin latitude) + c P2(sin latitude) + d h(level). P1 and P2 are Legendre
# polynomials, h is the logarithm of pressure, all scaled to have mean 0 and mean square 1 over the sphere. Then the
# loss is equally curved in all four parameters, and plain gradient descent needs few steps.

LOWER, UPPER = 850.0, 500.0  # hPa, the two levels of the file
MIDDLE = float(np.sqrt(LOWER * UPPER))  # hPa, halfway between them in ln(pressure)
LEARNING_RATE = 0.2
STEPS = 40

FEATURES = f"""
           cos(radians(latitude)) / AVG(cos(radians(latitude))) OVER ()       AS area,
           sqrt(3.0) * sin(radians(latitude))                                 AS p1,
           sqrt(5.0) * (3.0 * power(sin(radians(latitude)), 2) - 1.0) / 2.0   AS p2,
           ln(level / {MIDDLE}) / ln({LOWER} / {MIDDLE})                      AS h
"""
OBSERVATIONS = f"CREATE OR REPLACE TABLE observations AS SELECT t, {FEATURES} FROM era5"

LOSS = "o.area * power(m.a + m.b * o.p1 + m.c * o.p2 + m.d * o.h - o.t, 2)"

# Each step also returns the loss of the parameters it started from. LEAD moves it to their row, and LIMIT drops the
# last row, which has none.
CALIBRATION = f"""
    WITH RECURSIVE model AS (
        SELECT 0 AS step, 250.0 AS a, 0.0 AS b, 0.0 AS c, 0.0 AS d, CAST(NULL AS DOUBLE) AS loss
        UNION ALL
        SELECT m.step + 1,
               m.a - {LEARNING_RATE} * AVG(grad({LOSS}, m.a)),
               m.b - {LEARNING_RATE} * AVG(grad({LOSS}, m.b)),
               m.c - {LEARNING_RATE} * AVG(grad({LOSS}, m.c)),
               m.d - {LEARNING_RATE} * AVG(grad({LOSS}, m.d)),
               AVG({LOSS})
        FROM model AS m CROSS JOIN observations AS o
        WHERE m.step <= {STEPS}
        GROUP BY m.step, m.a, m.b, m.c, m.d)
    SELECT step, a, b, c, d, LEAD(loss) OVER (ORDER BY step) AS loss
    FROM model ORDER BY step LIMIT {STEPS + 1}
"""
PARAMETERS = ("a", "b", "c", "d")

# The same, as one would write it: predictions first, then losses, then the derivative of their average, which is
# followed through all three.
CALIBRATION_BY_STAGES = f"""
    WITH RECURSIVE model AS (
        SELECT 0 AS step, 250.0 AS a, 0.0 AS b, 0.0 AS c, 0.0 AS d, CAST(NULL AS DOUBLE) AS loss
        UNION ALL (
        WITH predictions AS (
            SELECT m.step, m.a, m.b, m.c, m.d, o.t, o.area, m.a + m.b * o.p1 + m.c * o.p2 + m.d * o.h AS predicted
            FROM model AS m CROSS JOIN observations AS o
            WHERE m.step <= {STEPS}),
        losses AS (
            SELECT step, a, b, c, d, area * power(predicted - t, 2) AS loss FROM predictions)
        SELECT step + 1,
               a - {LEARNING_RATE} * grad(AVG(loss), a),
               b - {LEARNING_RATE} * grad(AVG(loss), b),
               c - {LEARNING_RATE} * grad(AVG(loss), c),
               d - {LEARNING_RATE} * grad(AVG(loss), d),
               AVG(loss)
        FROM losses GROUP BY step, a, b, c, d))
    SELECT step, a, b, c, d, LEAD(loss) OVER (ORDER BY step) AS loss
    FROM model ORDER BY step LIMIT {STEPS + 1}
"""


# --------------------------------------------------------------------------------------------------------------------
# Running them
# --------------------------------------------------------------------------------------------------------------------


def open_era5(path: Path = DATA) -> xr.Dataset:
    """The ensemble: z and t by member, time, level (hPa), latitude and longitude (degrees)."""
    era5: xr.Dataset = xr.open_dataset(path).rename(isobaricInhPa="level").load()
    return era5


def connect(era5: xr.Dataset) -> XarrayContext:
    """A SQL session that knows the ensemble as table ``era5``, and ``grad`` as a function."""
    ctx = register(XarrayContext())
    ctx.from_dataset("era5", era5)
    return ctx


def newton(ctx: XarrayContext) -> float:
    """The square root of two, by Newton's method."""
    root: float = ctx.sql(NEWTON).to_arrow_table()["x"][0].as_py()
    return root


def sensitivities(ctx: XarrayContext) -> xr.Dataset:
    """Potential temperature, saturation vapour pressure and their derivatives, at every grid cell of every member."""
    result: xr.Dataset = ctx.sql(SENSITIVITY).to_dataset()
    describe(result["theta"], "potential temperature", "K")
    describe(result["dtheta_dt"], "sensitivity of potential temperature to temperature", "K K-1")
    describe(result["es"], "saturation vapour pressure", "hPa")
    describe(result["des_dt"], "sensitivity of saturation vapour pressure to temperature", "hPa K-1")
    describe(result["dlnes_dt"], "relative sensitivity of saturation vapour pressure to temperature", "K-1")
    return result


def error_propagation(ctx: XarrayContext) -> xr.Dataset:
    """The ensemble's spread of theta and es at every grid cell and time, and the spread predicted to first order."""
    result: xr.Dataset = ctx.sql(ERROR_PROPAGATION).to_dataset()
    describe(result["z_mean"], "ensemble mean of geopotential", "m2 s-2")
    describe(result["t_mean"], "ensemble mean of temperature", "K")
    describe(result["t_spread"], "ensemble spread of temperature", "K")
    describe(result["theta_spread"], "ensemble spread of potential temperature", "K")
    describe(result["theta_predicted"], "predicted spread of potential temperature", "K")
    describe(result["es_spread"], "ensemble spread of saturation vapour pressure", "hPa")
    describe(result["es_predicted"], "predicted spread of saturation vapour pressure", "hPa")
    return result


def calibration(ctx: XarrayContext, query: str = CALIBRATION) -> xr.Dataset:
    """Parameters in K and loss in K2 after every step of gradient descent, along the dimension ``step``."""
    ctx.sql(OBSERVATIONS)
    result: xr.Dataset = ctx.sql(query).to_dataset(dims=["step"])
    return result


def describe(variable: xr.DataArray, long_name: str, units: str) -> None:
    """Name a result, and state its units."""
    variable.attrs = {"long_name": long_name, "units": units}


def temperature_model(
    latitude: npt.ArrayLike, level: npt.ArrayLike, parameters: Sequence[float]
) -> npt.NDArray[np.float64]:
    """The calibrated model in NumPy: temperature in K at latitudes in degrees and levels in hPa."""
    return np.tensordot(np.asarray(parameters, dtype=np.float64), model_features(latitude, level), axes=1)


def model_features(latitude: npt.ArrayLike, level: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """1, P1, P2 and h of the model, stacked along the first axis."""
    s = np.sin(np.radians(np.asarray(latitude, dtype=np.float64)))
    h = np.log(np.asarray(level, dtype=np.float64) / MIDDLE) / np.log(LOWER / MIDDLE)
    s, h = np.broadcast_arrays(s, h)
    return np.stack([np.ones_like(s), np.sqrt(3.0) * s, np.sqrt(5.0) * (3.0 * s**2 - 1.0) / 2.0, h])


def least_squares(era5: xr.Dataset) -> tuple[npt.NDArray[np.float64], float]:
    """The parameters in K that minimise the loss, and that loss in K2, in closed form."""
    t = era5["t"].astype(np.float64)
    latitude, level, observed = (x.values.ravel() for x in xr.broadcast(era5["latitude"], era5["level"], t))
    features = model_features(latitude, level)
    area = np.cos(np.radians(latitude))
    area /= area.mean()
    normal_matrix = (features * area) @ features.T
    parameters = np.linalg.solve(normal_matrix, (features * area) @ observed)
    return parameters, float(np.mean(area * (parameters @ features - observed) ** 2))


# --------------------------------------------------------------------------------------------------------------------
# Tables
# --------------------------------------------------------------------------------------------------------------------

BANDS = ((60.0, 90.0), (30.0, 60.0), (0.0, 30.0), (-30.0, 0.0), (-60.0, -30.0), (-90.0, -60.0))  # degrees north


def in_band(field: xr.DataArray, south: float, north: float) -> xr.DataArray:
    """The part of a field from latitude ``south`` up to, but not including, ``north``, unless that is the pole."""
    latitude = field["latitude"].values
    band: xr.DataArray = field.isel(latitude=(latitude >= south) & ((latitude < north) | (north == 90.0)))
    return band


def band_name(south: float, north: float) -> str:
    """A latitude band as text, such as 60-30°S."""
    hemisphere = "N" if south >= 0 else "S"
    return f"{max(abs(south), abs(north)):2.0f}-{min(abs(south), abs(north)):2.0f}°{hemisphere}"


def area_mean(field: xr.DataArray) -> float:
    """Mean over the sphere, and over whatever other dimensions the field has."""
    area = xr.DataArray(np.cos(np.radians(field["latitude"].values)), dims="latitude")
    return float(field.weighted(area).mean())


def area_rms(field: xr.DataArray) -> float:
    """Root mean square over the sphere, and over whatever other dimensions the field has."""
    return float(np.sqrt(area_mean(field**2)))


def sensitivity_table(result: xr.Dataset) -> str:
    """Means by level and latitude band."""
    lines = [
        "  level   latitude        T     theta  dtheta/dT       e_s  de_s/dT  dln(e_s)/dT",
        "    hPa                   K         K        K/K       hPa    hPa/K          %/K",
    ]
    for level in result["level"].values:
        for south, north in BANDS:
            t, theta, dtheta_dt, es, des_dt, dlnes_dt = (
                area_mean(in_band(result[name].sel(level=level), south, north))
                for name in ("t", "theta", "dtheta_dt", "es", "des_dt", "dlnes_dt")
            )
            lines.append(
                f"  {level:5.0f}   {band_name(south, north)} {t:9.2f} {theta:9.2f} {dtheta_dt:10.4f}"
                f" {es:9.3f} {des_dt:8.4f} {100 * dlnes_dt:12.2f}"
            )
    return "\n".join(lines)


def relative_error(result: xr.Dataset) -> xr.DataArray:
    """Predicted against actual spread of saturation vapour pressure: 0 where they agree, 0.01 where 1 % too much."""
    error: xr.DataArray = result["es_predicted"] / result["es_spread"] - 1.0
    return error


def error_propagation_table(result: xr.Dataset) -> str:
    """Predicted and actual spread, root mean square by level and latitude band, and the ratio of the two."""
    lines = [
        "  level   latitude   spread   spread of theta, K          spread of e_s, hPa           ratio at single cells",
        "    hPa              of T, K  predicted  actual   ratio   predicted   actual    ratio    lowest    highest",
    ]
    for level in result["level"].values:
        for south, north in BANDS:
            band = {
                name: in_band(result[name].sel(level=level), south, north)
                for name in ("t_spread", "theta_predicted", "theta_spread", "es_predicted", "es_spread")
            }
            rms = {name: area_rms(field) for name, field in band.items()}
            ratio = band["es_predicted"] / band["es_spread"]
            lines.append(
                f"  {level:5.0f}   {band_name(south, north)} {rms['t_spread']:9.3f}"
                f" {rms['theta_predicted']:10.4f} {rms['theta_spread']:7.4f}"
                f" {rms['theta_predicted'] / rms['theta_spread']:7.4f}"
                f" {rms['es_predicted']:11.5f} {rms['es_spread']:8.5f} {rms['es_predicted'] / rms['es_spread']:8.4f}"
                f" {float(ratio.min()):9.4f} {float(ratio.max()):10.4f}"
            )
    return "\n".join(lines)


def calibration_table(steps: xr.Dataset, optimum: npt.NDArray[np.float64], least_loss: float) -> str:
    """Loss and parameters of some steps, and of the closed-form least squares solution."""
    lines = ["   step     loss, K2     above the minimum     a, K      b, K      c, K      d, K"]
    for step in (*range(9), *range(10, STEPS + 1, 5)):
        row = steps.sel(step=step)
        loss = float(row["loss"])
        parameters = " ".join(f"{float(row[name]):9.4f}" for name in PARAMETERS)
        lines.append(f"  {step:5d} {loss:12.6f} {loss - least_loss:21.3e} {parameters}")
    parameters = " ".join(f"{value:9.4f}" for value in optimum)
    lines.append(f"  exact {least_loss:12.6f} {'':21} {parameters}")
    return "\n".join(lines)


def lapse_rate(parameters: npt.NDArray[np.float64]) -> float:
    """The model's mean fall of temperature with height in K km-1, by the hydrostatic equation: g/(R_d T) dT/dln(p)."""
    a, _, _, d = parameters
    return float(1e3 * GRAVITY / (DRY_AIR_GAS_CONSTANT * a) * d / np.log(LOWER / MIDDLE))


# --------------------------------------------------------------------------------------------------------------------
# Figures
# --------------------------------------------------------------------------------------------------------------------

CONTOURS = range(80, 620, 8)  # geopotential height, dam
PLACES = {  # longitude and latitude in degrees, to find one's way without coastlines
    "North\nAmerica": (-102, 45),
    "South\nAmerica": (-60, -15),
    "Europe": (15, 50),
    "Africa": (20, 5),
    "Asia": (95, 45),
    "Australia": (134, -25),
    "Antarctica": (0, -83),
    "Greenland": (-41, 74),
    "Pacific": (-150, 5),
    "Atlantic": (-35, 25),
    "Indian\nOcean": (77, -25),
}


def draw_map(axes: Axes, field: xr.DataArray, geopotential: xr.DataArray, cmap: str, norm: Normalize) -> QuadMesh:
    """A field by latitude and longitude, with contours of geopotential height and names of continents and oceans."""
    field, geopotential = centred_on_greenwich(field), centred_on_greenwich(geopotential)
    mesh = axes.pcolormesh(field["longitude"], field["latitude"], field, cmap=cmap, norm=norm, rasterized=True)
    height = geopotential / GRAVITY / 10.0  # dam
    axes.contour(
        height["longitude"], height["latitude"], height, levels=CONTOURS, colors="black", linewidths=0.6, alpha=0.5
    )
    for name, (longitude, latitude) in PLACES.items():
        text = axes.text(longitude, latitude, name, ha="center", va="center", fontsize=7.5, linespacing=0.9)
        text.set_path_effects([withStroke(linewidth=2.0, foreground="white", alpha=0.75)])
    axes.set_xticks(range(-180, 181, 60), ["180°", "120°W", "60°W", "0°", "60°E", "120°E", "180°"])
    axes.set_yticks(range(-90, 91, 30), ["90°S", "60°S", "30°S", "0°", "30°N", "60°N", "90°N"])
    axes.tick_params(labelsize=7)
    axes.grid(color="black", alpha=0.2, linewidth=0.4)
    axes.set(xlim=(-180, 180), ylim=(-90, 90), aspect="equal")
    return mesh


def draw_colour_bar(mesh: QuadMesh, axes: Axes | Sequence[Axes], label: str) -> None:
    """The colour scale of one or several maps, below them."""
    first = axes if isinstance(axes, Axes) else axes[0]
    figure = first.get_figure(root=True)
    assert figure is not None
    panels = [axes] if isinstance(axes, Axes) else list(axes)
    bar = figure.colorbar(
        mesh, ax=panels, location="bottom", extend="both", label=label, aspect=35 * len(panels), pad=0.02, shrink=0.9
    )
    bar.ax.tick_params(labelsize=8)
    if isinstance(mesh.norm, LogNorm):
        bar.ax.xaxis.set_major_formatter(FuncFormatter(plain))


def centred_on_greenwich(field: xr.DataArray) -> xr.DataArray:
    """The field with longitudes from -180 to 180 degrees, both included."""
    field = field.assign_coords(longitude=(field["longitude"] + 180.0) % 360.0 - 180.0).sortby("longitude")
    first = field.isel(longitude=slice(0, 1))
    last = first.assign_coords(longitude=first["longitude"] + 360.0)
    centred: xr.DataArray = xr.concat([field, last], "longitude")
    return centred


def plain(value: float, _position: int) -> str:
    """A number on a logarithmic axis as people write it: 0.01 rather than 10^-2."""
    return f"{value:g}"


def moment(time: xr.DataArray) -> str:
    """A time, as text."""
    return str(time.dt.strftime("%d %B %Y, %H UTC").item())


def sensitivity_figure(result: xr.Dataset) -> Figure:
    """Saturation vapour pressure and its sensitivities on a map, and against temperature."""
    member = result.isel(number=0, time=0)
    low = member.sel(level=LOWER)
    figure = Figure(figsize=(11, 7.2), layout="compressed")
    axes = figure.subplots(2, 2)

    panels = (
        (axes[0, 0], low["es"], "viridis", LogNorm(0.3, 30.0), "Saturation vapour pressure $e_s$(T)", "hPa"),
        (axes[0, 1], low["des_dt"], "magma", LogNorm(0.03, 2.0), "Sensitivity: grad($e_s$, T)", "hPa / K"),
        (axes[1, 0], 100.0 * low["dlnes_dt"], "cividis", Normalize(5.5, 11.0), "Relative: grad(ln $e_s$, T)", "% / K"),
    )
    for panel, field, cmap, norm, title, units in panels:
        draw_colour_bar(draw_map(panel, field, low["z"], cmap, norm), panel, units)
        panel.set_title(title, fontsize=10)

    curve = axes[1, 1]
    for level, colour, size in ((LOWER, "tab:red", 7.0), (UPPER, "tab:blue", 2.5)):
        cells = member.sel(level=level)
        temperature, relative = cells["t"].values.ravel(), 100.0 * cells["dlnes_dt"].values.ravel()
        curve.plot(temperature, relative, ".", ms=size, markeredgewidth=0, color=colour, label=f"{level:.0f} hPa")
    for boundary in (ICE_POINT, TRIPLE_POINT):
        curve.axvline(boundary, color="grey", linewidth=0.8)
    for t, name in ((ICE_POINT - 9, "over ice"), (ICE_POINT + 11.5, "over both"), (TRIPLE_POINT + 9, "over water")):
        curve.text(t, 5.7, name, ha="center", color="dimgrey", fontsize=8)
    curve.set(xlabel="T, K", ylabel="% / K", xlim=(222, 308), ylim=(5.5, 12.5), box_aspect=0.5)
    curve.legend(frameon=False, markerscale=2)
    curve.set_title("Relative: grad(ln $e_s$, T), at every cell of both levels", fontsize=10)

    figure.suptitle(
        f"Saturation vapour pressure at {LOWER:.0f} hPa and its sensitivity to temperature\n"
        f"ERA5, member 0, {moment(low.time)}; contours: geopotential height every {CONTOURS.step} dam",
        fontsize=11,
    )
    return figure


def error_propagation_figure(result: xr.Dataset) -> Figure:
    """Predicted and actual spread of saturation vapour pressure, side by side, and the difference between them."""
    all_times = result.sel(level=LOWER)
    now = all_times.isel(time=0)
    figure = Figure(figsize=(11, 7.2), layout="compressed")
    axes = figure.subplots(2, 2)

    norm = LogNorm(0.01, 2.0)
    for panel, name, title in (
        (axes[0, 0], "es_predicted", r"Predicted to first order: |grad($e_s$, T)| $\cdot$ stddev(T)"),
        (axes[0, 1], "es_spread", "Actual: stddev($e_s$(T))"),
    ):
        mesh = draw_map(panel, now[name], now["z_mean"], "viridis", norm)
        panel.set_title(title, fontsize=10)
    draw_colour_bar(mesh, axes[0], "spread of saturation vapour pressure, hPa")

    mesh = draw_map(axes[1, 0], 100.0 * relative_error(now), now["z_mean"], "RdBu_r", Normalize(-5.0, 5.0))
    draw_colour_bar(mesh, axes[1, 0], "predicted / actual - 1, %")
    axes[1, 0].set_title("Difference", fontsize=10)

    density = axes[1, 1]
    open_sphere = all_times.isel(latitude=slice(1, -1))  # a pole is one point, though the grid has it 120 times
    t_spread, error = open_sphere["t_spread"].values.ravel(), relative_error(open_sphere).values.ravel()
    cells = density.hexbin(
        t_spread, 100.0 * error, xscale="log", bins="log", gridsize=(70, 35), cmap="viridis", linewidths=0.1, mincnt=1
    )
    bar = figure.colorbar(cells, ax=density, location="bottom", label="cells", aspect=35, pad=0.02, shrink=0.9)
    for axis in (density.xaxis, bar.ax.xaxis):
        axis.set_major_formatter(FuncFormatter(plain))
    density.axhline(0.0, color="black", linewidth=0.6)
    density.set(xlabel="stddev(T), K", ylabel="predicted / actual - 1, %", box_aspect=0.5)
    density.set_title("Difference by the ensemble's spread of temperature, at all four times", fontsize=10)

    figure.suptitle(
        f"Spread of saturation vapour pressure at {LOWER:.0f} hPa over ten ensemble members\n"
        f"ERA5, {moment(now.time)}; contours: geopotential height every {CONTOURS.step} dam",
        fontsize=11,
    )
    return figure


def calibration_figure(era5: xr.Dataset, steps: xr.Dataset, least_loss: float) -> Figure:
    """The loss by step, and the calibrated model over the data."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    descent, fit = figure.subplots(1, 2)

    descent.semilogy(steps["step"], steps["loss"] - least_loss, "o-", ms=3)
    descent.set(xlabel="step", ylabel="K²")
    descent.set_title("Gradient descent: loss above the least squares minimum", fontsize=10)
    descent.grid(alpha=0.3)

    final = steps.isel(step=-1)
    parameters = [float(final[name]) for name in PARAMETERS]
    for level, colour in ((LOWER, "tab:red"), (UPPER, "tab:blue")):
        t = era5["t"].sel(level=level)
        others = [dim for dim in t.dims if dim != "latitude"]
        fit.fill_between(t["latitude"], t.min(others), t.max(others), color=colour, alpha=0.15, linewidth=0)
        fit.plot(t["latitude"], t.mean(others), color=colour, label=f"{level:.0f} hPa: mean and range of ERA5")
        model = temperature_model(t["latitude"], level, parameters)
        fit.plot(t["latitude"], model, "--", color=colour, label=f"{level:.0f} hPa: model")
    fit.set_xticks(range(-90, 91, 30), ["90°S", "60°S", "30°S", "0°", "30°N", "60°N", "90°N"])
    fit.set(xlim=(-90, 90), ylabel="Temperature, K")
    fit.set_title("Temperature by latitude and level", fontsize=10)
    fit.legend(fontsize=8, frameon=False)
    fit.grid(alpha=0.3)
    return figure


# --------------------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> None:
    """Answer the four questions: numbers to the terminal, figures to the output directory."""
    parser = argparse.ArgumentParser(description="Sensitivities of ERA5 temperatures, differentiated inside SQL.")
    parser.add_argument("--output", type=Path, default=HERE / "output", help="directory of the figures (%(default)s)")
    output: Path = parser.parse_args(arguments).output
    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()

    era5 = open_era5()
    ctx = connect(era5)

    heading("Newton's method: the square root of 2")
    print(NEWTON)
    print(f"    {newton(ctx)}")

    heading("Sensitivity of potential temperature and saturation vapour pressure to temperature")
    print(f"  ERA5: {era5.attrs['title']}\n  {era5.attrs['license'].split(';')[0]}\n")
    sensitivity = sensitivities(ctx).load()
    print(sensitivity_table(sensitivity))
    save(sensitivity_figure(sensitivity), output / "era5-sensitivity.png")

    heading("Error propagation: |df/dT| * stddev(T) beside stddev(f), over ten members")
    spread = error_propagation(ctx).load()
    print(error_propagation_table(spread))
    error = abs(relative_error(spread))
    close, fair = (100.0 * float((error < bound).mean()) for bound in (0.01, 0.05))
    print(f"\n  e_s: predicted to 1 % of the actual spread in {close:.0f} % of all cells, to 5 % in {fair:.1f} %")
    save(error_propagation_figure(spread), output / "era5-error-propagation.png")

    heading("Calibration: T = a + b P1(sin latitude) + c P2(sin latitude) + d h(level)")
    with progress():
        steps = calibration(ctx).load()
    optimum, least_loss = least_squares(era5)
    print(calibration_table(steps, optimum, least_loss))
    fitted = np.array([float(steps[name][-1]) for name in PARAMETERS])
    print(
        f"\n  {era5['t'].size:,} temperatures; remaining error {np.sqrt(float(steps['loss'][-1])):.2f} K (rms);"
        f" mean lapse rate {lapse_rate(fitted):.2f} K/km"
    )
    with progress():
        by_stages = calibration(ctx, CALIBRATION_BY_STAGES).load()
    apart = max(float(abs(by_stages[name] - steps[name]).max()) for name in PARAMETERS)
    print(
        f"  through CTEs, as grad(AVG(loss), parameter): the same parameters to {max(apart, 1e-12):.0e} K, step by step"
    )
    save(calibration_figure(era5, steps, least_loss), output / "era5-calibration.png")

    print(f"\n{time.perf_counter() - started:.1f} s")


if __name__ == "__main__":
    main()
