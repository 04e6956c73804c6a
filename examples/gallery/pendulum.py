"""A derivative through an iteration: how the swing of a pendulum depends on the angle at which it starts.

    python examples/gallery/pendulum.py [PICTURE]

A recursive query integrates the equation of motion. Outside of it, ``grad(angle, start)`` is the derivative of every
step by the angle of the first, carried through all iterations before.
"""

from __future__ import annotations

import sys

import numpy as np
from datafusion import SessionContext
from matplotlib.figure import Figure

from xql_ffi import register

STEP = 0.05  # s
MOTION = f"""
    WITH RECURSIVE motion AS (
        SELECT 0 AS step, start, start AS angle, CAST(0 AS DOUBLE) AS speed FROM starts
        UNION ALL
        SELECT step + 1, start,
               angle + {STEP} * (speed - {STEP} * 9.81 * sin(angle)),
               speed - {STEP} * 9.81 * sin(angle)
        FROM motion WHERE step < {{steps}})
    SELECT step * {STEP} AS time, start, angle, grad(angle, start) AS slope FROM motion ORDER BY start, step
"""


def swing(starts: list[float], steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The times in s, and for each angle at the start the angles by time and their derivatives by it."""
    ctx = register(SessionContext())
    ctx.from_pydict({"start": starts}, name="starts")
    found = ctx.sql(MOTION.format(steps=steps)).to_pydict()
    time, angle, slope = (np.array(found[name]).reshape(len(starts), -1) for name in ("time", "angle", "slope"))
    return time[0], angle, slope


def draw(steps: int = 200) -> Figure:
    """The swing from three angles, and its derivative beside the quotient of differences."""
    h = 0.001
    degrees = (60, 120, 170)
    starts = [float(np.radians(angle)) for angle in degrees]
    figure = Figure(figsize=(8, 5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    colors, styles = ("#0072B2", "#D55E00", "#009E73"), ("-", "--", "-.")
    for start, angle, color, style in zip(starts, degrees, colors, styles, strict=True):
        time, (below, at, above), slopes = swing([start - h, start, start + h], steps)
        upper.plot(time, np.degrees(at), color=color, linestyle=style, label=f"start at {angle}°")
        lower.plot(time, slopes[1], color=color, linestyle=style)
        lower.plot(time[::10], ((above - below) / (2 * h))[::10], "k.", markersize=4)
    lower.plot([], [], "k.", label="difference of two runs over that of their starts")
    upper.set(title="A pendulum of 1 m, integrated by a recursive query", ylabel="angle, degrees")
    upper.legend(loc="upper right", ncols=3, fontsize=8)
    upper.set_ylim(-200, 290)
    lower.set(title="Derivative of the angle by that at the start", xlabel="time, s", ylabel="degrees per degree")
    lower.legend(loc="upper left", fontsize=8)
    for ax in (upper, lower):
        ax.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "pendulum.png", dpi=100)
