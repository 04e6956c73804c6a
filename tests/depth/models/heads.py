"""Attention of several heads with a causal mask; its softmax is a window.

Vaswani, A. et al. (2017), Attention is all you need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from depth.models.model import Model, Weights, normal

TOKENS, WIDTH, HEADS, INNER = 3, 4, 2, 2


def model(depth: int) -> Model:
    """So many layers, whose weights of all kinds are one table: query, key and value."""
    queries = {"x0": "SELECT i, c, val FROM x"}
    for n in range(depth):
        queries |= {
            f"all{n}": f"""SELECT x.i, w.kind, w.head, w.d, SUM(x.val * w.val) AS val
                           FROM x{n} x JOIN w ON w.c = x.c AND w.layer = {n} GROUP BY x.i, w.kind, w.head, w.d""",
            f"s{n}": f"""SELECT q.i, k.i AS j, q.head, SUM(q.val * k.val) / sqrt({INNER}.0) AS val
                         FROM all{n} q JOIN all{n} k ON k.head = q.head AND k.d = q.d AND k.i <= q.i
                         WHERE q.kind = 'q' AND k.kind = 'k' GROUP BY q.i, k.i, q.head""",
            f"e{n}": f"SELECT i, j, head, exp(val - MAX(val) OVER (PARTITION BY i, head)) AS val FROM s{n}",
            f"p{n}": f"SELECT i, j, head, val / SUM(val) OVER (PARTITION BY i, head) AS val FROM e{n}",
            f"o{n}": f"""SELECT p.i, p.head, v.d, SUM(p.val * v.val) AS val
                         FROM p{n} p JOIN all{n} v ON v.i = p.j AND v.head = p.head AND v.kind = 'v'
                         GROUP BY p.i, p.head, v.d""",
            f"u{n}": f"""SELECT o.i, w.c, SUM(o.val * w.val) AS val
                         FROM o{n} o JOIN together w ON w.head = o.head AND w.d = o.d AND w.layer = {n}
                         GROUP BY o.i, w.c""",
            f"x{n + 1}": f"""SELECT i, c, SUM(val) AS val FROM (SELECT * FROM x{n} UNION ALL SELECT * FROM u{n}) t
                             GROUP BY i, c""",
        }
    queries["loss"] = f"SELECT AVG(val * val * (1 + i - 0.1 * c)) AS l FROM x{depth}"

    def loss(arrays: Mapping[str, Any]) -> Any:
        x = arrays["x"]
        mask = np.tril(np.ones((TOKENS, TOKENS), dtype=bool))
        for n in range(depth):
            k, q, v = jnp.einsum("ic,kchd->khid", x, arrays["w"][n])
            scores = jnp.where(mask, q @ jnp.swapaxes(k, 1, 2) / INNER**0.5, -jnp.inf)
            x = x + jnp.einsum("hid,hdc->ic", jax.nn.softmax(scores, axis=2) @ v, arrays["together"][n])
        return (x * x * (1 + np.arange(TOKENS)[:, None] - 0.1 * np.arange(WIDTH))).mean()

    weights = {
        "x": Weights("ic", normal(180, TOKENS, WIDTH)),
        "w": Weights(
            ("layer", "kind", "c", "head", "d"), normal(181, depth, 3, WIDTH, HEADS, INNER), {"kind": ("k", "q", "v")}
        ),
        "together": Weights(("layer", "head", "d", "c"), normal(182, depth, HEADS, INNER, WIDTH)),
    }
    return Model(weights, queries, loss)
