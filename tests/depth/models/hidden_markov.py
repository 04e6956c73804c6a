"""The forward algorithm of a hidden Markov model in logarithms: a log-sum-exp in each step of a recursion.

Rabiner, L. R. (1989), A tutorial on hidden Markov models and selected applications in speech recognition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pyarrow as pa

from depth.models.model import Model, Weights, normal

STATES, KINDS = 3, 4


def _normalised(table: str, key: str, others: str) -> str:
    return f"""SELECT w.{key}, {others}, w.val - t.val AS val FROM {table} w
        JOIN (SELECT {key}, ln(SUM(exp(val))) AS val FROM {table} GROUP BY {key}) t ON t.{key} = w.{key}"""


def model(times: int) -> Model:
    """What is seen at so many times."""
    seen = np.random.default_rng(200).integers(0, KINDS, times)
    queries = {
        "first": "SELECT i, val - ln(SUM(exp(val)) OVER ()) AS val FROM start",
        "moves": _normalised("move", "i", "w.j"),
        "shows": f"SELECT s.t, e.i, e.val FROM ({_normalised('emission', 'i', 'w.o')}) e JOIN seen s ON s.o = e.o",
        "alpha": f"""SELECT 0 AS t, f.i, f.val + e.val AS val FROM first f JOIN shows e ON e.i = f.i WHERE e.t = 0
            UNION ALL SELECT * FROM (
                WITH paths AS (SELECT a.t + 1 AS t, m.j AS i, a.val + m.val AS val
                        FROM alpha a JOIN moves m ON m.i = a.i WHERE a.t < {times - 1}),
                    most AS (SELECT i, MAX(val) AS m FROM paths GROUP BY i),
                    sums AS (SELECT p.t, p.i, most.m + ln(SUM(exp(p.val - most.m))) AS val
                        FROM paths p JOIN most ON most.i = p.i GROUP BY p.t, p.i, most.m)
                SELECT s.t, s.i, s.val + e.val FROM sums s JOIN shows e ON e.i = s.i AND e.t = s.t) q""",
        "loss": f"""SELECT -(MAX(m) + ln(SUM(exp(a.val - m)))) AS l
            FROM alpha a CROSS JOIN (SELECT MAX(val) AS m FROM alpha WHERE t = {times - 1}) most
            WHERE a.t = {times - 1}""",
    }

    def loss(arrays: Mapping[str, Any]) -> Any:
        move, emission = (jax.nn.log_softmax(arrays[name], axis=1) for name in ("move", "emission"))
        alpha = jax.nn.log_softmax(arrays["start"]) + emission[:, seen[0]]
        for o in seen[1:]:
            alpha = jax.nn.logsumexp(alpha[:, None] + move, axis=0) + emission[:, o]
        return -jax.nn.logsumexp(alpha)

    weights = {
        "start": Weights("i", normal(201, STATES)),
        "move": Weights("ij", normal(202, STATES, STATES)),
        "emission": Weights("io", normal(203, STATES, KINDS)),
    }
    data = {"seen": pa.table({"t": np.arange(times), "o": seen})}
    return Model(weights, queries, loss, data, recursive=True)
