"""A matrix of ratings with missing cells, from vectors and biases of users and items; an item has no rating at all.

Koren, Y. et al. (2009), Matrix factorization techniques for recommender systems.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from depth.models.model import Model, Weights, normal

USERS, ITEMS, WIDTH = 3, 4, 2
# Missing as NULL, or as no row.
NULLS, ABSENT = [(0, 1), (2, 0)], [(1, 2), (0, 3), (1, 3), (2, 3)]


def model(rounds: int) -> Model:
    """Items have what their neighbours in the list have too, smoothed so many times."""
    ratings = 2 * normal(220, USERS, ITEMS)
    queries = {"v0": "SELECT i, j, val FROM items"}
    for n in range(rounds):
        queries[f"v{n + 1}"] = f"""SELECT i, j, 0.8 * val + 0.2 * coalesce(
            lag(val) OVER (PARTITION BY j ORDER BY i), 0.0) AS val FROM v{n}"""
    queries |= {
        "products": f"""SELECT u.u, v.i, SUM(u.val * v.val) AS val
                        FROM users u JOIN v{rounds} v ON v.j = u.j GROUP BY u.u, v.i""",
        "predicted": """SELECT p.u, p.i, p.val + a.val + b.val + (SELECT AVG(val) FROM ratings) AS val
                        FROM products p JOIN user_bias a ON a.u = p.u JOIN item_bias b ON b.i = p.i""",
        "errors": """SELECT p.u, p.i, p.val - r.val AS val
                     FROM predicted p LEFT JOIN ratings r ON r.u = p.u AND r.i = p.i""",
        # The mean over each user's ratings, then over users: NULL is in neither.
        "by_user": "SELECT u, AVG(val * val) AS val FROM errors GROUP BY u",
        "size": "SELECT SUM(val * val) AS val FROM (SELECT val FROM users UNION ALL SELECT val FROM items) t",
        "loss": "SELECT AVG(b.val) + 0.1 * (SELECT val FROM size) AS l FROM by_user b",
    }
    there = np.ones((USERS, ITEMS), dtype=bool)
    for cell in (*NULLS, *ABSENT):
        there[cell] = False

    def loss(arrays: Mapping[str, Any]) -> Any:
        v = arrays["items"]
        for _ in range(rounds):
            v = 0.8 * v + 0.2 * jnp.concatenate([jnp.zeros((1, WIDTH)), v[:-1]])
        predicted = arrays["users"] @ v.T + arrays["user_bias"][:, None] + arrays["item_bias"]
        errors = jnp.where(there, predicted + ratings[there].mean() - ratings, 0)
        size = (arrays["users"] ** 2).sum() + (arrays["items"] ** 2).sum()
        return ((errors**2).sum(1) / there.sum(1)).mean() + 0.1 * size

    rows = [(u, i, None if (u, i) in NULLS else ratings[u, i]) for u, i in np.ndindex(USERS, ITEMS)]
    listed = [dict(zip(("u", "i", "val"), row, strict=True)) for row in rows if row[:2] not in ABSENT]
    weights = {
        "users": Weights("uj", normal(221, USERS, WIDTH)),
        "items": Weights("ij", normal(222, ITEMS, WIDTH)),
        "user_bias": Weights("u", normal(223, USERS)),
        "item_bias": Weights("i", normal(224, ITEMS)),
    }
    data = {"ratings": pa.Table.from_pylist(listed)}
    return Model(weights, queries, loss, data)
