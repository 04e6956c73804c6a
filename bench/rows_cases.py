"""The cases of `rows.py`: models as SQL over tables of numbers, each also as SQL steps, in JAX and in NumPy.

A table has a row for each number, under its indices. A model is a chain of CTEs that ends in `loss`, one row with the
column `l`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any
Arrays = Mapping[str, Array]
Table = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model and the table by whose rows it is differentiated."""

    name: str
    arrays: dict[str, np.ndarray]
    """Data and parameters, dense."""
    tables: dict[str, Table]
    model: str
    variable: str
    """The table by whose `val` is differentiated."""
    keys: tuple[str, ...]
    """Its other columns."""
    parameters: tuple[str, ...]
    """The arrays that it holds, in the order of its keys."""
    by_hand: dict[str, str]
    """The backward pass: tables, each with its query. The last is the gradient, `value` has the value."""
    loss: Callable[[Any, Arrays], Array]
    """The value by NumPy or JAX, whichever module is given, of the arrays."""
    backward: Callable[[Arrays], tuple[Array, list[Array]]]
    """The value and the gradients by the parameters, in NumPy."""
    steps: int = 0
    """For how many steps it is trained."""
    rate: float = field(default=0.0)

    def value(self) -> str:
        """The statement of the value."""
        return f"WITH {self.model} SELECT l FROM loss"

    def gradient(self, loss: str, *, value: bool) -> str:
        """The statement of the gradient, with the value beside it if wanted; `loss` is what `grad` calls it."""
        wanted = ", (SELECT l FROM loss) AS l" if value else ""
        keys = ", ".join(self.keys)
        return f"WITH {self.model} SELECT {keys}, grad({loss}, val) AS d{wanted} FROM {self.variable}"

    def update(self, loss: str) -> str:
        """The statement of one step of training."""
        keys = ", ".join(self.keys)
        return f"WITH {self.model} SELECT {keys}, val - {self.rate} * grad({loss}, val) AS val FROM {self.variable}"

    def training(self) -> str:
        """All steps of training as one statement."""
        keys = ", ".join(self.keys)
        model = self.model.replace(f"JOIN {self.variable} ", "JOIN state ").replace(
            f"FROM {self.variable} ", "FROM state "
        )
        return f"""WITH RECURSIVE state AS (
            SELECT 0 AS step, {keys}, val FROM {self.variable}
            UNION ALL
            SELECT * FROM (WITH {model}
                SELECT step + 1, {keys}, val - {self.rate} * grad((SELECT l FROM loss), val)
                FROM state WHERE step < {self.steps}) s)
            SELECT {keys}, val FROM state WHERE step = {self.steps}"""


def rows(array: np.ndarray, *names: str, **constants: int) -> Table:
    """An array as a table."""
    indices = np.indices(array.shape).reshape(array.ndim, -1)
    table = {name: np.full(array.size, value) for name, value in constants.items()}
    return {**table, **dict(zip(names, indices, strict=True)), "val": array.ravel()}


