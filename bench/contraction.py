"""Times gradients by row that are made of sums of products: layers, a network, attention, a graph, a stencil.

    build/fresh-55/bin/python bench/contraction.py [--rounds 3] [--only layer ...]

The figures are processor time on one thread, the fastest of the rounds, from the text of a statement to its rows:
with sums of products as arrays, as they are by themselves, and by DataFusion's joins and groups
(`SET xql.contractions = false`). Beside them is NumPy, which starts from the same columns in an order of their own and
ends in the same rows. All gradients have to agree to 1e-9 of the largest. The exit status is 1 if a goal is not
reached: over NumPy for dense arrays, over DataFusion for graphs and stencils.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse
from datafusion import SessionConfig, SessionContext
from results import Column, Goal, parse

import xql_ffi

Array = Any
Tables = dict[str, pa.Table]
OVER_NUMPY, WORST, SPARSE = 4.0, 8.0, 1.0
# NumPy reads these when it is imported.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Case:
    """A gradient by the rows of a table."""

    name: str
    tables: Tables
    model: str
    """CTEs that end in `loss`, one row with the column `l`."""
    variable: str
    """The table by whose `val` is differentiated."""
    keys: tuple[str, ...]
    """Its other columns."""
    by_hand: Callable[[Tables], Array]
    """The gradient by the rows of the table in NumPy, from the tables."""
    dense: bool = True

    @property
    def statement(self) -> str:
        """The gradient as a statement."""
        gradient = "grad((SELECT l FROM loss), val) AS d"
        return f"WITH {self.model} SELECT {', '.join(self.keys)}, {gradient} FROM {self.variable}"


def rows(array: Array, *names: str, where: Array | None = None, seed: int = 0) -> pa.Table:
    """An array, or the part of it where another one says so, as a table in an order of its own."""
    places = np.nonzero(np.ones_like(array) if where is None else where)
    order = np.random.default_rng(seed).permutation(len(places[0]))
    columns = {name: place[order] for name, place in zip(names, places, strict=True)}
    return pa.table({**columns, "val": array[places][order]})


def columns(table: pa.Table) -> tuple[Array, ...]:
    """The columns of a table."""
    return tuple(column.to_numpy() for column in table.columns)


def filled(table: pa.Table, *shape: int) -> Array:
    """A table as an array, 0 where it has no row."""
    *places, values = columns(table)
    array = np.zeros(shape)
    array[tuple(places)] = values
    return array


def at(gradient: Array, table: pa.Table) -> Array:
    """A gradient by the rows of a table."""
    return gradient[columns(table)[:-1]]


def softmax(scores: Array) -> Array:
    """The softmax along the last axis."""
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer(variable: str, samples: int, inner: int, outputs: int) -> Case:
    """The sum of squares of a product."""
    rng = np.random.default_rng(1)
    tables = {
        "x": rows(rng.normal(size=(samples, inner)), "i", "k", seed=2),
        "w": rows(rng.normal(size=(inner, outputs)), "k", "j", seed=3),
    }

    def by_hand(tables: Tables) -> Array:
        x, w = filled(tables["x"], samples, inner), filled(tables["w"], inner, outputs)
        c = 2 * (x @ w)
        return at(c @ w.T if variable == "x" else x.T @ c, tables[variable])

    c = "SELECT x.i, w.j, SUM(x.val * w.val) AS val FROM x JOIN w ON x.k = w.k GROUP BY x.i, w.j"
    model = f"c AS ({c}), loss AS (SELECT SUM(val * val) AS l FROM c)"
    keys = ("i", "k") if variable == "x" else ("k", "j")
    return Case(f"layer {samples:,} x {inner} x {outputs}, by {variable}", tables, model, variable, keys, by_hand)


def product(source: str, weights: str, result: str) -> str:
    """The rows of a relation times a matrix."""
    return f"""SELECT a.item, w.out AS {result}, SUM(a.val * w.val) AS val
        FROM {source} a JOIN {weights} w ON a.inp = w.inp GROUP BY a.item, w.out"""


def network(variable: str, samples: int, pixels: int, hidden: int, classes: int) -> Case:
    """A network with one hidden layer and softmax cross-entropy, over images of which a fifth is not 0."""
    rng = np.random.default_rng(2)
    x = rng.uniform(size=(samples, pixels))
    tables = {
        "x": rows(x, "item", "inp", where=rng.uniform(size=x.shape) < 0.2, seed=3),
        "w0": rows(rng.normal(size=(pixels, hidden)) / np.sqrt(pixels), "inp", "out", seed=4),
        "w1": rows(rng.normal(size=(hidden, classes)) / np.sqrt(hidden), "inp", "out", seed=5),
        "y": rows(np.eye(classes)[rng.integers(0, classes, samples)], "item", "out", seed=6),
    }

    def by_hand(tables: Tables) -> Array:
        x, y = filled(tables["x"], samples, pixels), filled(tables["y"], samples, classes)
        w0, w1 = filled(tables["w0"], pixels, hidden), filled(tables["w1"], hidden, classes)
        h = np.tanh(x @ w0)
        dz = (softmax(h @ w1) - y) / samples
        return at(h.T @ dz if variable == "w1" else x.T @ (dz @ w1.T * (1 - h * h)), tables[variable])

    loss = """SELECT AVG(l) AS l FROM (SELECT z.item, ln(SUM(exp(z.val))) - SUM(z.val * y.val) AS l
        FROM z JOIN y ON z.item = y.item AND z.out = y.out GROUP BY z.item) q"""
    h = f"SELECT item, inp, tanh(val) AS val FROM ({product('x', 'w0', 'inp')}) q"
    model = f"h AS ({h}), z AS ({product('h', 'w1', 'out')}), loss AS ({loss})"
    name = f"network {samples:,} x {pixels} - {hidden} - {classes}, by {variable}"
    return Case(name, tables, model, variable, ("inp", "out"), by_hand)


def attention(tokens: int, dims: int) -> Case:
    """Attention, by its queries."""
    rng = np.random.default_rng(3)
    arrays = dict(zip("qkvy", rng.normal(size=(4, tokens, dims)), strict=True))
    tables = {name: rows(array, "item", "dim", seed=4) for name, array in arrays.items()}
    root = math.sqrt(dims)

    def by_hand(tables: Tables) -> Array:
        q, k, v, y = (filled(tables[name], tokens, dims) for name in "qkvy")
        p = softmax(q @ k.T / root)
        dp = 2 * (p @ v - y) @ v.T
        ds = p * (dp - (p * dp).sum(axis=1, keepdims=True)) / root
        return at(ds @ k, tables["q"])

    model = f"""s AS (SELECT q.item AS t, k.item AS u, SUM(q.val * k.val) / {root} AS val
            FROM q JOIN k ON q.dim = k.dim GROUP BY q.item, k.item),
        p AS (SELECT t, u, e / SUM(e) OVER (PARTITION BY t) AS val
            FROM (SELECT t, u, exp(val - MAX(val) OVER (PARTITION BY t)) AS e FROM s) a),
        o AS (SELECT p.t AS item, v.dim, SUM(p.val * v.val) AS val FROM p JOIN v ON p.u = v.item GROUP BY p.t, v.dim),
        loss AS (SELECT SUM(power(o.val - y.val, 2)) AS l FROM o JOIN y ON o.item = y.item AND o.dim = y.dim)"""
    return Case(f"attention {tokens} x {dims}, by q", tables, model, "q", ("item", "dim"), by_hand)


def graph(variable: str, nodes: int, edges: int, features: int) -> Case:
    """A convolution of a graph: features of neighbours, and then weights."""
    rng = np.random.default_rng(4)
    found = np.unique(rng.integers(0, nodes, size=(edges, 2)), axis=0)
    order = rng.permutation(len(found))
    a = {"src": found[order, 0], "dst": found[order, 1], "val": rng.normal(size=len(found))}
    tables = {
        "a": pa.table(a),
        "x": rows(rng.normal(size=(nodes, features)), "node", "f", seed=5),
        "w": rows(rng.normal(size=(features, features)), "f", "out", seed=6),
    }

    def by_hand(tables: Tables) -> Array:
        src, dst, val = columns(tables["a"])
        a = scipy.sparse.csr_array((val, (dst, src)), shape=(nodes, nodes))
        x, w = filled(tables["x"], nodes, features), filled(tables["w"], features, features)
        h = a @ x
        dz = 2 * (h @ w)
        if variable == "w":
            return at(h.T @ dz, tables["w"])
        dh = dz @ w.T
        return at(a.T @ dh, tables["x"]) if variable == "x" else (dh[dst] * x[src]).sum(axis=1)

    model = """h AS (SELECT a.dst, x.f, SUM(a.val * x.val) AS val FROM a JOIN x ON a.src = x.node GROUP BY a.dst, x.f),
        z AS (SELECT h.dst, w.out, SUM(h.val * w.val) AS val FROM h JOIN w ON h.f = w.f GROUP BY h.dst, w.out),
        loss AS (SELECT SUM(val * val) AS l FROM z)"""
    keys = {"a": ("src", "dst"), "x": ("node", "f"), "w": ("f", "out")}[variable]
    name = f"graph, {nodes:,} nodes, {edges:,} edges, {features} features, by {variable}"
    return Case(name, tables, model, variable, keys, by_hand, dense=False)


def stencil(form: str, cells: int) -> Case:
    """A second difference along a line, over a table of its edges or of its offsets."""
    rng = np.random.default_rng(5)
    factors = {-1: 1.0, 0: -2.0, 1: 1.0}
    cell = np.arange(cells)
    edges = [(cell[max(0, -d) : cells - max(0, d)], d, c) for d, c in factors.items()]
    tables = {
        "u": rows(rng.normal(size=cells), "x", seed=7),
        "e": pa.table(
            {
                "src": np.concatenate([src for src, _, _ in edges]),
                "dst": np.concatenate([src + d for src, d, _ in edges]),
                "val": np.concatenate([np.full(len(src), c) for src, _, c in edges]),
            }
        ),
        "s": pa.table({"d": list(factors), "val": list(factors.values())}),
    }

    def by_hand(tables: Tables) -> Array:
        u = filled(tables["u"], cells)
        if form == "edges":
            src, dst, val = columns(tables["e"])
            d = 2 * np.bincount(dst, val * u[src], minlength=cells)
            return at(np.bincount(src, val * d[dst], minlength=cells), tables["u"])
        c = columns(tables["s"])[-1]
        return at(np.correlate(2 * np.convolve(u, c), c, mode="valid"), tables["u"])

    model = {
        "edges": "SELECT e.dst AS x, SUM(e.val * u.val) AS val FROM e JOIN u ON e.src = u.x GROUP BY e.dst",
        "offsets": "SELECT u.x + s.d AS x, SUM(u.val * s.val) AS val FROM u CROSS JOIN s GROUP BY u.x + s.d",
    }[form]
    model = f"c AS ({model}), loss AS (SELECT SUM(val * val) AS l FROM c)"
    return Case(f"stencil of {cells:,} cells, by {form}", tables, model, "u", ("x",), by_hand, dense=False)


CASES: dict[str, Callable[[bool], Iterator[Case]]] = {
    "layer": lambda quick: (layer(by, 5_000 if quick else 50_000, 16, 8) for by in "xw"),
    "network": lambda quick: (
        network(by, *((200, 64, 32, 10) if quick else (2_000, 784, 128, 10))) for by in ("w0", "w1")
    ),
    "attention": lambda quick: (attention(*((64, 16) if quick else (512, 64))) for _ in range(1)),
    "graph": lambda quick: (graph(by, *((2_000, 10_000) if quick else (20_000, 100_000)), 16) for by in "xaw"),
    "stencil": lambda quick: (stencil(form, 10_000 if quick else 1_000_000) for form in ("edges", "offsets")),
}


def session(case: Case, contractions: str) -> SessionContext:
    """A session on one thread with the tables of a case."""
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    for name, table in case.tables.items():
        ctx.register_record_batches(name, [table.to_batches(max_chunksize=8192)])
    ctx.sql(f"SET xql.contractions = {contractions}")
    return ctx


def found(ctx: SessionContext, case: Case) -> pa.Table:
    """The rows of the statement of a case."""
    return pa.Table.from_batches(ctx.sql(case.statement).collect())


def in_order(case: Case, table: pa.Table) -> Array:
    """The gradient in the order of the keys."""
    keys = [table[key].to_numpy() for key in case.keys]
    return table.column(table.num_columns - 1).to_numpy()[np.lexsort(keys)]


def measure(case: Case, rounds: int) -> tuple[float, float, float, float]:
    """The seconds of sums as arrays, of planning them, of DataFusion's joins and groups, and of NumPy."""
    arrays, joins = session(case, "true"), session(case, "false")

    def numpy() -> pa.Table:
        table = case.tables[case.variable]
        return table.set_column(table.num_columns - 1, "d", pa.array(case.by_hand(case.tables)))

    ways: list[Callable[[], Any]] = [
        partial(found, arrays, case),
        lambda: arrays.sql(case.statement).execution_plan(),
        partial(found, joins, case),
        numpy,
    ]
    least = [math.inf] * len(ways)
    for _ in range(rounds):
        results = []
        for number, way in enumerate(ways):
            start = time.process_time()
            results.append(way())
            least[number] = min(least[number], time.process_time() - start)
    expected = in_order(case, results[3])
    for result in (results[0], results[2]):
        np.testing.assert_allclose(in_order(case, result), expected, rtol=0, atol=1e-9 * np.abs(expected).max())
    return least[0], least[1], least[2], least[3]


def goals(measured: dict[str, tuple[Case, float, float]]) -> list[Goal]:
    """The figures that have goals."""
    dense = [over_numpy for case, over_numpy, _ in measured.values() if case.dense]
    figures = [(name, over, SPARSE) for name, (case, _, over) in measured.items() if not case.dense]
    if dense:
        mean = math.exp(sum(map(math.log, dense)) / len(dense))
        figures += [("over NumPy, geometric mean", mean, OVER_NUMPY), ("over NumPy, worst", max(dense), WORST)]
    return figures


def main() -> int:
    """Measures all cases, and says which goals are reached."""
    if not ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    options, results = parse(parser, rounds=2)
    names = ("arrays", "planning", "joins", "NumPy")
    ratios = Column("over NumPy"), Column("over joins")
    table = results.table("case", *(Column(name, "ms", 1) for name in names), *ratios)
    measured = {}
    for name in options.only:
        for case in CASES[name](options.quick):
            seconds = measure(case, options.rounds)
            over_numpy, over_joins = seconds[0] / seconds[3], seconds[0] / seconds[2]
            table.line(case.name, *(1e3 * each for each in seconds), over_numpy, over_joins)
            measured[case.name] = case, over_numpy, over_joins
    reached = results.goals(goals(measured))
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
