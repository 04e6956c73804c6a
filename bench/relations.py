"""Times the gradient of an average loss beside the loss itself, both written through CTEs.

    build/fresh-55/bin/python bench/relations.py [--rows 300000] [--rounds 7] [--parameters 12]

The figures are the fastest of the rounds, of executing a finished physical plan on one thread over batches in memory.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext
from results import Column, parse

import xql_ffi


def session(rows: int, names: list[str]) -> SessionContext:
    """A session with the tables `data` and `params`."""
    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    rng = np.random.default_rng(11)
    columns = {f"x{i}": rng.normal(size=rows) for i in range(len(names))}
    columns["y"] = rng.uniform(size=rows)
    ctx.register_record_batches("data", [pa.table(columns).to_batches(max_chunksize=8192)])
    ctx.from_pydict({name: [0.02 * i] for i, name in enumerate(names)}, name="params")
    return ctx


def cases(names: list[str]) -> dict[str, tuple[str, str, str]]:
    """Statements with a gap, the loss, and the derivative with a gap for the parameter."""
    prediction = " + ".join(f"{name} * x{i}" for i, name in enumerate(names))
    model = f"WITH m AS (SELECT *, {prediction} AS pred FROM data CROSS JOIN params)"
    stages = f"""{model}, s AS (SELECT *, 1 / (1 + exp(-pred)) AS p FROM m),
        l AS (SELECT *, -(y * ln(p) + (1 - y) * ln(1 - p)) AS loss FROM s)"""
    square = "power(pred - y, 2)"
    return {
        "loss over a CTE": (f"{model} SELECT {{}} FROM m", f"AVG({square})", f"AVG(grad({square}, {{}}))"),
        "gradient of an average": (
            f"{model} SELECT {{}} FROM m GROUP BY {', '.join(names)}",
            f"AVG({square})",
            f"grad(AVG({square}), {{}})",
        ),
        "several stages": (f"{stages} SELECT {{}} FROM l", "AVG(loss)", "AVG(grad(loss, {}))"),
    }


def seconds(ctx: SessionContext, statement: str) -> float:
    """How long the planned statement is executed."""
    plan = ctx.sql(statement).execution_plan()
    start = time.perf_counter()
    for _ in ctx.execute(plan, 0):
        pass
    return time.perf_counter() - start


def main() -> None:
    """Measures all cases and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--parameters", type=int, default=12)
    arguments, results = parse(parser, rows=100_000, rounds=5)
    names = [f"w{i}" for i in range(arguments.parameters)]
    ctx = session(arguments.rows, names)
    table = results.table("case", Column("loss", "ms", 1), Column("gradient", "ms", 1), Column("ratio"))
    for name, (statement, loss, slope) in cases(names).items():
        gradient = ", ".join(slope.format(parameter) for parameter in names)
        statements = statement.format(loss), statement.format(gradient)
        # In turn, so that a busy moment of the machine meets both.
        rounds = [[seconds(ctx, each) for each in statements] for _ in range(arguments.rounds)]
        primal, derivatives = (min(times) for times in zip(*rounds, strict=True))
        table.line(name, primal * 1e3, derivatives * 1e3, derivatives / primal)
    results.write()


if __name__ == "__main__":
    main()
