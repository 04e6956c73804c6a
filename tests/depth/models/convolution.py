"""A convolution network over a line, with the greatest of each pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from depth.models.model import Array, Model, Weights, normal

SAMPLES, CHANNELS, REACH, CLASSES = 3, 2, 3, 2


def model(depth: int) -> Model:
    """So many convolutions, each of which halves the line, then one dense layer."""
    cells = 4 << (depth - 1)
    kernels: dict[str, Array] = {}
    queries = {"x0": "SELECT s, t, c, val FROM x"}
    for n in range(depth):
        kernels[f"k{n}"] = normal(151 + n, REACH, CHANNELS, CHANNELS)
        queries |= {
            # At the ends the kernel reaches over nothing.
            f"a{n}": f"""SELECT x.s, k.d, x.t - k.d + 1 AS t, k.o AS c, x.val * k.val AS val
                         FROM x{n} x JOIN k{n} k ON k.c = x.c""",
            f"z{n}": f"""SELECT s, t, c, SUM(val) AS val FROM a{n}
                         WHERE t >= 0 AND t < {cells >> n} GROUP BY s, t, c""",
            f"pool{n}": f"SELECT s, t / 2 AS t, c, MAX(val) AS val FROM z{n} GROUP BY s, t / 2, c",
            f"x{n + 1}": f"SELECT s, t, c, greatest(val, 0.1 * val) AS val FROM pool{n}",
        }
    queries |= {
        "z": f"""SELECT x.s, v.o, SUM(x.val * v.val) AS val FROM x{depth} x JOIN v ON v.t = x.t AND v.c = x.c
                 GROUP BY x.s, v.o""",
        "loss": "SELECT SUM(z.val * z.val * (1 + z.s)) + SUM(z.val) AS l FROM z",
    }

    def loss(arrays: Mapping[str, Any]) -> Any:
        x = arrays["x"]
        for n in range(depth):
            wide = jnp.pad(x, ((0, 0), (1, 1), (0, 0)))
            z = sum(wide[:, d : d + x.shape[1]] @ arrays[f"k{n}"][d] for d in range(REACH))
            x = z.reshape(SAMPLES, -1, 2, CHANNELS).max(2)
            x = jnp.maximum(x, 0.1 * x)
        z = jnp.einsum("stc,tco->so", x, arrays["v"])
        return (z * z * (1 + np.arange(SAMPLES)[:, None])).sum() + z.sum()

    weights = {
        "x": Weights("stc", normal(150, SAMPLES, cells, CHANNELS)),
        **{name: Weights("dco", kernel) for name, kernel in kernels.items()},
        "v": Weights("tco", normal(160, cells >> depth, CHANNELS, CLASSES)),
    }
    return Model(weights, queries, loss)
