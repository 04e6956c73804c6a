"""Uncertainty of a fitted curve: from the covariance of its parameters, by first and second derivatives.

    python examples/gallery/uncertainty.py [PICTURE]

The rate of an enzyme is ``v * s / (k + s)`` at the concentration ``s``. Its parameters are known with a standard
deviation each and a correlation. To first order, the variance of the rate is the covariance matrix between two
gradients; to second order, its mean moves by half the covariances times the Hessian. Draws confirm both.
"""

from __future__ import annotations

import sys

import numpy as np
from datafusion import SessionContext
from matplotlib.figure import Figure

from xql_ffi import register

MEAN, SPREAD, CORRELATION = np.array([2.0, 0.5]), np.array([0.12, 0.06]), 0.7
RATE = "(v * s / (k + s))"

PROPAGATION = f"""
    SELECT s, {RATE} AS rate,
           sqrt(power(grad({RATE}, v), 2) * vv + power(grad({RATE}, k), 2) * kk
                + 2 * grad({RATE}, v) * grad({RATE}, k) * vk)                        AS spread,
           (grad(grad({RATE}, v), v) * vv + grad(grad({RATE}, k), k) * kk) / 2
                + grad(grad({RATE}, v), k) * vk                                      AS shift
    FROM concentrations CROSS JOIN parameters ORDER BY s
"""


def covariance() -> np.ndarray:
    """Of the parameters v and k."""
    matrix: np.ndarray = np.outer(SPREAD, SPREAD) * np.array([[1, CORRELATION], [CORRELATION, 1]])
    return matrix


def propagate(concentrations: np.ndarray) -> dict[str, np.ndarray]:
    """The rate, its standard deviation, and by how much its mean lies above the rate of the mean."""
    ctx = register(SessionContext())
    (vv, vk), (_, kk) = covariance()
    row = {"v": MEAN[0], "k": MEAN[1], "vv": vv, "vk": vk, "kk": kk}
    ctx.from_pydict({"s": concentrations.tolist()}, name="concentrations")
    ctx.from_pydict({name: [float(value)] for name, value in row.items()}, name="parameters")
    return {name: np.array(values) for name, values in ctx.sql(PROPAGATION).to_pydict().items()}


def draws(concentrations: np.ndarray, number: int) -> np.ndarray:
    """Rates of parameters that are drawn, one row for each draw."""
    v, k = np.random.default_rng(0).multivariate_normal(MEAN, covariance(), number).T[:, :, np.newaxis]
    rates: np.ndarray = v * concentrations / (k + concentrations)
    return rates


def draw(points: int = 60, number: int = 200_000) -> Figure:
    """The curve with its uncertainty, and both orders beside draws."""
    s = np.geomspace(0.02, 20, points)
    found, drawn = propagate(s), draws(s, number)
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    curve, spread, shift = figure.subplots(1, 3, sharex=True)
    low, high = found["rate"] - 2 * found["spread"], found["rate"] + 2 * found["spread"]
    curve.fill_between(s, low, high, color="#56B4E9", alpha=0.5, label="± 2 spreads, by grad")
    curve.plot(s, found["rate"], color="#0072B2", label="rate of the mean")
    curve.plot(s, np.percentile(drawn, [2.3, 97.7], axis=0).T, color="black", linestyle=":", label="95 % of the draws")
    handles, labels = curve.get_legend_handles_labels()
    curve.legend(handles[:3], labels[:3], fontsize=8, loc="upper left")
    curve.set(title="Rate of the enzyme", ylabel="rate, µmol/s")
    spread.plot(s, found["spread"], color="#0072B2", label="first derivatives")
    spread.plot(s, drawn.std(axis=0), color="black", linestyle=":", label="draws")
    spread.set(title="Spread of the rate", ylabel="standard deviation, µmol/s")
    shift.plot(s, found["shift"], color="#0072B2", label="second derivatives")
    shift.plot(s, drawn.mean(axis=0) - found["rate"], color="black", linestyle=":", label="draws")
    shift.set(title="Shift of its mean", ylabel="mean rate - rate of the mean, µmol/s")
    for ax in (curve, spread, shift):
        ax.set(xscale="log", xlabel="concentration, mmol/l")
        ax.grid(alpha=0.3)
    for ax in (spread, shift):
        ax.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "uncertainty.png", dpi=100)
