"""Long short-term memory, unrolled and as a recursion.

Hochreiter, S. and Schmidhuber, J. (1997), with the gate that forgets of Gers, F. A. et al. (2000).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from depth.models.model import Model, Weights, normal

SAMPLES, INPUTS, UNITS = 2, 2, 3
GATES = ("cell", "forget", "inp", "outp")
_SUMS = ", ".join(f"SUM(val) FILTER (WHERE gate = '{gate}') AS {gate}" for gate in GATES)
_CELL = "c.c / (1 + exp(-g.forget)) + tanh(g.cell) / (1 + exp(-g.inp))"


def _weights(times: int) -> dict[str, Weights]:
    gates = {"gate": GATES}
    return {
        "x": Weights("sti", normal(10, SAMPLES, times, INPUTS)),
        "w": Weights(("gate", "i", "o"), normal(11, len(GATES), INPUTS, UNITS), gates),
        "u": Weights(("gate", "i", "o"), normal(12, len(GATES), UNITS, UNITS), gates),
        "b": Weights(("gate", "o"), normal(13, len(GATES), UNITS), gates),
        "start": Weights("so", normal(14, SAMPLES, UNITS)),
        "y": Weights("sto", normal(15, SAMPLES, times, UNITS)),
    }


def _loss(times: int) -> Any:
    def loss(arrays: Mapping[str, Any]) -> Any:
        h, c, total = arrays["start"], 2 * arrays["start"], 0.0
        for t in range(times):
            z = jnp.einsum("si,gio->gso", arrays["x"][:, t], arrays["w"]) + jnp.einsum("si,gio->gso", h, arrays["u"])
            cell, forget, inp, outp = z + arrays["b"][:, None]
            c = jax.nn.sigmoid(forget) * c + jax.nn.sigmoid(inp) * jnp.tanh(cell)
            h = jax.nn.sigmoid(outp) * jnp.tanh(c)
            total += ((h - arrays["y"][:, t]) ** 2).sum()
        return total

    return loss


def unrolled(times: int) -> Model:
    """CTEs for each time."""
    queries = {"h0": "SELECT s, o, val AS h, 2 * val AS c FROM start"}
    for t in range(times):
        queries |= {
            f"z{t}": f"""SELECT x.s, w.gate, w.o, SUM(x.val * w.val) AS val FROM x JOIN w ON w.i = x.i
                         WHERE x.t = {t} GROUP BY x.s, w.gate, w.o
                         UNION ALL
                         SELECT h.s, u.gate, u.o, SUM(h.h * u.val) FROM h{t} h JOIN u ON u.i = h.o
                         GROUP BY h.s, u.gate, u.o
                         UNION ALL
                         SELECT h.s, b.gate, b.o, b.val FROM h{t} h JOIN b ON b.o = h.o""",
            f"g{t}": f"SELECT s, o, {_SUMS} FROM z{t} GROUP BY s, o",
            f"c{t}": f"SELECT g.s, g.o, g.outp, {_CELL} AS c FROM g{t} g JOIN h{t} c ON c.s = g.s AND c.o = g.o",
            f"h{t + 1}": f"SELECT s, o, tanh(c) / (1 + exp(-outp)) AS h, c FROM c{t}",
        }
    each = " UNION ALL ".join(f"SELECT {t} AS t, s, o, h FROM h{t + 1}" for t in range(times))
    queries |= {
        "shown": each,
        "loss": """SELECT SUM(power(h.h - y.val, 2)) AS l
                   FROM shown h JOIN y ON y.s = h.s AND y.o = h.o AND y.t = h.t""",
    }
    return Model(_weights(times), queries, _loss(times))


def recursive(times: int) -> Model:
    """A row for each time, sample and unit; a step reads the last rows three times."""
    queries = {
        "h": f"""SELECT 0 AS t, s, o, val AS h, 2 * val AS c FROM start
            UNION ALL SELECT * FROM (
                WITH now AS (SELECT t, s, o, h, c FROM h WHERE t < {times}),
                    z AS (SELECT x.t, x.s, w.gate, w.o, x.val * w.val AS val FROM x JOIN w ON w.i = x.i
                            JOIN (SELECT DISTINCT t, s FROM now) n ON n.t = x.t AND n.s = x.s
                        UNION ALL SELECT now.t, now.s, u.gate, u.o, now.h * u.val FROM now JOIN u ON u.i = now.o
                        UNION ALL SELECT now.t, now.s, b.gate, b.o, b.val FROM now JOIN b ON b.o = now.o),
                    g AS (SELECT t, s, o, {_SUMS} FROM z GROUP BY t, s, o),
                    cells AS (SELECT g.t, g.s, g.o, g.outp, {_CELL} AS c
                        FROM g JOIN now c ON c.s = g.s AND c.o = g.o)
                SELECT t + 1, s, o, tanh(c) / (1 + exp(-outp)), c FROM cells) q""",
        "loss": """SELECT SUM(power(h.h - y.val, 2)) AS l
                   FROM h JOIN y ON y.s = h.s AND y.o = h.o AND y.t = h.t - 1""",
    }
    return Model(_weights(times), queries, _loss(times), recursive=True)
