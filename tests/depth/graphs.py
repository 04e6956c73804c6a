"""Random graphs of CTEs, each of which reads earlier ones, and the same in JAX."""

import random
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

ROWS = 4

# What a node computes of the nodes a and b, as a query of (i, val) and in JAX; `w` has the rows of the variable.
NODES: dict[str, tuple[str, Any]] = {
    "product": ("SELECT a.i, a.val * b.val AS val FROM {a} a JOIN {b} b ON a.i = b.i", lambda a, b, m: a * b),
    "mean": ("SELECT a.i, (a.val + b.val) / 2 AS val FROM {a} a JOIN {b} b ON a.i = b.i", lambda a, b, m: (a + b) / 2),
    "tanh": ("SELECT i, tanh(val) AS val FROM {a}", lambda a, b, m: jnp.tanh(a)),
    "dense": (
        "SELECT m.i, SUM(m.val * a.val) AS val FROM m JOIN {a} a ON m.j = a.i GROUP BY m.i",
        lambda a, b, m: m @ a,
    ),
    "centred": (
        "SELECT a.i, a.val - t.t AS val FROM {a} a CROSS JOIN (SELECT AVG(val) AS t FROM {a}) t",
        lambda a, b, m: a - a.mean(),
    ),
    "softmax": (
        "SELECT a.i, exp(a.val) / t.t AS val FROM {a} a CROSS JOIN (SELECT SUM(exp(val)) AS t FROM {a}) t",
        lambda a, b, m: jax.nn.softmax(a),
    ),
    "running": ("SELECT i, SUM(val) OVER (ORDER BY i) / 2 AS val FROM {a}", lambda a, b, m: jnp.cumsum(a) / 2),
    "union": (
        "SELECT i, AVG(val) AS val FROM (SELECT i, val FROM {a} UNION ALL SELECT i, val FROM {b}) GROUP BY i",
        lambda a, b, m: (a + b) / 2,
    ),
    "scaled": (
        "SELECT i, val / (1 + (SELECT SUM(val * val) FROM {b})) AS val FROM {a}",
        lambda a, b, m: a / (1 + (b * b).sum()),
    ),
}


@dataclass(frozen=True)
class Node:
    """A node by its kind and the numbers of those that it reads; number 0 is the variable."""

    kind: str
    a: int
    b: int


def graph(size: int, seed: int) -> list[Node]:
    """A graph of so many nodes, each of which reads two of the three before it."""
    draw = random.Random(seed)
    kinds = list(NODES)
    return [
        Node(draw.choice(kinds), draw.randint(max(0, n - 2), n), draw.randint(max(0, n - 2), n)) for n in range(size)
    ]


def queries(nodes: list[Node]) -> dict[str, str]:
    """The CTEs in their order; the last one is the loss."""
    name = ["w", *(f"c{n}" for n in range(1, len(nodes) + 1))]
    found = {
        name[n]: NODES[node.kind][0].format(a=name[node.a], b=name[node.b]) for n, node in enumerate(nodes, start=1)
    }
    return found | {"loss": f"SELECT SUM(val * val) AS l FROM {name[-1]}"}


def loss(nodes: list[Node], w: Any, m: Any) -> Any:
    """The same in JAX."""
    values = [w]
    for node in nodes:
        values.append(NODES[node.kind][1](values[node.a], values[node.b], m))
    return (values[-1] ** 2).sum()
