"""A mixture of experts: the best two of each sample compute, weighted by a softmax, and a penalty spreads the load.

Shazeer, N. et al. (2017), Outrageously large neural networks: the sparsely-gated mixture-of-experts layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from depth.models.model import Model, Weights, normal

SAMPLES, WIDTH, HIDDEN, EXPERTS, CHOSEN = 4, 2, 3, 4, 2

# The best of each sample, in three ways of writing it.
BEST = {
    "row_number": """SELECT s, e, val FROM (
        SELECT s, e, val, ROW_NUMBER() OVER (PARTITION BY s ORDER BY val DESC, e) AS place FROM {scores})
        WHERE place <= 2""",
    "qualify": """SELECT s, e, val FROM {scores}
        QUALIFY ROW_NUMBER() OVER (PARTITION BY s ORDER BY val DESC, e) <= 2""",
    "second": """SELECT a.s, a.e, a.val FROM {scores} a JOIN (
            SELECT s, NTH_VALUE(val, 2 ORDER BY val DESC) AS least FROM {scores} GROUP BY s) b ON b.s = a.s
        WHERE a.val >= b.least""",
}


def model(depth: int, way: str = "row_number") -> Model:
    """So many layers, each with experts and a gate of its own."""
    queries = {"x0": "SELECT s, j, val FROM x"}
    weights = {"x": Weights("sj", normal(60, SAMPLES, WIDTH))}
    for n in range(depth):
        weights |= {
            f"gate{n}": Weights("je", 2 * normal(61 + n, WIDTH, EXPERTS)),
            f"in{n}": Weights("ejh", normal(71 + n, EXPERTS, WIDTH, HIDDEN)),
            f"out{n}": Weights("ehj", normal(81 + n, EXPERTS, HIDDEN, WIDTH)),
        }
        queries |= {
            f"z{n}": f"""SELECT x.s, g.e, SUM(x.val * g.val) AS val
                         FROM x{n} x JOIN gate{n} g ON g.j = x.j GROUP BY x.s, g.e""",
            f"best{n}": BEST[way].format(scores=f"z{n}"),
            f"t{n}": f"SELECT s, SUM(exp(val)) AS t FROM best{n} GROUP BY s",
            f"p{n}": f"SELECT b.s, b.e, exp(b.val) / t.t AS val FROM best{n} b JOIN t{n} t ON t.s = b.s",
            f"h{n}": f"""SELECT p.s, p.e, w.h, SUM(x.val * w.val) AS val FROM p{n} p JOIN x{n} x ON x.s = p.s
                         JOIN in{n} w ON w.e = p.e AND w.j = x.j GROUP BY p.s, p.e, w.h""",
            f"u{n}": f"""SELECT h.s, w.j, SUM(p.val * tanh(h.val) * w.val) AS val FROM h{n} h
                         JOIN out{n} w ON w.e = h.e AND w.h = h.h JOIN p{n} p ON p.s = h.s AND p.e = h.e
                         GROUP BY h.s, w.j""",
            f"x{n + 1}": f"SELECT x.s, x.j, x.val + u.val AS val FROM x{n} x JOIN u{n} u ON u.s = x.s AND u.j = x.j",
            # How many samples an expert has, times the chance that the gate gives it.
            f"all{n}": f"SELECT s, e, exp(val) / SUM(exp(val)) OVER (PARTITION BY s) AS val FROM z{n}",
            f"load{n}": f"""SELECT SUM(c.n * a.val) AS l FROM (SELECT e, AVG(val) AS val FROM all{n} GROUP BY e) a
                            JOIN (SELECT e, COUNT(*) AS n FROM best{n} GROUP BY e) c ON c.e = a.e""",
        }
    loads = " ".join(f"+ (SELECT l FROM load{n})" for n in range(depth))
    queries["loss"] = f"SELECT (SELECT SUM(val * val * (1 + s + j)) FROM x{depth}) {loads} AS l"

    def loss(arrays: Mapping[str, Any]) -> Any:
        x, loads = arrays["x"], jnp.zeros(())
        for n in range(depth):
            z = x @ arrays[f"gate{n}"]
            best = jax.lax.top_k(z, CHOSEN)[1]
            p = jax.nn.softmax(jnp.take_along_axis(z, best, 1), axis=1)
            h = jnp.tanh(jnp.einsum("sj,skjh->skh", x, arrays[f"in{n}"][best]))
            x = x + jnp.einsum("sk,skh,skhj->sj", p, h, arrays[f"out{n}"][best])
            count = jax.nn.one_hot(best, EXPERTS).sum((0, 1))
            loads += (count * jax.nn.softmax(z, axis=1).mean(0)).sum()
        return (x * x * (1 + np.arange(SAMPLES)[:, None] + np.arange(WIDTH))).sum() + loads

    return Model(weights, queries, loss)
