"""Every output of a model by every input: what an error of each input does to each output.

    python examples/gallery/sensitivity_matrix.py [PICTURE]

The model is moist air: from temperature, humidity and pressure, which are rows of the table ``inputs``, to seven
numbers, which are rows of a query. ``xql_ffi.jacobian`` has the derivatives of all by all from one statement.
"""

from __future__ import annotations

import sys

import numpy as np
from datafusion import SessionContext
from matplotlib.figure import Figure

import xql_ffi

# Temperature in degrees Celsius, relative humidity, pressure in hPa; and how well each of them is known.
INPUTS = {"temperature": (25.0, 0.5), "humidity": (0.6, 0.03), "pressure": (1000.0, 1.0)}

MODEL = """
    WITH air AS (
        SELECT MAX(CASE WHEN name = 'temperature' THEN val END) AS t,
               MAX(CASE WHEN name = 'humidity' THEN val END) AS rh,
               MAX(CASE WHEN name = 'pressure' THEN val END) AS p FROM inputs),
    vapour AS (SELECT t, p, rh, 6.112 * exp(17.62 * t / (243.12 + t)) AS es FROM air),
    mixed AS (SELECT t, p, es, rh * es AS e, 0.622 * rh * es / (p - rh * es) AS w FROM vapour),
    virtual AS (SELECT t, p, es, e, w, (t + 273.15) * (1 + 0.608 * w / (1 + w)) AS tv FROM mixed)
    SELECT 'saturation pressure' AS name, es AS val FROM virtual
    UNION ALL SELECT 'vapour pressure', e FROM virtual
    UNION ALL SELECT 'mixing ratio', w FROM virtual
    UNION ALL SELECT 'enthalpy', 1.006 * t + w * (2501 + 1.86 * t) FROM virtual
    UNION ALL SELECT 'virtual temperature', tv FROM virtual
    UNION ALL SELECT 'density', 100 * p / (287.05 * tv) FROM virtual
    UNION ALL SELECT 'speed of sound', sqrt(1.4 * 287.05 * tv) FROM virtual
"""


def sensitivities() -> tuple[list[str], np.ndarray, np.ndarray]:
    """The outputs by their names, their values, and their derivatives by the inputs in the order of these."""
    ctx = xql_ffi.register(SessionContext())
    ctx.from_pydict({"name": list(INPUTS), "val": [value for value, _ in INPUTS.values()]}, name="inputs")
    found = xql_ffi.jacobian(ctx, MODEL, "inputs.val")
    # The columns are ordered by their keys, the names of the inputs.
    places = [found.columns["name"].to_pylist().index(name) for name in INPUTS]
    return found.rows["name"].to_pylist(), found.rows["val"].to_numpy(), found.matrix().toarray()[:, places]


def draw() -> Figure:
    """By how many percent each output is wrong where each input is wrong by its error."""
    outputs, values, slopes = sensitivities()
    percent = 100 * slopes * [error for _, error in INPUTS.values()] / values[:, None]
    order = np.argsort(-np.abs(percent).max(axis=1))
    percent, outputs = percent[order], [outputs[place] for place in order]
    figure = Figure(figsize=(7.2, 5), layout="constrained")
    ax = figure.subplots()
    reach = np.abs(percent).max()
    image = ax.imshow(percent, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    figure.colorbar(image, ax=ax, label="change of the output, %")
    for (row, column), change in np.ndenumerate(percent):
        color = "white" if abs(change) > 0.6 * reach else "black"
        ax.text(column, row, f"{change:+.2g}" if change else "0", ha="center", va="center", color=color)
    units = ("+0.5 °C", "+3 percentage points", "+1 hPa")
    ax.set_xticks(range(len(INPUTS)), [f"{name}\n{unit}" for name, unit in zip(INPUTS, units, strict=True)])
    ax.set_yticks(range(len(outputs)), outputs)
    ax.set_title("Moist air at 25 °C, 60 % and 1000 hPa: every output by every input")
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "sensitivity-matrix.png", dpi=100)