def stacked(*tables: Table) -> Table:
    """Tables one below the other."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def parts(*arrays: np.ndarray) -> Table:
    """Matrices as one table of parameters."""
    return stacked(*(rows(array, "inp", "out", part=number) for number, array in enumerate(arrays)))


def layer(source: str, part: int, result: str = "out") -> str:
    """The product of the rows of a relation and a matrix of the parameters."""
    return f"""SELECT a.item, w.out AS {result}, SUM(a.val * w.val) AS val
        FROM {source} a JOIN params w ON a.inp = w.inp WHERE w.part = {part} GROUP BY a.item, w.out"""


def by_weights(source: str, cotangent: str, part: int) -> str:
    """The gradient of such a product by the matrix."""
    return f"""SELECT {part} AS part, a.inp, d.out, SUM(a.val * d.val) AS val
        FROM {source} a JOIN {cotangent} d ON a.item = d.item GROUP BY a.inp, d.out"""


def by_source(cotangent: str, part: int) -> str:
    """The gradient of such a product by the rows."""
    return f"""SELECT d.item, w.inp, SUM(d.val * w.val) AS val
        FROM {cotangent} d JOIN params w ON d.out = w.out WHERE w.part = {part} GROUP BY d.item, w.inp"""


def product(variable: str, samples: int = 50_000, inner: int = 16, outputs: int = 8) -> Case:
    """The sum of squares of a matrix product."""
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(samples, inner)), rng.normal(size=(inner, outputs))
    gradients = {
        "x": "SELECT c.i, w.k, SUM(2 * c.val * w.val) AS val FROM c JOIN w ON c.j = w.j GROUP BY c.i, w.k",
        "w": "SELECT x.k, c.j, SUM(2 * c.val * x.val) AS val FROM x JOIN c ON x.i = c.i GROUP BY x.k, c.j",
    }
    c = "SELECT x.i, w.j, SUM(x.val * w.val) AS val FROM x JOIN w ON x.k = w.k GROUP BY x.i, w.j"

    def backward(at: Arrays) -> tuple[Array, list[Array]]:
        c = at["x"] @ at["w"]
        return (c * c).sum(), [2 * c @ at["w"].T if variable == "x" else at["x"].T @ (2 * c)]

    return Case(
        f"matrix product, by {variable}",
        {"x": x, "w": w},
        {"x": rows(x, "i", "k"), "w": rows(w, "k", "j")},
        f"c AS ({c}), loss AS (SELECT SUM(val * val) AS l FROM c)",
        variable,
        ("i", "k") if variable == "x" else ("k", "j"),
        (variable,),
        {"c": c, "value": "SELECT SUM(val * val) AS l FROM c", "gradient": gradients[variable]},
        lambda np, at: ((at["x"] @ at["w"]) ** 2).sum(),
        backward,
    )


def network(samples: int = 1797, pixels: int = 64, hidden: int = 32, classes: int = 10, steps: int = 0) -> Case:
    """A network with one hidden layer and softmax cross-entropy."""
    rng = np.random.default_rng(2)
    x = rng.uniform(size=(samples, pixels))
    label = rng.integers(0, classes, samples)
    w0, w1 = rng.normal(size=(pixels, hidden)) / np.sqrt(pixels), rng.normal(size=(hidden, classes)) / np.sqrt(hidden)
    y = np.eye(classes)[label]
    shifted = "SELECT item, out, val - MAX(val) OVER (PARTITION BY item) AS val FROM z"
    value = """SELECT AVG(total - picked) AS l FROM (
        SELECT s.item, ln(SUM(exp(s.val))) AS total, SUM(s.val * y.val) AS picked
        FROM s JOIN y ON s.item = y.item AND s.out = y.out GROUP BY s.item) q"""
    h = f"SELECT item, out AS inp, tanh(val) AS val FROM ({layer('x', 0)}) q"

    def loss(np: Any, at: Arrays) -> Array:
        z = np.tanh(at["x"] @ at["w0"]) @ at["w1"]
        s = z - z.max(axis=1, keepdims=True)
        return (np.log(np.exp(s).sum(axis=1)) - (s * at["y"]).sum(axis=1)).mean()

    def backward(at: Arrays) -> tuple[Array, list[Array]]:
        h = np.tanh(at["x"] @ at["w0"])
        z = h @ at["w1"]
        s = z - z.max(axis=1, keepdims=True)
        e = np.exp(s)
        total = e.sum(axis=1, keepdims=True)
        dz = (e / total - at["y"]) / len(z)
        da = dz @ at["w1"].T * (1 - h * h)
        value = (np.log(total[:, 0]) - (s * at["y"]).sum(axis=1)).mean()
        return value, [at["x"].T @ da, h.T @ dz]

    return Case(
        f"network {samples:,} x {pixels} - {hidden} - {classes}",
        {"x": x, "y": y, "w0": w0, "w1": w1},
        {"x": rows(x, "item", "inp"), "y": rows(y, "item", "out"), "params": parts(w0, w1)},
        f"h AS ({h}), z AS ({layer('h', 1)}), s AS ({shifted}), loss AS ({value})",
        "params",
        ("part", "inp", "out"),
        ("w0", "w1"),
        {
            "h": h,
            "z": layer("h", 1),
            "s": shifted,
            "value": value,
            "dz": f"""SELECT s.item, s.out,
                (exp(s.val) / SUM(exp(s.val)) OVER (PARTITION BY s.item) - y.val) / {samples} AS val
                FROM s JOIN y ON s.item = y.item AND s.out = y.out""",
            "da": f"""SELECT h.item, h.inp AS out, d.val * (1 - h.val * h.val) AS val
                FROM h JOIN ({by_source("dz", 1)}) d ON h.item = d.item AND h.inp = d.inp""",
            "gradient": f"{by_weights('x', 'da', 0)} UNION ALL {by_weights('h', 'dz', 1)}",
        },
        loss,
        backward,
        steps,
        0.5,
    )


SCORES = """SELECT q.item AS t, k.item AS u, SUM(q.val * k.val) / {root} AS val
    FROM q JOIN k ON q.dim = k.dim WHERE k.item <= q.item GROUP BY q.item, k.item"""
SOFTMAX = """SELECT {keys}, e / SUM(e) OVER (PARTITION BY {by}) AS val
    FROM (SELECT {keys}, exp(val - MAX(val) OVER (PARTITION BY {by})) AS e FROM s) q"""


def softmax(np: Any, scores: Array) -> Array:
    """The softmax along the last axis."""
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(tokens: int = 256, dims: int = 16) -> Case:
    """Attention with a causal mask."""
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, tokens, dims))
    w = dict(zip(["wq", "wk", "wv"], rng.normal(size=(3, dims, dims)) / np.sqrt(dims), strict=True))
    root = float(np.sqrt(dims))
    projections = {name: layer("x", part, "dim") for part, name in enumerate("qkv")}
    s, p = SCORES.format(root=root), SOFTMAX.format(keys="t, u", by="t")
    o = "SELECT p.t AS item, v.dim, SUM(p.val * v.val) AS val FROM p JOIN v ON p.u = v.item GROUP BY p.t, v.dim"
    value = "SELECT AVG(power(o.val - y.val, 2)) AS l FROM o JOIN y ON o.item = y.item AND o.dim = y.dim"
    forward = {**projections, "s": s, "p": p, "o": o}

    def loss(np: Any, at: Arrays) -> Array:
        q, k, v = (at["x"] @ at[name] for name in w)
        mask = np.tril(np.ones((tokens, tokens), dtype=bool))
        p = softmax(np, np.where(mask, q @ k.T / root, -np.inf))
        return ((p @ v - at["y"]) ** 2).mean()

    def backward(at: Arrays) -> tuple[Array, list[Array]]:
        q, k, v = (at["x"] @ at[name] for name in w)
        mask = np.tril(np.ones((tokens, tokens), dtype=bool))
        p = softmax(np, np.where(mask, q @ k.T / root, -np.inf))
        error = p @ v - at["y"]
        do = 2 * error / error.size
        dp = do @ v.T
        ds = p * (dp - (p * dp).sum(axis=1, keepdims=True)) / root
        return (error**2).mean(), [at["x"].T @ d for d in (ds @ k, ds.T @ q, p.T @ do)]

    return Case(
        f"attention, {tokens} tokens",
        {"x": x, "y": y, **w},
        {"x": rows(x, "item", "inp"), "y": rows(y, "item", "dim"), "params": parts(*w.values())},
        ", ".join(f"{name} AS ({sql})" for name, sql in {**forward, "loss": value}.items()),
        "params",
        ("part", "inp", "out"),
        tuple(w),
        {
            **forward,
            "value": value,
            "do_": f"""SELECT o.item, o.dim, 2 * (o.val - y.val) / {x.size} AS val
                FROM o JOIN y ON o.item = y.item AND o.dim = y.dim""",
            "dv": """SELECT p.u AS item, d.dim AS out, SUM(p.val * d.val) AS val
                FROM p JOIN do_ d ON p.t = d.item GROUP BY p.u, d.dim""",
            "ds": f"""SELECT t, u, p * (dp - SUM(p * dp) OVER (PARTITION BY t)) / {root} AS val FROM (
                SELECT p.t, p.u, p.val AS p, d.val AS dp FROM p JOIN (
                    SELECT d.item AS t, v.item AS u, SUM(d.val * v.val) AS val
                    FROM do_ d JOIN v ON d.dim = v.dim WHERE v.item <= d.item GROUP BY d.item, v.item
                ) d ON p.t = d.t AND p.u = d.u) q""",
            "dq": """SELECT d.t AS item, k.dim AS out, SUM(d.val * k.val) AS val
                FROM ds d JOIN k ON d.u = k.item GROUP BY d.t, k.dim""",
            "dk": """SELECT d.u AS item, q.dim AS out, SUM(d.val * q.val) AS val
                FROM ds d JOIN q ON d.t = q.item GROUP BY d.u, q.dim""",
            "gradient": " UNION ALL ".join(by_weights("x", d, part) for part, d in enumerate(["dq", "dk", "dv"])),
        },
        loss,
        backward,
    )


NORMED = """SELECT c.item, c.dim, c.val / sqrt(AVG(c.val * c.val) OVER (PARTITION BY c.item) + 1e-5) AS val
    FROM (SELECT item, dim, val - AVG(val) OVER (PARTITION BY item) AS val FROM {source}) c"""
SCALED = """SELECT n.item, n.dim AS inp, n.val * w.val AS val
    FROM {source} n JOIN params w ON n.dim = w.inp WHERE w.part = {part}"""


def block(tokens: int = 64, dims: int = 32, heads: int = 4, wide: int = 64) -> Case:
    """A block of a transformer: normalisation, attention with several heads, normalisation, two layers."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, tokens, dims))
    shapes = {"g1": (dims, 1), **dict.fromkeys(["wq", "wk", "wv", "wo"], (dims, dims)), "g2": (dims, 1)}
    shapes |= {"up": (dims, wide), "down": (wide, dims)}
    w = {name: rng.normal(size=shape) / np.sqrt(shape[0]) for name, shape in shapes.items()}
    part = {name: number for number, name in enumerate(shapes)}
    size = dims // heads
    root = float(np.sqrt(size))
    forward = {
        "n1": NORMED.format(source="x"),
        "a1": SCALED.format(source="n1", part=part["g1"]),
        **{name: layer("a1", part["w" + name], "dim") for name in "qkv"},
        "s": f"""SELECT q.item AS t, k.item AS u, q.dim / {size} AS head, SUM(q.val * k.val) / {root} AS val
            FROM q JOIN k ON q.dim = k.dim WHERE k.item <= q.item GROUP BY q.item, k.item, q.dim / {size}""",
        "p": SOFTMAX.format(keys="t, u, head", by="t, head"),
        "o": f"""SELECT p.t AS item, v.dim AS inp, SUM(p.val * v.val) AS val
            FROM p JOIN v ON p.u = v.item AND p.head = v.dim / {size} GROUP BY p.t, v.dim""",
        "r": f"""SELECT x.item, x.dim, x.val + a.val AS val
            FROM x JOIN ({layer("o", part["wo"], "dim")}) a ON x.item = a.item AND x.dim = a.dim""",
        "n2": NORMED.format(source="r"),
        "a2": SCALED.format(source="n2", part=part["g2"]),
        "h": f"SELECT item, out AS inp, tanh(val) AS val FROM ({layer('a2', part['up'])}) q",
        "f": f"""SELECT r.item, r.dim, r.val + m.val AS val
            FROM r JOIN ({layer("h", part["down"], "dim")}) m ON r.item = m.item AND r.dim = m.dim""",
    }
    value = "SELECT AVG(power(f.val - y.val, 2)) AS l FROM f JOIN y ON f.item = y.item AND f.dim = y.dim"

    def by_gain(normed: str, cotangent: str, name: str) -> str:
        return f"""SELECT {part[name]} AS part, n.dim AS inp, 0 AS out, SUM(n.val * d.val) AS val
            FROM {normed} n JOIN {cotangent} d ON n.item = d.item AND n.dim = d.inp GROUP BY n.dim"""

    hand = {
        **forward,
        "value": value,
        "df": f"""SELECT f.item, f.dim AS out, 2 * (f.val - y.val) / {x.size} AS val
            FROM f JOIN y ON f.item = y.item AND f.dim = y.dim""",
        "dh": f"""SELECT h.item, h.inp AS out, d.val * (1 - h.val * h.val) AS val
            FROM h JOIN ({by_source("df", part["down"])}) d ON h.item = d.item AND h.inp = d.inp""",
        "da2": by_source("dh", part["up"]),
        # The deviation of the rows is computed anew.
        "dr": f"""SELECT e.item, e.dim AS out, f.val +
                (e.d - e.n * AVG(e.d * e.n) OVER (PARTITION BY e.item) - AVG(e.d) OVER (PARTITION BY e.item))
                    / e.deviation AS val
            FROM (SELECT n.item, n.dim, n.val AS n, d.val * w.val AS d,
                    sqrt(VAR_POP(r.val) OVER (PARTITION BY n.item) + 1e-5) AS deviation
                FROM n2 n JOIN da2 d ON n.item = d.item AND n.dim = d.inp JOIN r ON n.item = r.item AND n.dim = r.dim
                JOIN params w ON n.dim = w.inp WHERE w.part = {part["g2"]}) e
            JOIN df f ON e.item = f.item AND e.dim = f.out""",
        "do_": by_source("dr", part["wo"]),
        "dv": f"""SELECT p.u AS item, d.inp AS out, SUM(p.val * d.val) AS val
            FROM p JOIN do_ d ON p.t = d.item AND p.head = d.inp / {size} GROUP BY p.u, d.inp""",
        "ds": f"""SELECT t, u, head, p * (dp - SUM(p * dp) OVER (PARTITION BY t, head)) / {root} AS val FROM (
            SELECT p.t, p.u, p.head, p.val AS p, d.val AS dp FROM p JOIN (
                SELECT d.item AS t, v.item AS u, v.dim / {size} AS head, SUM(d.val * v.val) AS val
                FROM do_ d JOIN v ON d.inp = v.dim WHERE v.item <= d.item GROUP BY d.item, v.item, v.dim / {size}
            ) d ON p.t = d.t AND p.u = d.u AND p.head = d.head) q""",
        "dq": f"""SELECT d.t AS item, k.dim AS out, SUM(d.val * k.val) AS val
            FROM ds d JOIN k ON d.u = k.item AND d.head = k.dim / {size} GROUP BY d.t, k.dim""",
        "dk": f"""SELECT d.u AS item, q.dim AS out, SUM(d.val * q.val) AS val
            FROM ds d JOIN q ON d.t = q.item AND d.head = q.dim / {size} GROUP BY d.u, q.dim""",
        "da1": f"""SELECT item, inp, SUM(val) AS val FROM (
            {" UNION ALL ".join(by_source("d" + name, part["w" + name]) for name in "qkv")}) q GROUP BY item, inp""",
        "gradient": " UNION ALL ".join(
            [
                by_gain("n1", "da1", "g1"),
                *(by_weights("a1", "d" + name, part["w" + name]) for name in "qkv"),
                by_weights("o", "dr", part["wo"]),
                by_gain("n2", "da2", "g2"),
                by_weights("a2", "dh", part["up"]),
                by_weights("h", "df", part["down"]),
            ]
        ),
    }

    def normed(np: Any, x: Array) -> tuple[Array, Array]:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
        return centred / deviation, deviation

    def by_head(a: Array) -> Array:
        return a.reshape(tokens, heads, size).swapaxes(0, 1)

    def run(np: Any, at: Arrays) -> dict[str, Array]:
        n1, _ = normed(np, at["x"])
        a1 = n1 * at["g1"][:, 0]
        q, k, v = (by_head(a1 @ at[name]) for name in ("wq", "wk", "wv"))
        mask = np.tril(np.ones((tokens, tokens), dtype=bool))
        p = softmax(np, np.where(mask, q @ k.swapaxes(1, 2) / root, -np.inf))
        o = (p @ v).swapaxes(0, 1).reshape(tokens, dims)
        r = at["x"] + o @ at["wo"]
        n2, deviation = normed(np, r)
        a2 = n2 * at["g2"][:, 0]
        h = np.tanh(a2 @ at["up"])
        error = r + h @ at["down"] - at["y"]
        return locals()

    def backward(at: Arrays) -> tuple[Array, list[Array]]:
        r = run(np, at)
        df = 2 * r["error"] / r["error"].size
        dh = df @ at["down"].T * (1 - r["h"] ** 2)
        da2 = dh @ at["up"].T
        d, n2 = da2 * at["g2"][:, 0], r["n2"]
        mean = (d * n2).mean(axis=1, keepdims=True)
        dr = df + (d - n2 * mean - d.mean(axis=1, keepdims=True)) / r["deviation"]
        do, p = by_head(dr @ at["wo"].T), r["p"]
        dp = do @ r["v"].swapaxes(1, 2)
        ds = p * (dp - (p * dp).sum(axis=2, keepdims=True)) / root
        heads = ds @ r["k"], ds.swapaxes(1, 2) @ r["q"], p.swapaxes(1, 2) @ do
        dq, dk, dv = (d.swapaxes(0, 1).reshape(tokens, dims) for d in heads)
        da1 = dq @ at["wq"].T + dk @ at["wk"].T + dv @ at["wv"].T
        gradients = {
            "g1": (da1 * r["n1"]).sum(axis=0),
            **{name: r["a1"].T @ d for name, d in (("wq", dq), ("wk", dk), ("wv", dv))},
            "wo": r["o"].T @ dr,
            "g2": (da2 * n2).sum(axis=0),
            "up": r["a2"].T @ dh,
            "down": r["h"].T @ df,
        }
        return (r["error"] ** 2).mean(), list(gradients.values())

    return Case(
        f"transformer block, {tokens} tokens",
        {"x": x, "y": y, **w},
        {"x": rows(x, "item", "dim"), "y": rows(y, "item", "dim"), "params": parts(*w.values())},
        ", ".join(f"{name} AS ({sql})" for name, sql in {**forward, "loss": value}.items()),
        "params",
        ("part", "inp", "out"),
        tuple(w),
        hand,
        lambda np, at: (run(np, at)["error"] ** 2).mean(),
        backward,
    )


