"""Vectors of words from pairs that are seen and from negative samples; some words are in no pair.

Mikolov, T. et al. (2013), Distributed representations of words and phrases and their compositionality.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from depth.models.model import Model, Weights, normal

WORDS, WIDTH, SAMPLED = 6, 3, 2


def model(pairs: int) -> Model:
    """So many pairs, each with two negative samples. A pair may be there twice, and a sample be the word itself."""
    draw = np.random.default_rng(190)
    middle, near = draw.integers(0, WORDS - 1, (2, pairs))
    negative = draw.integers(0, WORDS - 1, (pairs, SAMPLED))
    queries = {
        "rows": """SELECT pair, middle, near AS word, 1.0 AS sign FROM pairs
                   UNION ALL SELECT p.pair, p.middle, n.word, -1.0 FROM pairs p JOIN negative n ON n.pair = p.pair""",
        # Samples that are there several times are one row of the scores.
        "often": "SELECT pair, sign, middle, word, COUNT(*) AS n FROM rows GROUP BY pair, sign, middle, word",
        "each": """SELECT o.n, o.sign, SUM(u.val * v.val) AS val FROM often o
                   JOIN vectors u ON u.word = o.middle JOIN contexts v ON v.word = o.word AND v.j = u.j
                   GROUP BY o.n, o.sign, o.pair, o.word""",
        "bound": "SELECT SUM(val * val) AS val FROM (SELECT val FROM vectors UNION ALL SELECT val FROM contexts) w",
        "loss": f"""SELECT SUM(n * ln(1 + exp(-sign * e.val))) / {pairs} + 0.01 * MAX(b.val) AS l
                    FROM each e CROSS JOIN bound b""",
    }

    def loss(arrays: Mapping[str, Any]) -> Any:
        u, v = arrays["vectors"], arrays["contexts"]
        seen = jax.nn.softplus(-(u[middle] * v[near]).sum(1)).sum()
        drawn = jax.nn.softplus((u[middle][:, None] * v[negative]).sum(2)).sum()
        return (seen + drawn) / pairs + 0.01 * ((u * u).sum() + (v * v).sum())

    numbers = np.arange(pairs)
    data = {
        "pairs": pa.table({"pair": numbers, "middle": middle, "near": near}),
        "negative": pa.table({"pair": np.repeat(numbers, SAMPLED), "word": negative.ravel()}),
    }
    weights = {
        "vectors": Weights(("word", "j"), normal(191, WORDS, WIDTH)),
        "contexts": Weights(("word", "j"), normal(192, WORDS, WIDTH)),
    }
    return Model(weights, queries, loss, data)
