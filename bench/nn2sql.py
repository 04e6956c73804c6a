"""Times the training of networks in SQL at the sizes that the field's own paper has.

    build/fresh-55/bin/python bench/nn2sql.py [--rounds 3] [--only iris ...] [--duckdb]

The tasks are those of Schüle and others, "NN2SQL: Let SQL Think for Neural Networks" (BTW 2023): two layers with the
logistic function, squared error, gradient descent, over 150 and 600 rows of 4 features with 20 hidden units for 1,000
iterations, and over 2,000 images of 784 pixels with 20 hidden units for 3. The data are drawn at random in these
sizes. There the backward pass is written by hand; here it is derived. A fourth task is a larger network over the
images, 784 - 128 - 10 for 50 steps.

The figures are processor time on one thread, from the tables to the weights of the last step, the fastest of the
rounds; what takes more than ten seconds is measured once:

- all steps as one recursive statement with `grad`;
- a step written by hand with its backward pass, as a client's loop sends it to a session without this project;
- NumPy, from the same tables;
- JAX, compiled, with the time that compiling takes;
- with `--duckdb`, the text of the first statement on DuckDB.

All weights have to agree to 1e-8 of the largest. The exit status is 1 if the larger network takes more than twice the
time of JAX.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from results import Column, parse

import xql_ffi

Array = Any
Tables = dict[str, pa.Table]
OVER_JAX = 2.0
# What takes more seconds is measured once.
ONCE = 10.0
# NumPy and XLA read these when they are imported.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
}

LAYERS = """
    h AS (SELECT item, unit, 1.0 / (1.0 + exp(-s)) AS val FROM (
        SELECT x.item, w.out AS unit, SUM(x.val * w.val) AS s
        FROM x JOIN {weights} w ON w.layer = 0 AND w.inp = x.unit GROUP BY x.item, w.out) q),
    o AS (SELECT item, unit, 1.0 / (1.0 + exp(-s)) AS val FROM (
        SELECT h.item, w.out AS unit, SUM(h.val * w.val) AS s
        FROM h JOIN {weights} w ON w.layer = 1 AND w.inp = h.unit GROUP BY h.item, w.out) q)"""


@dataclass(frozen=True)
class Task:
    """A network, its data and its training."""

    name: str
    items: int
    units: tuple[int, int, int]
    iterations: int
    rate: float
    filling: float = 1.0
    """How many of the inputs are not 0, and have a row."""
    is_by_hand: bool = True
    """Whether the steps by hand are measured: over the larger network they take half an hour."""

    @property
    def title(self) -> str:
        """What is trained."""
        return f"{self.name}, {self.items:,} x {' - '.join(map(str, self.units))}, {self.iterations:,} iterations"

    def tables(self) -> Tables:
        """The inputs `x`, the wanted outputs `y` and the first weights `w`, in an order of their own."""
        rng = np.random.default_rng(7)
        inputs, hidden, outputs = self.units
        x = rng.uniform(size=(self.items, inputs)) * (rng.uniform(size=(self.items, inputs)) < self.filling)
        y = np.eye(outputs)[rng.integers(0, outputs, self.items)]
        weights = [rng.normal(size=shape) / math.sqrt(shape[0]) for shape in ((inputs, hidden), (hidden, outputs))]
        w = pa.concat_tables(
            in_rows(array, "inp", "out").add_column(0, "layer", pa.array(np.full(array.size, layer)))
            for layer, array in enumerate(weights)
        )
        return {"x": in_rows(x, "item", "unit"), "y": in_rows(y, "item", "unit", all_rows=True), "w": w}


def in_rows(array: Array, *names: str, all_rows: bool = False) -> pa.Table:
    """The numbers of an array that are not 0, or all, as rows."""
    places = np.nonzero(np.ones_like(array) if all_rows else array)
    order = np.random.default_rng(1).permutation(len(places[0]))
    return pa.table({**{n: p[order] for n, p in zip(names, places, strict=True)}, "val": array[places][order]})


def filled(table: pa.Table, *shape: int) -> Array:
    """Rows as an array, 0 where there is none."""
    *places, values = (column.to_numpy() for column in table.columns)
    array = np.zeros(shape)
    array[tuple(places)] = values
    return array


def arrays(task: Task, tables: Tables) -> tuple[Array, Array, list[Array]]:
    """The inputs, the outputs and the first weights as arrays."""
    inputs, hidden, outputs = task.units
    shapes = ((inputs, hidden), (hidden, outputs))
    layer = tables["w"]["layer"].to_numpy()
    weights = [filled(tables["w"].filter(layer == n).drop_columns("layer"), *shape) for n, shape in enumerate(shapes)]
    return filled(tables["x"], task.items, inputs), filled(tables["y"], task.items, outputs), weights


def one_statement(task: Task) -> str:
    """All iterations as a recursive query, whose backward pass is derived."""
    return f"""WITH RECURSIVE fit AS (
        SELECT 0 AS step, layer, inp, out, val FROM w
        UNION ALL (
        WITH {LAYERS.format(weights="fit")},
        loss AS (SELECT SUM(power(o.val - y.val, 2)) AS l FROM o JOIN y ON o.item = y.item AND o.unit = y.unit)
        SELECT step + 1, layer, inp, out, val - {task.rate} * grad((SELECT l FROM loss), val)
        FROM fit WHERE step < {task.iterations}))
    SELECT layer, inp, out, val FROM fit WHERE step = {task.iterations}"""


def step_by_hand(task: Task) -> str:
    """One iteration with the backward pass as a person writes it."""
    return f"""WITH {LAYERS.format(weights="w")},
        d AS (SELECT o.item, o.unit, 2 * (o.val - y.val) * o.val * (1 - o.val) AS val
            FROM o JOIN y ON o.item = y.item AND o.unit = y.unit),
        e AS (SELECT q.item, q.unit, q.s * h.val * (1 - h.val) AS val FROM (
                SELECT d.item, w.inp AS unit, SUM(d.val * w.val) AS s
                FROM d JOIN w ON w.layer = 1 AND w.out = d.unit GROUP BY d.item, w.inp) q
            JOIN h ON h.item = q.item AND h.unit = q.unit),
        g AS (SELECT 0 AS layer, x.unit AS inp, e.unit AS out, SUM(x.val * e.val) AS val
              FROM x JOIN e ON x.item = e.item GROUP BY x.unit, e.unit
            UNION ALL
              SELECT 1, h.unit, d.unit, SUM(h.val * d.val) FROM h JOIN d ON h.item = d.item GROUP BY h.unit, d.unit)
        SELECT w.layer, w.inp, w.out, w.val - {task.rate} * coalesce(g.val, 0) AS val
        FROM w LEFT JOIN g ON w.layer = g.layer AND w.inp = g.inp AND w.out = g.out"""


def session(tables: Tables) -> SessionContext:
    """A session on one thread with tables."""
    ctx = SessionContext(SessionConfig().with_target_partitions(1))
    for name, table in tables.items():
        ctx.register_record_batches(name, [table.to_batches(max_chunksize=8192)])
    return ctx


def in_sql(task: Task, tables: Tables) -> list[Array]:
    """The weights by one statement."""
    ctx = xql_ffi.register(session(tables))
    fitted = pa.Table.from_batches(ctx.sql(one_statement(task)).collect())
    return arrays(task, {**tables, "w": fitted})[2]


def by_hand(task: Task, tables: Tables) -> list[Array]:
    """The weights by a statement for each iteration."""
    ctx, statement, fitted = session(tables), step_by_hand(task), tables["w"]
    for _ in range(task.iterations):
        fitted = pa.Table.from_batches(ctx.sql(statement).collect())
        ctx.deregister_table("w")
        ctx.register_record_batches("w", [fitted.to_batches(max_chunksize=8192)])
    return arrays(task, {**tables, "w": fitted})[2]


def on_duckdb(task: Task, tables: Tables) -> list[Array]:
    """The weights by the text of the one statement on DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        for name, table in tables.items():
            connection.register(f"{name}_rows", table)
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        fitted = xql_ffi.sql(connection, one_statement(task)).to_arrow_table()
    return arrays(task, {**tables, "w": fitted})[2]


