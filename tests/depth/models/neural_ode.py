"""A differential equation whose right side is a network, by the scheme of Runge and Kutta in a recursion.

Chen, R. T. Q. et al. (2018), Neural ordinary differential equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from depth.models.model import Model, Weights, normal

WIDTH, HIDDEN, STEP = 2, 3, 0.25


def _slope(name: str, x: str) -> dict[str, str]:
    return {
        f"a{name}": f"SELECT w.o, SUM(x.val * w.val) AS val FROM {x} x JOIN w1 w ON w.i = x.i GROUP BY w.o",
        f"h{name}": f"SELECT a.o, tanh(a.val + b.val) AS val FROM a{name} a JOIN bias b ON b.o = a.o",
        name: f"SELECT w.o AS i, SUM(h.val * w.val) AS val FROM h{name} h JOIN w2 w ON w.i = h.o GROUP BY w.o",
    }


def _moved(k: str, part: float) -> str:
    return f"SELECT x.i, x.val + {part * STEP} * k.val AS val FROM x JOIN {k} k ON k.i = x.i"


def model(steps: int) -> Model:
    """So many steps, each of which reads the last rows five times."""
    step = {"x": f"SELECT step, i, val FROM path WHERE step < {steps}"}
    step |= {**_slope("k1", "x"), "x2": _moved("k1", 0.5), **_slope("k2", "x2"), "x3": _moved("k2", 0.5)}
    step |= {**_slope("k3", "x3"), "x4": _moved("k3", 1.0), **_slope("k4", "x4")}
    ctes = ", ".join(f"{name} AS ({query})" for name, query in step.items())
    joins = " ".join(f"JOIN k{n} ON k{n}.i = x.i" for n in (1, 2, 3, 4))
    queries = {
        "path": f"""SELECT 0 AS step, i, val FROM start
            UNION ALL SELECT * FROM (WITH {ctes}
                SELECT x.step + 1, x.i, x.val + {STEP / 6} * (k1.val + 2 * k2.val + 2 * k3.val + k4.val)
                FROM x {joins}) q""",
        "loss": "SELECT SUM(power(p.val - y.val, 2)) AS l FROM path p JOIN y ON y.i = p.i AND y.step = p.step",
    }
    wanted = normal(214, steps + 1, WIDTH)

    def loss(arrays: Mapping[str, Any]) -> Any:
        def slope(x: Any) -> Any:
            return jnp.tanh(x @ arrays["w1"] + arrays["bias"]) @ arrays["w2"]

        x = arrays["start"]
        total = ((x - wanted[0]) ** 2).sum()
        for n in range(steps):
            k1 = slope(x)
            k2 = slope(x + STEP / 2 * k1)
            k3 = slope(x + STEP / 2 * k2)
            x = x + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + STEP * k3))
            total += ((x - wanted[n + 1]) ** 2).sum()
        return total

    weights = {
        "start": Weights("i", normal(210, WIDTH)),
        "w1": Weights("io", normal(211, WIDTH, HIDDEN)),
        "bias": Weights("o", normal(212, HIDDEN)),
        "w2": Weights("io", normal(213, HIDDEN, WIDTH)),
    }
    return Model(weights, queries, loss, {"y": Weights(("step", "i"), wanted).table()}, recursive=True)
