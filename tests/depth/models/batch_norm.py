"""Dense layers over batches that are normalised, by groups and by windows in turn.

Ioffe, S. and Szegedy, C. (2015), Batch normalization: accelerating deep network training.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from depth.models.model import Model, Weights, normal

SAMPLES, WIDTH = 4, 2

_GROUPS = """SELECT a.s, a.j, (a.val - m.mean) / sqrt(m.spread + 0.01) AS val FROM {a} a
    JOIN (SELECT j, AVG(val) AS mean, VAR_POP(val) AS spread FROM {a} GROUP BY j) m ON m.j = a.j"""
_WINDOWS = """SELECT s, j, (val - AVG(val) OVER w) / sqrt(VAR_POP(val) OVER w + 0.01) AS val
    FROM {a} WINDOW w AS (PARTITION BY j)"""


def model(depth: int) -> Model:
    """So many layers, each with a scale and a shift of its own."""
    queries = {"h0": "SELECT s, j, val FROM x"}
    for n in range(depth):
        queries |= {
            f"a{n}": f"""SELECT h.s, w.o AS j, SUM(h.val * w.val) AS val
                         FROM h{n} h JOIN w ON w.i = h.j AND w.layer = {n} GROUP BY h.s, w.o""",
            f"c{n}": (_WINDOWS if n % 2 else _GROUPS).format(a=f"a{n}"),
            f"h{n + 1}": f"""SELECT c.s, c.j, tanh(g.val * c.val + b.val) AS val FROM c{n} c
                             JOIN scale g ON g.j = c.j AND g.layer = {n} JOIN shift b ON b.j = c.j AND b.layer = {n}""",
        }
    queries["loss"] = f"SELECT SUM(val * (1 + s * s - j)) AS l FROM h{depth}"

    def loss(arrays: Mapping[str, Any]) -> Any:
        h = arrays["x"]
        for n in range(depth):
            a = h @ arrays["w"][n]
            c = (a - a.mean(0)) / jnp.sqrt(a.var(0) + 0.01)
            h = jnp.tanh(arrays["scale"][n] * c + arrays["shift"][n])
        return (h * (1 + np.arange(SAMPLES)[:, None] ** 2 - np.arange(WIDTH))).sum()

    weights = {
        "x": Weights("sj", normal(170, SAMPLES, WIDTH)),
        "w": Weights(("layer", "i", "o"), normal(171, depth, WIDTH, WIDTH)),
        "scale": Weights(("layer", "j"), 1 + normal(172, depth, WIDTH)),
        "shift": Weights(("layer", "j"), normal(173, depth, WIDTH)),
    }
    return Model(weights, queries, loss)
