"""Attention: how a word's attention changes with every number of the embeddings, one row each.

    python examples/gallery/attention.py [PICTURE]

A word is embedded as eight numbers, each a row of the table ``x``. The weights of attention are joins, sums and a
softmax. ``grad`` of one weight by ``val`` is, in each row, the derivative by that row's number.
"""

from __future__ import annotations

import sys

import numpy as np
from datafusion import SessionContext
from matplotlib.figure import Figure

from xql_ffi import register

WORDS = ["the", "cat", "sat", "on", "the", "mat", "because", "it", "was", "warm"]
FEATURES = 8
ASKED, ANSWERED = WORDS.index("it"), WORDS.index("cat")

NETWORK = """
    WITH scores AS (
        SELECT q.word AS asked, k.word AS answered, SUM(q.val * k.val) / sqrt(8.0) AS score
        FROM x q JOIN x k ON q.feature = k.feature GROUP BY q.word, k.word),
    weights AS (
        SELECT asked, answered,
               exp(score) / SUM(exp(score)) OVER (PARTITION BY asked) AS weight
        FROM scores)
"""

WEIGHTS = f"{NETWORK} SELECT asked, answered, weight FROM weights ORDER BY asked, answered"

GRADIENT = f"""
    {NETWORK}
    SELECT word, feature,
           grad((SELECT SUM(weight) FROM weights WHERE asked = {ASKED} AND answered = {ANSWERED}), val) AS slope
    FROM x ORDER BY word, feature
"""


def embeddings() -> np.ndarray:
    """Eight numbers for each word. Equal words have equal ones, and `it` resembles `cat` and `mat`."""
    draws = np.random.default_rng(3)
    kinds = {word: draws.normal(size=FEATURES) for word in dict.fromkeys(WORDS)}
    kinds["it"] = 0.9 * kinds["cat"] + 0.5 * kinds["mat"]
    return np.array([kinds[word] for word in WORDS])


def attend() -> tuple[np.ndarray, np.ndarray]:
    """The weights by word that asks and word that answers, and the derivatives of one of them by word and feature."""
    x = embeddings()
    word, feature = (np.ravel(number) for number in np.indices(x.shape))
    ctx = register(SessionContext())
    columns = {"word": word, "feature": feature, "val": x.ravel()}
    ctx.from_pydict({name: values.tolist() for name, values in columns.items()}, name="x")
    weights = np.array(ctx.sql(WEIGHTS).to_pydict()["weight"]).reshape(len(WORDS), len(WORDS))
    slopes = np.array(ctx.sql(GRADIENT).to_pydict()["slope"]).reshape(x.shape)
    return weights, slopes


def draw() -> Figure:
    """The weights, and the derivatives of one of them."""
    weights, slopes = attend()
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(5, 4))
    image = left.imshow(weights, cmap="viridis", vmin=0, vmax=1)
    figure.colorbar(image, ax=left, label="weight of attention", shrink=0.85)
    left.plot(ANSWERED, ASKED, marker="s", markersize=22, markerfacecolor="none", markeredgecolor="#D55E00", mew=2.5)
    left.set_xticks(range(len(WORDS)), WORDS, rotation=90)
    left.set(title="Which word attends to which", xlabel="word that answers", ylabel="word that asks")
    reach = abs(slopes).max()
    image = right.imshow(slopes, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto")
    figure.colorbar(image, ax=right, label="derivative of the marked weight", shrink=0.85)
    right.set(title="The marked weight, by every number", xlabel="number of the embedding")
    for ax in (left, right):
        ax.set_yticks(range(len(WORDS)), WORDS)
    return figure


if __name__ == "__main__":
    draw().savefig(sys.argv[1] if len(sys.argv) > 1 else "attention.png", dpi=100)
