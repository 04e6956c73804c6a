"""A gradient in space: how steeply temperature changes with distance, by differences of neighbouring rows.

    python examples/gallery/gradient_field.py [PICTURE]

``grad(t, latitude)`` is not this. The table has temperature and latitude side by side, and neither is computed from the
other: as expressions they are independent, and the derivative is 0. A gradient in space compares a cell with its
neighbours, which are other rows. ``LAG`` and ``LEAD`` fetch them, and the quotient is that of ``xarray.differentiate``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from xarray_sql import XarrayContext

DATA = Path(__file__).resolve().parents[1] / "data" / "era5-members.nc"
KM_BY_DEGREE = 6371.0 * np.pi / 180

FIELD = """
    SELECT latitude, longitude, t,
           (LEAD(t) OVER meridian - LAG(t) OVER meridian)
               / (LEAD(latitude) OVER meridian - LAG(latitude) OVER meridian)   AS by_latitude,
           (LEAD(t) OVER parallel - LAG(t) OVER parallel)
               / (LEAD(longitude) OVER parallel - LAG(longitude) OVER parallel) AS by_longitude
    FROM air
    WINDOW meridian AS (PARTITION BY longitude ORDER BY latitude),
           parallel AS (PARTITION BY latitude ORDER BY longitude)
"""


def temperature() -> xr.DataArray:
    """Temperature of the first member at the first time, at 850 hPa, in K."""
    era5 = xr.open_dataset(DATA).astype(np.float64)
    chosen: xr.Dataset = era5.sel(isobaricInhPa=850).isel(number=0, time=0).reset_coords(drop=True)
    t: xr.DataArray = chosen["t"].sortby("latitude").load()
    return t


def by_sql(t: xr.DataArray) -> xr.Dataset:
    """Temperature and its derivatives in K per degree."""
    ctx = XarrayContext()
    ctx.from_dataset("air", t.to_dataset(name="t"), chunks={"latitude": t.sizes["latitude"]})
    field = ctx.sql(FIELD).to_dataset(dims=["latitude", "longitude"])
    field_in_order: xr.Dataset = field.sortby(["latitude", "longitude"]).load()
    return field_in_order


def by_xarray(t: xr.DataArray) -> xr.Dataset:
    """The same by ``xarray.differentiate``."""
    return xr.Dataset(
        {"t": t, "by_latitude": t.differentiate("latitude"), "by_longitude": t.differentiate("longitude")}
    )


def steepness(field: xr.Dataset) -> xr.DataArray:
    """The length of the gradient in K per 100 km."""
    parallel = xr.apply_ufunc(np.cos, np.pi / 180 * field["latitude"])
    by_degree = (field["by_latitude"] ** 2 + (field["by_longitude"] / parallel) ** 2) ** 0.5
    by_distance: xr.DataArray = by_degree * 100 / KM_BY_DEGREE
    return by_distance


def draw() -> Figure:
    """Both fields, under lines of equal temperature."""
    t = temperature()
    fields = {"LAG and LEAD in SQL": by_sql(t), "xarray.differentiate": by_xarray(t)}
    inside = {"latitude": slice(1, -1), "longitude": slice(1, -1)}
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    figure.suptitle("How steeply temperature changes at 850 hPa. White lines are 10 K apart")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (name, field) in zip(axes, fields.items(), strict=True):
        # On the outermost rows and columns the two differ: xarray takes one-sided differences there.
        steep = steepness(field).isel(inside)
        mesh = ax.pcolormesh(steep["longitude"], steep["latitude"], steep, vmin=0, vmax=2.5, cmap="viridis")
        ax.contour(t["longitude"], t["latitude"], t, np.arange(240, 310, 10), colors="white", linewidths=0.6)
        ax.set(title=name, xlabel="longitude, degrees east", xticks=range(0, 361, 60), yticks=range(-90, 91, 30))
        ax.set_ylim(-80, 80)
    axes[0].set(ylabel="latitude, degrees north")
    figure.colorbar(mesh, ax=axes, label="length of the gradient, K per 100 km", extend="max", pad=0.01)
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "gradient-field.png", dpi=90)
