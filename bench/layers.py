"""Times models of many layers by their depth: a GPT as CTEs, and random graphs of CTEs that read several others.

    build/fresh-55/bin/python bench/layers.py [--layers 1 2 4 8] [--graphs 10 20 40 80] [--rounds 3]

Seconds of processor time, planned and run, and how often that of half the depth: the gradient by one of the tables,
those by all of them at once (`xql_ffi.gradients`), the first call of an objective of all of them and one of the later
ones, its first Hessian times a vector, and a step that updates all tables: by a statement for each, and prepared. Of a
graph, the gradient by one of its two tables. Models are those of `tests/depth`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
from results import Column, parse, seconds

import xql_ffi

sys.path.append(str(Path(__file__).parent.parent / "tests"))
from depth import gpt, graphs
from support.sessions import session

SEED = 2026


def of_gpt(layers: int) -> dict[str, float]:
    """The figures of a GPT, by what is done."""
    arrays = gpt.weights(layers)
    ctx = session(gpt.tables(arrays))
    by = [f"{name}.val" for name in arrays]
    loss = gpt.statement(layers, "SELECT l FROM loss")
    one = gpt.statement(layers, "SELECT i, j, grad((SELECT l FROM loss), val) AS d FROM wq_0")
    found = {"by one table": seconds(lambda: ctx.sql(one).collect())}
    found["by all tables"] = seconds(
        lambda: [frame.collect() for frame in xql_ffi.gradients(ctx, loss, by).by.values()]
    )
    objective = xql_ffi.objective(ctx, loss, by)
    at = np.asarray(objective.start)
    found["objective, first call"] = seconds(lambda: objective(at))
    found["objective, a step"] = seconds(lambda: objective(at))
    found["hvp, first call"] = seconds(lambda: objective.hvp(at, at))
    updates = {
        name: gpt.statement(layers, f"SELECT {keys}, val - 0.01 * grad((SELECT l FROM loss), val) AS val FROM {name}")
        for name, keys in ((name, "i, j" if array.ndim > 1 else "j") for name, array in arrays.items())
    }
    found["a step by statements"] = seconds(lambda: [ctx.sql(update).collect() for update in updates.values()])
    prepared: list[xql_ffi.Prepared] = []
    found["prepare"] = seconds(lambda: prepared.append(xql_ffi.prepare(ctx, updates)))
    found["a step prepared, first"] = seconds(prepared[0])
    found["a step prepared"] = seconds(prepared[0], 3)
    return found


def of_graph(nodes: int) -> dict[str, float]:
    """The figure of a random graph of CTEs."""
    graph = graphs.graph(nodes, SEED)
    draw = np.random.default_rng(SEED).standard_normal
    i, j = np.indices((graphs.ROWS, graphs.ROWS))
    m = {"i": i.ravel(), "j": j.ravel(), "val": draw(i.size) / 2}
    ctx = session({"w": pa.table({"i": np.arange(graphs.ROWS), "val": draw(graphs.ROWS)}), "m": pa.table(m)})
    queries = ", ".join(f"{name} AS ({query})" for name, query in graphs.queries(graph).items())
    statement = f"WITH {queries} SELECT i, grad((SELECT l FROM loss), val) AS d FROM w"
    return {"by one table": seconds(lambda: ctx.sql(statement).collect())}


def main() -> None:
    """Prints a line for each depth and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--graphs", type=int, nargs="*", default=[10, 20, 40, 80])
    parser.add_argument("--rounds", type=int, default=3)
    options, results = parse(parser, layers=[1, 2], graphs=[10, 20], rounds=1)
    table = results.table("model", Column("takes", "s", 2), Column("over half the depth", "", 2))
    for name, depths, measure in (
        ("GPT, {} layers", options.layers, of_gpt),
        ("graph of {} CTEs", options.graphs, of_graph),
    ):
        before: dict[str, float] = {}
        for depth in depths:
            rounds = [measure(depth) for _ in range(options.rounds)]
            best = {what: min(found[what] for found in rounds) for what in rounds[0]}
            for what, fewest in best.items():
                ratio = fewest / before[what] if what in before else None
                table.line(f"{name.format(depth)}, {what}", fewest, ratio)
            before = best
    results.write()


if __name__ == "__main__":
    main()
