"""Two ways down a valley: gradient descent and Newton's method, each one recursive statement.

python examples/gallery/newton_path.py [PICTURE]
"""

from __future__ import annotations

import sys

import numpy as np
from datafusion import SessionContext
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from xql_ffi import register

SURFACE = "(power(1 - x, 2) + 10 * power(y - x * x, 2))"
START = "-1.2 AS x, 1.0 AS y"

DESCENT = f"""
    WITH RECURSIVE path AS (
        SELECT 0 AS step, {START}
        UNION ALL
        SELECT step + 1, x - 0.015 * grad({SURFACE}, x), y - 0.015 * grad({SURFACE}, y)
        FROM path WHERE step < {{steps}})
    SELECT step, x, y, {SURFACE} AS height FROM path ORDER BY step
"""

# The inverse of the Hessian, of two rows and columns, is written out.
NEWTON = f"""
    WITH RECURSIVE path AS (
        SELECT 0 AS step, {START}
        UNION ALL
        SELECT step + 1,
               x - (yy * gx - xy * gy) / (xx * yy - xy * xy),
               y - (xx * gy - xy * gx) / (xx * yy - xy * xy)
        FROM (SELECT step, x, y,
                     grad({SURFACE}, x) AS gx, grad({SURFACE}, y) AS gy,
                     grad(grad({SURFACE}, x), x) AS xx,
                     grad(grad({SURFACE}, x), y) AS xy,
                     grad(grad({SURFACE}, y), y) AS yy
              FROM path WHERE step < {{steps}}))
    SELECT step, x, y, {SURFACE} AS height FROM path ORDER BY step
"""


def paths(descent: int = 120, newton: int = 7) -> dict[str, dict[str, list[float]]]:
    """The points of both paths with the height of the surface."""
    ctx = register(SessionContext())
    return {
        f"gradient descent, {descent} steps": ctx.sql(DESCENT.format(steps=descent)).to_pydict(),
        f"Newton, {newton} steps": ctx.sql(NEWTON.format(steps=newton)).to_pydict(),
    }


def draw(descent: int = 120, newton: int = 7) -> Figure:
    """The surface with both paths, and their heights by step."""
    found = paths(descent, newton)
    x, y = np.meshgrid(np.linspace(-1.8, 1.8, 300), np.linspace(-1.2, 2.0, 300))
    height = (1 - x) ** 2 + 10 * (y - x**2) ** 2
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    surface, fall = figure.subplots(1, 2, width_ratios=(3, 2))
    levels = np.geomspace(0.01, 300, 19)
    filled = surface.contourf(x, y, height, levels, norm=LogNorm(), cmap="Greys", extend="both")
    figure.colorbar(filled, ax=surface, label="height of the surface", ticks=[0.01, 0.1, 1, 10, 100], format="%g")
    for (name, path), color, marker in zip(found.items(), ("#0072B2", "#D55E00"), (".", "o"), strict=True):
        surface.plot(path["x"], path["y"], marker=marker, color=color, linewidth=1.2, markersize=5, label=name)
        fall.semilogy(path["step"], path["height"], marker=marker, color=color, markersize=4, label=name)
    surface.plot(1, 1, marker="*", color="#009E73", markersize=15, linestyle="none", label="minimum")
    surface.set(title="Paths on the surface (1 - x)² + 10 (y - x²)²", xlabel="x", ylabel="y", xlim=(-1.8, 1.8))
    surface.set(ylim=(-1.2, 2.0))
    surface.legend(loc="upper center", fontsize=8)
    fall.set(title="Height by step", xlabel="step", ylabel="height above the minimum", ylim=(1e-14, 30))
    fall.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "newton-path.png", dpi=100)
