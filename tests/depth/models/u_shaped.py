"""A U-shaped network over a line of cells: stencils, means of pairs on the way down, copies and skips on the way up.

Ronneberger, O. et al. (2015), U-Net: Convolutional networks for biomedical image segmentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import pyarrow as pa

from depth.models.model import Array, Model, Weights, normal

CHANNELS, REACH = 2, 3


def _stencil(x: str, kernel: str, cells: int) -> str:
    return f"""SELECT x.i - k.d + 1 AS i, k.o AS c, SUM(x.val * k.val) AS val FROM {x} x JOIN {kernel} k ON k.c = x.c
               WHERE x.i - k.d + 1 BETWEEN 0 AND {cells - 1} GROUP BY x.i - k.d + 1, k.o"""


def _bent(x: str) -> str:
    return f"SELECT i, c, val / (1 + exp(-val)) AS val FROM {x}"


def model(depth: int) -> Model:
    """A network that halves the line so many times."""
    cells = 4 << (depth - 1)
    kernels: dict[str, Array] = {}
    queries = {"e0": "SELECT i, c, val FROM x"}
    for n in range(depth):
        size = cells >> n
        kernels[f"down{n}"] = normal(20 + n, REACH, CHANNELS, CHANNELS)
        queries |= {
            f"s{n}": _stencil(f"e{n}", f"down{n}", size),
            f"skip{n}": _bent(f"s{n}"),
            f"e{n + 1}": f"SELECT i / 2 AS i, c, AVG(val) AS val FROM skip{n} GROUP BY i / 2, c",
        }
    kernels["bottom"] = normal(30, REACH, CHANNELS, CHANNELS)
    queries |= {"b": _stencil(f"e{depth}", "bottom", cells >> depth), f"d{depth}": _bent("b")}
    for n in reversed(range(depth)):
        kernels[f"up{n}"] = normal(40 + n, REACH, 2 * CHANNELS, CHANNELS)
        queries |= {
            f"both{n}": f"""SELECT i, c, val FROM skip{n}
                            UNION ALL
                            SELECT 2 * d.i + half.column1, d.c + {CHANNELS}, d.val
                            FROM d{n + 1} d CROSS JOIN (VALUES (0), (1)) AS half""",
            f"t{n}": _stencil(f"both{n}", f"up{n}", cells >> n),
            f"d{n}": _bent(f"t{n}"),
        }
    queries["loss"] = "SELECT AVG(power(d.val - y.val, 2)) AS l FROM d0 d JOIN y ON y.i = d.i AND y.c = d.c"

    def stencil(x: Any, kernel: Any) -> Any:
        wide = jnp.pad(x, ((1, 1), (0, 0)))
        return sum(wide[d : d + len(x)] @ kernel[d] for d in range(REACH))

    def loss(arrays: Mapping[str, Any]) -> Any:
        x, skips = arrays["x"], []
        for n in range(depth):
            skips.append(jax.nn.silu(stencil(x, arrays[f"down{n}"])))
            x = skips[-1].reshape(-1, 2, CHANNELS).mean(1)
        x = jax.nn.silu(stencil(x, arrays["bottom"]))
        for n in reversed(range(depth)):
            x = jnp.concatenate([skips[n], jnp.repeat(x, 2, axis=0)], axis=1)
            x = jax.nn.silu(stencil(x, arrays[f"up{n}"]))
        return ((x - target) ** 2).mean()

    weights = {name: Weights(("d", "c", "o"), kernel) for name, kernel in kernels.items()}
    target = normal(51, cells, CHANNELS)
    data: dict[str, pa.Table] = {"y": Weights("ic", target).table()}
    return Model({"x": Weights("ic", normal(50, cells, CHANNELS)), **weights}, queries, loss, data)
