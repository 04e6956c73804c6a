"""A sensitivity map: by how many percent more water vapour air can hold when it warms by one kelvin, in all of ERA5.

python examples/gallery/sensitivity_map.py [PICTURE]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from xarray_sql import XarrayContext

from xql_ffi import annotate, register

DATA = Path(__file__).resolve().parents[1] / "data" / "era5-members.nc"

# Saturation vapour pressure over water in hPa (Tetens), and the mass of vapour in a mass of saturated air.
PRESSURE = "(6.1121 * exp(17.502 * (t - 273.16) / (t - 32.19)))"
HUMIDITY = f"(1000 * 0.622 * {PRESSURE} / (850 - 0.378 * {PRESSURE}))"

SENSITIVITY = f"""
    SELECT latitude, longitude, {HUMIDITY} AS q, grad(100 * ln({HUMIDITY}), t) AS gain FROM air
"""


def sensitivity() -> xr.Dataset:
    """Saturation specific humidity in g/kg and its relative gain by temperature, at 850 hPa."""
    era5 = xr.open_dataset(DATA).astype(np.float64)
    air = era5[["t"]].sel(isobaricInhPa=850).mean("number", keep_attrs=True).isel(time=0).reset_coords(drop=True)
    ctx = register(XarrayContext())
    ctx.from_dataset("air", air, chunks={"latitude": air.sizes["latitude"]})
    found = ctx.sql(SENSITIVITY).to_dataset(dims=["latitude", "longitude"])
    found = found.sortby(["latitude", "longitude"]).load()
    annotated: xr.Dataset = annotate(found, {"gain": (("100 ln(humidity)", "%"), "t")}, template=air)
    return annotated


def draw() -> Figure:
    """Both maps."""
    found = sensitivity()
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    gain = found["gain"].attrs
    figure.suptitle("Saturated air at 850 hPa on 1 January 2017, 00 UTC")
    shown = {
        "q": ("Vapour that air can hold", "saturation humidity, g/kg"),
        "gain": ("Gain by a warming of 1 K", f"{gain['long_name']}, {gain['units']}"),
    }
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (name, (title, label)) in zip(axes, shown.items(), strict=True):
        field = found[name]
        mesh = ax.pcolormesh(field["longitude"], field["latitude"], field, cmap="viridis")
        ax.set(title=title, xlabel="longitude, degrees east", xticks=range(0, 361, 60), yticks=range(-90, 91, 30))
        ax.set_xlim(-1.5, 358.5)
        figure.colorbar(mesh, ax=ax, label=label, orientation="horizontal", shrink=0.8)
    axes[0].set(ylabel="latitude, degrees north")
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "sensitivity-map.png", dpi=100)
