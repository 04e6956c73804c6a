"""A filter and a smoother of a level with a trend, two recursions, by the parameters and by what is observed.

Kalman, R. E. (1960), A new approach to linear filtering and prediction problems; Rauch, H. E. et al. (1965), Maximum
likelihood estimates of linear dynamic systems. A time has no observation: its value is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from depth.models.model import Model, Weights, normal

# The logarithms of variances, and how much of the trend stays.
NAMES = ("damping", "level", "noise", "trend")
MISSING = 1

# The rows of the filter: mean and covariance before and after what is observed, and the logarithm of the likelihood.
_FILTER = """SELECT 0 AS t, p.a, p.b, CAST(1 AS DOUBLE) AS paa, CAST(0 AS DOUBLE) AS pab, CAST(1 AS DOUBLE) AS pbb,
        p.a AS ma, p.b AS mb, CAST(1 AS DOUBLE) AS qaa, CAST(0 AS DOUBLE) AS qab, CAST(1 AS DOUBLE) AS qbb,
        CAST(0 AS DOUBLE) AS score
    FROM (SELECT SUM(val) FILTER (WHERE j = 0) AS a, SUM(val) FILTER (WHERE j = 1) AS b FROM start) p
    UNION ALL SELECT * FROM (
        WITH moved AS (
                SELECT f.t + 1 AS t, f.a + f.b AS a, p.damping * f.b AS b,
                    f.paa + 2 * f.pab + f.pbb + exp(p.level) AS paa, p.damping * (f.pab + f.pbb) AS pab,
                    p.damping * p.damping * f.pbb + exp(p.trend) AS pbb, exp(p.noise) AS noise
                FROM filter f CROSS JOIN parameters p WHERE f.t < {times}),
            seen AS (
                SELECT m.*, y.val IS NOT NULL AS is_seen, coalesce(y.val - m.a, 0) AS error, m.paa + m.noise AS spread
                FROM moved m JOIN y ON y.t = m.t),
            gained AS (
                SELECT s.*, CASE WHEN is_seen THEN paa / spread ELSE 0 END AS ka,
                    CASE WHEN is_seen THEN pab / spread ELSE 0 END AS kb FROM seen s)
        SELECT t, a + ka * error, b + kb * error, paa - ka * paa, pab - ka * pab, pbb - kb * pab, a, b, paa, pab, pbb,
            CASE WHEN is_seen THEN -(ln(spread) + error * error / spread) / 2 ELSE 0 END
        FROM gained) q"""
# Goes back: the mean of the state of a time, given all observations.
_SMOOTHER = """SELECT t, a, b FROM filter WHERE t = {times}
    UNION ALL SELECT * FROM (
        WITH both AS (
                SELECT f.t, f.a, f.b, s.a - n.ma AS da, s.b - n.mb AS db, n.qaa * n.qbb - n.qab * n.qab AS det,
                    f.paa + f.pab AS caa, p.damping * f.pab AS cab, f.pab + f.pbb AS cba, p.damping * f.pbb AS cbb,
                    n.qaa, n.qab, n.qbb
                FROM smoother s JOIN filter f ON f.t = s.t - 1 JOIN filter n ON n.t = s.t CROSS JOIN parameters p),
            solved AS (SELECT b.*, (qbb * da - qab * db) / det AS ua, (qaa * db - qab * da) / det AS ub FROM both b)
        SELECT t, a + caa * ua + cab * ub, b + cba * ua + cbb * ub FROM solved) q"""


def model(times: int) -> Model:
    """A series of so many times."""
    named = ", ".join(f"SUM(val) FILTER (WHERE name = '{name}') AS {name}" for name in NAMES)
    queries = {
        "y": f"SELECT t + 1 AS t, CASE WHEN t <> {MISSING} THEN val END AS val FROM observed",
        "parameters": f"SELECT {named} FROM parameter",
        "filter": _FILTER.format(times=times),
        "smoother": _SMOOTHER.format(times=times),
        "loss": """SELECT (SELECT -SUM(score) FROM filter)
            + (SELECT SUM(power(s.a - w.val, 2) + s.b * s.b) FROM smoother s JOIN wanted w ON w.t = s.t) AS l""",
    }
    seen = [t for t in range(times) if t != MISSING]
    wanted, observed = normal(142, times + 1), normal(141, times)

    def loss(arrays: Mapping[str, Any]) -> Any:
        damping, level, noise, trend = arrays["parameter"]
        forward = jnp.array([[1.0, 1.0], [0.0, 1.0]]) * jnp.array([1.0, damping])[:, None]
        added = jnp.diag(jnp.exp(jnp.array([level, trend])))
        m, p, total = arrays["start"], jnp.eye(2), 0.0
        rows = [(m, p, m, p)]
        for t in range(times):
            before, q = forward @ m, forward @ p @ forward.T + added
            m, p = before, q
            if t in seen:
                spread, error = q[0, 0] + jnp.exp(noise), arrays["observed"][t] - before[0]
                gain = q[:, 0] / spread
                m, p = before + gain * error, q - jnp.outer(gain, q[0])
                total += (jnp.log(spread) + error**2 / spread) / 2
            rows.append((m, p, before, q))
        s = rows[-1][0]
        total += (s[0] - wanted[times]) ** 2 + s[1] ** 2
        for t in reversed(range(times)):
            (m, p, *_), (_, _, before, q) = rows[t], rows[t + 1]
            s = m + p @ forward.T @ jnp.linalg.solve(q, s - before)
            total += (s[0] - wanted[t]) ** 2 + s[1] ** 2
        return total

    return Model(
        weights={
            "parameter": Weights(("name",), np.array([0.9, -1.0, -0.5, -1.5]), {"name": NAMES}),
            "start": Weights("j", normal(140, 2)),
            "observed": Weights("t", observed),
        },
        queries=queries,
        loss=loss,
        data={"wanted": pa.table({"t": np.arange(times + 1), "val": wanted})},
        recursive=True,
    )