def in_numpy(task: Task, tables: Tables) -> list[Array]:
    """The weights by arrays, with a backward pass by hand."""
    x, y, (first, second) = arrays(task, tables)
    for _ in range(task.iterations):
        h = 1 / (1 + np.exp(-x @ first))
        o = 1 / (1 + np.exp(-h @ second))
        d = 2 * (o - y) * o * (1 - o)
        e = d @ second.T * h * (1 - h)
        first, second = first - task.rate * x.T @ e, second - task.rate * h.T @ d
    return [first, second]


def in_jax(task: Task, tables: Tables) -> list[Array]:
    """The weights by JAX, all iterations compiled as one program."""
    x, y, weights = arrays(task, tables)

    def loss(weights: list[Array]) -> Array:
        h = 1 / (1 + jnp.exp(-x @ weights[0]))
        return jnp.sum((1 / (1 + jnp.exp(-h @ weights[1])) - y) ** 2)

    def step(weights: list[Array], _: None) -> tuple[list[Array], None]:
        return [w - task.rate * g for w, g in zip(weights, jax.grad(loss)(weights), strict=True)], None

    jax.clear_caches()  # type: ignore[no-untyped-call]
    fitted = jax.jit(lambda weights: jax.lax.scan(step, weights, None, length=task.iterations)[0])(weights)
    return [np.asarray(array) for array in fitted]


Way = Callable[[Task, Tables], list[Array]]

TASKS = {
    "iris": (Task("Iris", 150, (4, 20, 3), 1000, 0.01), Task("Iris", 600, (4, 20, 3), 1000, 0.0025)),
    "mnist": (Task("MNIST", 2000, (784, 20, 10), 3, 0.001, 0.2),),
    "larger": (Task("MNIST", 2000, (784, 128, 10), 50, 0.001, 0.2, is_by_hand=False),),
}


def measure(task: Task, ways: Sequence[Way], rounds: int) -> dict[Way, float]:
    """The seconds of each way that is measured, all of which have to give the same weights."""
    tables = task.tables()
    expected = in_numpy(task, tables)
    least: dict[Way, float] = {}
    for _ in range(rounds):
        for way in ways:
            if (way is by_hand and not task.is_by_hand) or least.get(way, 0.0) > ONCE:
                continue
            start = time.process_time()
            weights = way(task, tables)
            least[way] = min(least.get(way, math.inf), time.process_time() - start)
            for mine, theirs in zip(weights, expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-8 * np.abs(theirs).max())
    return least


def main() -> int:
    """Measures all tasks."""
    if not ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--duckdb", action="store_true", help="also the text of the statement on DuckDB")
    options, results = parse(parser, rounds=1, only=["mnist"])
    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call]
    ways = [in_sql, by_hand, in_numpy, in_jax] + [on_duckdb] * options.duckdb
    names = ["SQL", "by hand", "NumPy", "JAX"] + ["DuckDB"] * options.duckdb
    table = results.table("training", *(Column(name, "s") for name in names))
    goals = []
    for name in options.only:
        for task in TASKS[name]:
            seconds = measure(task, ways, options.rounds)
            table.line(task.title, *map(seconds.get, ways))
            if name == "larger":
                goals.append((f"{task.title}, over JAX", seconds[in_sql] / seconds[in_jax], OVER_JAX))
    reached = results.goals(goals)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
