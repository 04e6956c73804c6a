"""A residual network: its layers read one table of weights, by the number of the layer.

He, K. et al. (2016), Deep residual learning for image recognition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from depth.models.model import Model, Weights, normal

SAMPLES, WIDTH, HIDDEN, CLASSES = 3, 3, 4, 3
LABELS = np.array([2, 0, 1])


def model(depth: int) -> Model:
    """A network of so many layers that classifies."""
    queries = {"h0": "SELECT s, j, val FROM x"}
    for n in range(depth):
        queries |= {
            f"a{n}": f"""SELECT h.s, w.o AS j, SUM(h.val * w.val) AS val
                         FROM h{n} h JOIN inner_weights w ON w.i = h.j WHERE w.layer = {n} GROUP BY h.s, w.o""",
            f"u{n}": f"""SELECT a.s, a.j, greatest(a.val + b.val, 0.0) AS val
                         FROM a{n} a JOIN bias b ON b.j = a.j AND b.layer = {n}""",
            f"f{n}": f"""SELECT u.s, w.o AS j, SUM(u.val * w.val) AS val
                         FROM u{n} u JOIN outer_weights w ON w.i = u.j AND w.layer = {n} GROUP BY u.s, w.o""",
            f"h{n + 1}": f"SELECT s, j, h.val + f.val AS val FROM h{n} h JOIN f{n} f USING (s, j)",
        }
    queries |= {
        "z": f"""SELECT h.s, v.o AS class, SUM(h.val * v.val) AS val
                 FROM h{depth} h JOIN v ON v.i = h.j GROUP BY h.s, v.o""",
        "top": "SELECT s, MAX(val) AS m FROM z GROUP BY s",
        "total": "SELECT z.s, MAX(m) + ln(SUM(exp(val - m))) AS val FROM z JOIN top ON z.s = top.s GROUP BY z.s",
        "loss": """SELECT AVG(t.val - z.val) AS l FROM z JOIN label y ON y.s = z.s AND y.class = z.class
                   JOIN total t ON t.s = z.s""",
    }

    def loss(arrays: Mapping[str, Any]) -> Any:
        h = arrays["x"]
        for n in range(depth):
            u = jnp.maximum(h @ arrays["inner_weights"][n] + arrays["bias"][n], 0)
            h = h + u @ arrays["outer_weights"][n]
        z = h @ arrays["v"]
        return (jax.nn.logsumexp(z, axis=1) - z[np.arange(SAMPLES), LABELS]).mean()

    return Model(
        weights={
            "x": Weights("sj", normal(1, SAMPLES, WIDTH)),
            "inner_weights": Weights(("layer", "i", "o"), normal(2, depth, WIDTH, HIDDEN)),
            "bias": Weights(("layer", "j"), normal(3, depth, HIDDEN)),
            "outer_weights": Weights(("layer", "i", "o"), normal(4, depth, HIDDEN, WIDTH)),
            "v": Weights("io", normal(5, WIDTH, CLASSES)),
        },
        queries=queries,
        loss=loss,
        data={"label": pa.table({"s": np.arange(SAMPLES), "class": LABELS})},
    )
