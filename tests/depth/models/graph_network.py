"""A graph network: each round sends what nodes have along edges with weights, some of which end where no other does.

Gilmer, J. et al. (2017), Neural message passing for quantum chemistry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from depth.models.model import Model, Weights, normal

NODES, WIDTH = 5, 2
# No edge ends in the last node, and one leads back to where it begins.
FROM = np.array([0, 1, 2, 3, 0, 4, 2, 2])
TO = np.array([1, 2, 3, 0, 2, 1, 2, 0])

_SENT = """SELECT d.target AS n, h.j, SUM(h.val * e.val) AS val
    FROM {h} h JOIN ends d ON d.source = h.n JOIN edge e ON e.k = d.k GROUP BY d.target, h.j"""
_GOT = "SELECT m.n, w.o AS j, SUM(m.val * w.val) AS val FROM {m} m JOIN w ON w.i = m.j GROUP BY m.n, w.o"
_OWN = "SELECT h.n, v.o AS j, SUM(h.val * v.val) AS val FROM {h} h JOIN v ON v.i = h.j GROUP BY h.n, v.o"
_NEXT = """h.n, h.j, h.val + tanh(q.val + coalesce(p.val, 0)) AS val
    FROM {h} h JOIN {q} q ON q.n = h.n AND q.j = h.j LEFT JOIN {p} p ON p.n = h.n AND p.j = h.j"""
_LOSS = "SELECT SUM(r.val * r.val) / COUNT(*) AS l FROM (SELECT j, AVG(val) AS val FROM {h} GROUP BY j) r"


def _model(queries: dict[str, str], rounds: int, *, recursive: bool) -> Model:
    def loss(arrays: Mapping[str, Any]) -> Any:
        h = arrays["x"]
        for _ in range(rounds):
            sent = jnp.zeros((NODES, WIDTH)).at[TO].add(h[FROM] * arrays["edge"][:, None])
            h = h + jnp.tanh(h @ arrays["v"] + sent @ arrays["w"])
        return (h.mean(0) ** 2).mean()

    weights = {
        "x": Weights("nj", normal(90, NODES, WIDTH)),
        "w": Weights("io", normal(91, WIDTH, WIDTH)),
        "v": Weights("io", normal(92, WIDTH, WIDTH)),
        "edge": Weights("k", normal(93, len(FROM))),
    }
    ends = pa.table({"k": np.arange(len(FROM)), "source": FROM, "target": TO})
    return Model(weights, queries, loss, {"ends": ends}, recursive=recursive)


def model(rounds: int) -> Model:
    """Rounds one after the other, all of which read the same weights."""
    queries = {"h0": "SELECT n, j, val FROM x"}
    for n in range(rounds):
        queries |= {
            f"m{n}": _SENT.format(h=f"h{n}"),
            f"p{n}": _GOT.format(m=f"m{n}"),
            f"q{n}": _OWN.format(h=f"h{n}"),
            f"h{n + 1}": f"SELECT {_NEXT.format(h=f'h{n}', q=f'q{n}', p=f'p{n}')}",
        }
    return _model({**queries, "loss": _LOSS.format(h=f"h{rounds}")}, rounds, recursive=False)


def recursive(rounds: int) -> Model:
    """The same as a recursion."""
    queries = {
        "r": f"""SELECT 0 AS step, n, j, val FROM x
            UNION ALL SELECT * FROM (
                WITH h AS (SELECT n, j, val FROM r WHERE step < {rounds}),
                    m AS ({_SENT.format(h="h")}), p AS ({_GOT.format(m="m")}), q AS ({_OWN.format(h="h")}),
                    now AS (SELECT MAX(step) AS step FROM r)
                SELECT now.step + 1, t.* FROM (SELECT {_NEXT.format(h="h", q="q", p="p")}) t CROSS JOIN now) u""",
        "last": f"SELECT n, j, val FROM r WHERE step = {rounds}",
        "loss": _LOSS.format(h="last"),
    }
    return _model(queries, rounds, recursive=True)
