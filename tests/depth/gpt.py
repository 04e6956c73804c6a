"""A GPT as CTEs and in JAX: normalise, attend, add, normalise, two dense layers, add."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

WIDTH, HIDDEN, TOKENS = 4, 6, 3


def weights(layers: int) -> dict[str, Any]:
    """The tokens and the weights, by their tables."""
    draw = np.random.default_rng(layers).standard_normal
    shapes: dict[str, tuple[int, ...]] = {"x0": (TOKENS, WIDTH)}
    for layer in range(layers):
        shapes |= {f"{name}_{layer}": (WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")}
        shapes |= {f"w1_{layer}": (WIDTH, HIDDEN), f"w2_{layer}": (HIDDEN, WIDTH), f"g_{layer}": (WIDTH,)}
    return {name: 0.4 * draw(shape) for name, shape in shapes.items()}


def tables(arrays: Mapping[str, Any]) -> dict[str, pa.Table]:
    """A row for each number: its place, and itself."""
    found = {}
    for name, array in arrays.items():
        places = dict(zip("ij" if array.ndim > 1 else "j", np.indices(array.shape), strict=True))
        found[name] = pa.table({**{key: place.ravel() for key, place in places.items()}, "val": array.ravel()})
    return found


def _product(left: str, right: str) -> str:
    return f"SELECT a.i, b.j, SUM(a.val * b.val) AS val FROM {left} a JOIN {right} b ON a.j = b.i GROUP BY a.i, b.j"


def _sum(left: str, right: str) -> str:
    return f"SELECT a.i, a.j, a.val + b.val AS val FROM {left} a JOIN {right} b ON a.i = b.i AND a.j = b.j"


def _normalised(x: str, layer: int, to: str) -> dict[str, str]:
    return {
        f"m{to}": f"SELECT i, AVG(val) AS m FROM {x} GROUP BY i",
        f"c{to}": f"SELECT a.i, a.j, a.val - b.m AS val FROM {x} a JOIN m{to} b ON a.i = b.i",
        f"v{to}": f"SELECT i, AVG(val * val) AS v FROM c{to} GROUP BY i",
        to: f"""SELECT a.i, a.j, a.val / sqrt(b.v + 0.001) * g.val AS val
                FROM c{to} a JOIN v{to} b ON a.i = b.i JOIN g_{layer} g ON a.j = g.j""",
    }


def queries(layers: int) -> dict[str, str]:
    """The CTEs of the model in their order; the last one is the loss."""
    found: dict[str, str] = {}
    for n in range(layers):
        found |= _normalised(f"x{n}", n, f"n{n}")
        found |= {f"{name}{n}": _product(f"n{n}", f"w{name}_{n}") for name in "qkv"}
        found |= {
            f"s{n}": f"""SELECT q.i, k.i AS j, SUM(q.val * k.val) / sqrt({WIDTH}.0) AS val
                         FROM q{n} q JOIN k{n} k ON q.j = k.j WHERE k.i <= q.i GROUP BY q.i, k.i""",
            f"top{n}": f"SELECT i, MAX(val) AS m FROM s{n} GROUP BY i",
            f"e{n}": f"SELECT s.i, s.j, exp(s.val - m.m) AS val FROM s{n} s JOIN top{n} m ON s.i = m.i",
            f"t{n}": f"SELECT i, SUM(val) AS t FROM e{n} GROUP BY i",
            f"p{n}": f"SELECT e.i, e.j, e.val / t.t AS val FROM e{n} e JOIN t{n} t ON e.i = t.i",
            f"a{n}": _product(f"p{n}", f"v{n}"),
            f"o{n}": _product(f"a{n}", f"wo_{n}"),
            f"r{n}": _sum(f"x{n}", f"o{n}"),
        }
        found |= _normalised(f"r{n}", n, f"l{n}")
        found |= {
            f"h{n}": _product(f"l{n}", f"w1_{n}"),
            f"u{n}": f"SELECT i, j, val / (1 + exp(-val)) AS val FROM h{n}",
            f"f{n}": _product(f"u{n}", f"w2_{n}"),
            f"x{n + 1}": _sum(f"r{n}", f"f{n}"),
        }
    return found | {"loss": f"SELECT SUM(val * val * (1 + i + 0.1 * j)) AS l FROM x{layers}"}


def statement(layers: int, select: str) -> str:
    """The model as CTEs, and what is selected of it."""
    return f"WITH {', '.join(f'{name} AS ({query})' for name, query in queries(layers).items())} {select}"


def loss(arrays: Mapping[str, Any], layers: int) -> Any:
    """The same in JAX."""

    def normalised(x: Any, n: int) -> Any:
        centred = x - x.mean(1, keepdims=True)
        return centred / jnp.sqrt((centred * centred).mean(1, keepdims=True) + 0.001) * arrays[f"g_{n}"]

    x, place = arrays["x0"], np.arange(TOKENS)
    for n in range(layers):
        q, k, v = (normalised(x, n) @ arrays[f"w{name}_{n}"] for name in "qkv")
        scores = jnp.where(place[None, :] <= place[:, None], q @ k.T / WIDTH**0.5, -jnp.inf)
        x = x + jax.nn.softmax(scores, axis=1) @ v @ arrays[f"wo_{n}"]
        h = normalised(x, n) @ arrays[f"w1_{n}"]
        x = x + (h / (1 + jnp.exp(-h))) @ arrays[f"w2_{n}"]
    return (x * x * (1 + place[:, None] + 0.1 * np.arange(WIDTH)[None, :])).sum()