def layers(count: int, samples: int = 200, width: int = 8) -> Case:
    """A network of `count` layers, for what grows with their number. It has no backward pass written by hand."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(samples, width))
    w = {f"w{i}": rng.normal(size=(width, width)) / np.sqrt(width) for i in range(count)}
    ctes, source = [], "x"
    for number in range(count):
        ctes.append(f"h{number} AS (SELECT item, out AS inp, tanh(val) AS val FROM ({layer(source, number)}) q)")
        source = f"h{number}"
    ctes.append(f"loss AS (SELECT AVG(val * val) AS l FROM {source})")

    def loss(np: Any, at: Arrays) -> Array:
        h = at["x"]
        for name in w:
            h = np.tanh(h @ at[name])
        return (h * h).mean()

    return Case(
        f"{count} layers",
        {"x": x, **w},
        {"x": rows(x, "item", "inp"), "params": parts(*w.values())},
        ", ".join(ctes),
        "params",
        ("part", "inp", "out"),
        tuple(w),
        {},
        loss,
        lambda at: (loss(np, at), []),
    )


CASES: dict[str, Callable[[], Case]] = {
    "product by x": lambda: product("x"),
    "product by w": lambda: product("w"),
    "network": network,
    "attention": attention,
    "block": block,
    "training": lambda: network(100, 16, 8, 4, steps=100),
}
