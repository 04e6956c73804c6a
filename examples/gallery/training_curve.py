"""Training curves: three logistic regressions with three learning rates, trained side by side in one statement.

    python examples/gallery/training_curve.py [PICTURE]

The data are the 569 tumours of scikit-learn, each of 30 measurements. A weight is a row, and ``grad`` of the sum of the
three losses by ``val`` is, in each row, the derivative of that row's own loss by its weight.
"""

from __future__ import annotations

import sys

import numpy as np
from datafusion import SessionContext
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

from xql_ffi import register

RATES = (0.03, 0.3, 3.0)

TRAINING = """
    WITH RECURSIVE weights AS (
        SELECT 0 AS step, rate, feature, 0.0 AS val, CAST(NULL AS DOUBLE) AS loss
        FROM rates CROSS JOIN (SELECT DISTINCT feature FROM measurements)
        UNION ALL (
        WITH scores AS (
            SELECT w.rate, m.tumour, SUM(w.val * m.val) AS score
            FROM weights w JOIN measurements m ON w.feature = m.feature GROUP BY w.rate, m.tumour),
        losses AS (
            SELECT s.rate, AVG(ln(1 + exp(-l.sign * s.score))) AS loss
            FROM scores s JOIN labels l ON s.tumour = l.tumour GROUP BY s.rate)
        SELECT w.step + 1, w.rate, w.feature, w.val - w.rate * grad((SELECT SUM(loss) FROM losses), w.val), l.loss
        FROM weights w JOIN losses l ON w.rate = l.rate WHERE w.step < {steps}))
    SELECT step - 1 AS step, rate, MAX(loss) AS loss FROM weights WHERE step > 0 GROUP BY step, rate ORDER BY rate, step
"""


def measurements() -> tuple[np.ndarray, np.ndarray]:
    """The measurements with mean 0 and variance 1 and a last one that is 1 for all, and +1 or -1 for each tumour."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.column_stack([x, np.ones(len(x))]), 2.0 * y - 1


def train(steps: int, tumours: int | None = None) -> dict[float, list[float]]:
    """The loss before each step, by learning rate."""
    x, sign = (values[:tumours] for values in measurements())
    tumour, feature = (np.ravel(number) for number in np.indices(x.shape))
    ctx = register(SessionContext())
    columns = {"tumour": tumour, "feature": feature, "val": x.ravel()}
    ctx.from_pydict({name: values.tolist() for name, values in columns.items()}, name="measurements")
    ctx.from_pydict({"tumour": list(range(len(sign))), "sign": sign.tolist()}, name="labels")
    ctx.from_pydict({"rate": list(RATES)}, name="rates")
    found = ctx.sql(TRAINING.format(steps=steps)).to_pydict()
    rows = list(zip(found["rate"], found["loss"], strict=True))
    return {rate: [loss for by, loss in rows if by == rate] for rate in RATES}


def draw(steps: int = 100, tumours: int | None = None) -> Figure:
    """The losses by step."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    ax = figure.subplots()
    styles = zip(("#0072B2", "#D55E00", "#009E73"), ("-", "--", "-."), strict=True)
    for (rate, losses), (color, style) in zip(train(steps, tumours).items(), styles, strict=True):
        ax.semilogy(losses, color=color, linestyle=style, linewidth=2, label=f"learning rate {rate:g}")
    ax.set(title="Three models trained in one recursive statement", xlabel="step", ylabel="mean logistic loss")
    ax.set_yticks([0.05, 0.1, 0.2, 0.5, 1.0], ["0.05", "0.1", "0.2", "0.5", "1"])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend()
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "training-curve.png", dpi=100)
