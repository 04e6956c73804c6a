"""A variational autoencoder whose draws are rows of a table.

Kingma, D. P. and Welling, M. (2014), Auto-encoding variational Bayes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from depth.models.model import Model, Weights, normal

SAMPLES, PIXELS, HIDDEN, CODES = 3, 4, 3, 2


def _dense(x: str, w: str) -> str:
    return f"SELECT x.s, w.o AS j, SUM(x.val * w.val) AS val FROM {x} x JOIN {w} w ON w.i = x.j GROUP BY x.s, w.o"


def model(depth: int) -> Model:
    """So many dense layers on the way to the codes, and as many back."""
    queries = {"a0": "SELECT s, j, val FROM x"}
    weights = {"x": Weights("sj", np.clip(normal(100, SAMPLES, PIXELS) + 0.5, 0.1, 0.9))}
    for n in range(depth):
        weights[f"in{n}"] = Weights("io", normal(101 + n, HIDDEN if n else PIXELS, HIDDEN))
        queries |= {f"e{n}": _dense(f"a{n}", f"in{n}"), f"a{n + 1}": f"SELECT s, j, tanh(val) AS val FROM e{n}"}
    for name, seed in (("mean", 110), ("spread", 111)):
        weights[f"to_{name}"] = Weights("io", normal(seed, HIDDEN, CODES))
        queries[name] = _dense(f"a{depth}", f"to_{name}")
    queries["b0"] = """SELECT m.s, m.j, m.val + exp(v.val / 2) * d.val AS val
        FROM mean m JOIN spread v ON v.s = m.s AND v.j = m.j JOIN draws d ON d.s = m.s AND d.j = m.j"""
    for n in range(depth):
        weights[f"back{n}"] = Weights("io", normal(121 + n, HIDDEN if n else CODES, HIDDEN))
        queries |= {f"f{n}": _dense(f"b{n}", f"back{n}"), f"b{n + 1}": f"SELECT s, j, tanh(val) AS val FROM f{n}"}
    weights["to_x"] = Weights("io", normal(130, HIDDEN, PIXELS))
    queries |= {
        "logit": _dense(f"b{depth}", "to_x"),
        "seen": """SELECT z.s, SUM(x.val * z.val - greatest(z.val, 0) - ln(1 + exp(-abs(z.val)))) AS val
                   FROM logit z JOIN x ON x.s = z.s AND x.j = z.j GROUP BY z.s""",
        "apart": """SELECT m.s, SUM(1 + v.val - m.val * m.val - exp(v.val)) / 2 AS val
                    FROM mean m JOIN spread v ON v.s = m.s AND v.j = m.j GROUP BY m.s""",
        "loss": "SELECT -AVG(a.val + b.val) AS l FROM seen a JOIN apart b ON b.s = a.s",
    }

    draws = normal(131, SAMPLES, CODES)

    def loss(arrays: Mapping[str, Any]) -> Any:
        a = arrays["x"]
        for n in range(depth):
            a = jnp.tanh(a @ arrays[f"in{n}"])
        mean, spread = a @ arrays["to_mean"], a @ arrays["to_spread"]
        b = mean + jnp.exp(spread / 2) * draws
        for n in range(depth):
            b = jnp.tanh(b @ arrays[f"back{n}"])
        logit = b @ arrays["to_x"]
        seen = arrays["x"] * logit - jax.nn.softplus(logit)
        return -(seen.sum(1) + (1 + spread - mean**2 - jnp.exp(spread)).sum(1) / 2).mean()

    data: dict[str, pa.Table] = {"draws": Weights("sj", draws).table()}
    return Model(weights, queries, loss, data)
