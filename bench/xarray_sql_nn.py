"""Times the training of the network that xarray-sql's own benchmark trains, at its size.

    build/fresh-55/bin/python bench/xarray_sql_nn.py [--steps 60] [--by-hand-steps 2]

`benchmarks/nn.py` of xarray-sql trains 784 - 196 - 32 - 10 units with tanh, biases and softmax cross-entropy on images
of Fashion-MNIST, 490 of 700, in 60 steps of gradient descent. Each step is some twenty statements with the backward
pass of the layers written by hand. Its author reports 2.56 s a step, and 1.45 s without the pixels that are 0, which
are about half. Here the images are drawn at random: one for each of ten classes, and noise, in a half of the pixels
that is the same in all. The rows are those of the images that train, and of pixels that are not 0.

The figures are processor time on one thread, from the tables to the weights of the last step:

- all steps as one recursive statement with `grad`, the biases being the weights of a unit -1 with the value 1;
- steps written by hand with their backward pass, seven statements each, as a client's loop sends them to a session
  without this project: measured over `--by-hand-steps` and scaled to all;
- NumPy, from the same tables;
- JAX, compiled, with the time that compiling takes.

All weights have to agree to 1e-8 of the largest of their layer, those by hand with those of NumPy after as many steps.
The exit status is 1 if they do not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from nn2sql import ONE_THREAD, filled, in_rows, session
from results import Column, parse

import xql_ffi

Array = Any
Tables = dict[str, pa.Table]
Way = Callable[[Tables, int], list[Array]]
UNITS = (784, 196, 32, 10)
LAST = len(UNITS) - 1
ITEMS = 490
RATE = 0.5
TOLERANCE = 1e-8


def drawn() -> Tables:
    """The inputs `x`, the class of each item `y` and the first weights `w`, in an order of their own."""
    rng = np.random.default_rng(7)
    inputs, classes = UNITS[0], UNITS[-1]
    label = rng.integers(0, classes, ITEMS)
    is_used = rng.permutation(inputs) < inputs // 2
    x = (rng.normal(size=(classes, inputs))[label] + 0.6 * rng.normal(size=(ITEMS, inputs))) * is_used
    layers = []
    for layer, (before, after) in enumerate(pairwise(UNITS), start=1):
        inp, out = (places.ravel() for places in np.indices((before + 1, after)))
        inp -= 1
        val = np.where(inp >= 0, 0.1 * rng.normal(size=inp.size), 0.0)
        layers.append(pa.table({"layer": np.full(inp.size, layer), "inp": inp, "out": out, "val": val}))
    w = pa.concat_tables(layers)
    y = pa.table({"item": np.arange(ITEMS), "label": label})
    return {"x": in_rows(x, "item", "unit"), "y": y, "w": w.take(rng.permutation(w.num_rows))}


def of_layers(w: pa.Table) -> list[Array]:
    """The weights of each layer as an array, the biases in its last row."""
    layer = w["layer"].to_numpy()
    return [
        filled(w.filter(layer == n).select(["inp", "out", "val"]), before + 1, after)
        for n, (before, after) in enumerate(pairwise(UNITS), start=1)
    ]


def arrays(tables: Tables) -> tuple[Array, Array, list[Array]]:
    """The inputs, the classes and the first weights as arrays."""
    label = filled(tables["y"], ITEMS).astype(int)
    return filled(tables["x"], ITEMS, UNITS[0]), label, of_layers(tables["w"])


def network(weights: str) -> dict[str, str]:
    """The values of all units by layer, as queries by their names: `h0` of the inputs to the scores of the classes."""
    ones = "UNION ALL SELECT item, -1, 1.0 FROM y"
    queries = {"h0": f"SELECT item, unit, val FROM x {ones}"}
    for layer in range(1, LAST + 1):
        is_hidden = layer < LAST
        queries[f"h{layer}"] = f"""
            SELECT h.item, w.out AS unit, {"tanh(SUM(h.val * w.val))" if is_hidden else "SUM(h.val * w.val)"} AS val
            FROM h{layer - 1} h JOIN {weights} w ON w.layer = {layer} AND w.inp = h.unit
            GROUP BY h.item, w.out {ones if is_hidden else ""}"""
    return queries


def one_statement(steps: int) -> str:
    """All steps as a recursive query, whose backward pass is derived."""
    layers = ", ".join(f"{name} AS ({query})" for name, query in network("fit").items())
    return f"""WITH RECURSIVE fit AS (
        SELECT 0 AS step, layer, inp, out, val FROM w
        UNION ALL (
        WITH {layers},
        highest AS (SELECT item, MAX(val) AS val FROM h{LAST} GROUP BY item),
        scores AS (
            SELECT h.item, h.unit, h.val - m.val AS val FROM h{LAST} h JOIN highest m ON m.item = h.item),
        entropy AS (
            SELECT s.item, ln(SUM(exp(s.val))) - SUM(s.val) FILTER (WHERE s.unit = y.label) AS val
            FROM scores s JOIN y ON s.item = y.item GROUP BY s.item),
        loss AS (SELECT AVG(val) AS l FROM entropy)
        SELECT step + 1, layer, inp, out, val - {RATE} * grad((SELECT l FROM loss), val)
        FROM fit WHERE step < {steps}))
    SELECT layer, inp, out, val FROM fit WHERE step = {steps}"""


def step_by_hand() -> dict[str, str]:
    """The queries of a step with the backward pass as a person writes it, each by the name of the table that it makes.

    The tables `d` have the derivatives of the loss by what each unit sums up.
    """
    queries = {name: query for name, query in network("w").items() if name != "h0"}
    queries[f"d{LAST}"] = f"""
        WITH e AS (
            SELECT h.item, h.unit, exp(h.val - m.val) AS val
            FROM h{LAST} h JOIN (SELECT item, MAX(val) AS val FROM h{LAST} GROUP BY item) m ON m.item = h.item),
        s AS (SELECT item, SUM(val) AS val FROM e GROUP BY item)
        SELECT e.item, e.unit, (e.val / s.val - CASE WHEN e.unit = y.label THEN 1.0 ELSE 0.0 END) / {ITEMS} AS val
        FROM e JOIN s ON s.item = e.item JOIN y ON y.item = e.item"""
    for layer in range(LAST, 1, -1):
        queries[f"d{layer - 1}"] = f"""
            SELECT q.item, q.unit, q.val * (1 - h.val * h.val) AS val
            FROM (SELECT d.item, w.inp AS unit, SUM(d.val * w.val) AS val
                  FROM d{layer} d JOIN w ON w.layer = {layer} AND w.out = d.unit AND w.inp >= 0
                  GROUP BY d.item, w.inp) q
            JOIN h{layer - 1} h ON h.item = q.item AND h.unit = q.unit"""
    gradients = " UNION ALL ".join(
        f"""SELECT {layer} AS layer, h.unit AS inp, d.unit AS out, SUM(h.val * d.val) AS val
            FROM h{layer - 1} h JOIN d{layer} d ON h.item = d.item GROUP BY h.unit, d.unit"""
        for layer in range(1, LAST + 1)
    )
    queries["w"] = f"""
        SELECT w.layer, w.inp, w.out, w.val - {RATE} * coalesce(g.val, 0) AS val
        FROM w LEFT JOIN ({gradients}) g ON w.layer = g.layer AND w.inp = g.inp AND w.out = g.out"""
    return queries


def in_sql(tables: Tables, steps: int) -> list[Array]:
    """The weights by one statement."""
    ctx = xql_ffi.register(session(tables))
    return of_layers(pa.Table.from_batches(ctx.sql(one_statement(steps)).collect()))


def by_hand(tables: Tables, steps: int) -> list[Array]:
    """The weights by several statements for each step."""
    ctx = session(tables)

    def keep(name: str, query: str) -> None:
        table = ctx.sql(query).cache()
        ctx.deregister_table(name)
        ctx.register_table(name, table)

    keep("h0", network("w")["h0"])
    for _ in range(steps):
        for name, query in step_by_hand().items():
            keep(name, query)
    return of_layers(ctx.table("w").to_arrow_table())


def in_numpy(tables: Tables, steps: int) -> list[Array]:
    """The weights by arrays, with a backward pass by hand."""
    x, label, weights = arrays(tables)
    ones = np.ones((ITEMS, 1))
    wanted = np.eye(UNITS[-1])[label]
    for _ in range(steps):
        values = [np.hstack([x, ones])]
        for w in weights[:-1]:
            values.append(np.hstack([np.tanh(values[-1] @ w), ones]))
        scores = values[-1] @ weights[-1]
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        d = (e / e.sum(axis=1, keepdims=True) - wanted) / ITEMS
        gradients = [values[-1].T @ d]
        for w, h, before in zip(weights[:0:-1], values[:0:-1], values[-2::-1], strict=True):
            d = d @ w[:-1].T * (1 - h[:, :-1] ** 2)
            gradients.append(before.T @ d)
        weights = [w - RATE * g for w, g in zip(weights, reversed(gradients), strict=True)]
    return weights


def in_jax(tables: Tables, steps: int) -> list[Array]:
    """The weights by JAX, all steps compiled as one program."""
    x, label, weights = arrays(tables)

    def loss(weights: list[Array]) -> Array:
        h = x
        for w in weights[:-1]:
            h = jnp.tanh(h @ w[:-1] + w[-1])
        scores = h @ weights[-1][:-1] + weights[-1][-1]
        return jnp.mean(jax.nn.logsumexp(scores, axis=1) - scores[jnp.arange(ITEMS), label])

    def step(weights: list[Array], _: None) -> tuple[list[Array], None]:
        return [w - RATE * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)], None

    jax.clear_caches()  # type: ignore[no-untyped-call]
    fitted = jax.jit(lambda weights: jax.lax.scan(step, weights, None, length=steps)[0])(weights)
    return [np.asarray(array) for array in fitted]


def apart(weights: list[Array], expected: list[Array]) -> float:
    """The largest difference of two weights, over the largest weight of the layer."""
    return float(
        np.max(
            [np.abs(mine - theirs).max() / np.abs(theirs).max() for mine, theirs in zip(weights, expected, strict=True)]
        )
    )


def main() -> int:
    """Measures all ways."""
    if not ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--by-hand-steps", type=int, default=2, help="those measured by hand (%(default)s)")
    options, results = parse(parser, steps=3, by_hand_steps=1)
    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call]
    ways: dict[str, tuple[Way, int]] = {
        "SQL": (in_sql, options.steps),
        "by hand": (by_hand, options.by_hand_steps),
        "NumPy": (in_numpy, options.steps),
        "JAX": (in_jax, options.steps),
    }
    tables = drawn()
    expected = {steps: in_numpy(tables, steps) for _, steps in ways.values()}
    title = f"{ITEMS} x {' - '.join(map(str, UNITS))}, {options.steps} steps"
    table = results.table(title, Column("in total", "s"), Column("a step", "s", 4))
    goals = []
    for name, (way, steps) in ways.items():
        start = time.process_time()
        weights = way(tables, steps)
        step = (time.process_time() - start) / steps
        table.line(name, step * options.steps, step)
        if way is not in_numpy:
            difference = apart(weights, expected[steps]) / TOLERANCE
            goals.append((f"{name}, weights apart, over {TOLERANCE:.0e}", difference, 1.0))
    reached = results.goals(goals)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
