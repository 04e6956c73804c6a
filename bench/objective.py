"""Times calls of an objective, as an optimizer makes them: parameters in, value and gradient out.

    build/fresh/bin/python bench/objective.py [--rows 1000] [--weights 30] [--rounds 200]

The loss is that of a logistic regression with a weight in each row of a table. The figures are those of value and
gradient:

- a call of the objective, which is planned once;
- executing the plan of the same statement, finished and fresh, with no planning;
- the statement, planned anew, as a client's loop without an objective sends it.

They take turns. The least and the median of the rounds are shown; goals are over the median. The exit status is 1 if a
goal is not reached.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
from datafusion import SessionContext
from results import Column, parse

import xql_ffi

OVER_EXECUTING, MILLISECONDS = 1.5, 2.0

LOSS = """
    WITH z AS (SELECT x.i, SUM(x.x * w.val) AS z FROM x JOIN w ON x.j = w.j GROUP BY x.i),
         loss AS (SELECT AVG(ln(1 + exp(z)) - y * z) AS l FROM z JOIN y ON z.i = y.i)"""
VALUE = f"{LOSS} SELECT l FROM loss"
BOTH = f"{LOSS} SELECT j, (SELECT l FROM loss) AS l, grad((SELECT l FROM loss), val) AS g FROM w"


def session(rows: int, weights: int) -> SessionContext:
    """Random features, labels and a start."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, weights))
    y = (x @ rng.normal(size=weights) + rng.normal(size=rows) > 0).astype(float)
    ctx = xql_ffi.register(SessionContext())
    i, j = (index.ravel() for index in np.indices(x.shape))
    ctx.from_arrow(pa.table({"i": i, "j": j, "x": x.ravel()}), name="x")
    ctx.from_arrow(pa.table({"i": np.arange(rows), "y": y}), name="y")
    ctx.from_arrow(pa.table({"j": np.arange(weights), "val": np.zeros(weights)}), name="w")
    return ctx


def seconds(work: Callable[[], object]) -> float:
    """What it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def executing(ctx: SessionContext) -> float:
    """Executing a plan that is finished and fresh."""
    plan = ctx.sql(BOTH).execution_plan()
    parts = range(plan.partition_count)
    return seconds(lambda: [batch.to_pyarrow() for part in parts for batch in ctx.execute(plan, part)])


def measured(rows: int, weights: int, rounds: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """The seconds of the three in each round."""
    ctx = session(rows, weights)
    objective = xql_ffi.objective(ctx, VALUE, "w.val")
    rng = np.random.default_rng(1)
    found = []
    for _ in range(rounds):
        x = rng.normal(size=weights)
        call = seconds(partial(objective, x))
        found.append((call, executing(ctx), seconds(lambda: ctx.sql(BOTH).collect())))
    return np.array(found)


def main() -> int:
    """Measures the three, and says which goals are reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--weights", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=200)
    options, results = parse(parser, rounds=20)
    found = measured(options.rows, options.weights, options.rounds)
    case = f"{options.rows:,} rows, {options.weights} weights"
    table = results.table(case, *(Column(way, "ms") for way in ("a call", "executing the plan", "the statement")))
    for name, times in (("least", found.min(axis=0)), ("median", np.median(found, axis=0))):
        table.line(name, *(1e3 * float(each) for each in times))
    call, executed, _ = (float(each) for each in np.median(found, axis=0))
    goals = [
        ("a call over executing its plan", call / executed, OVER_EXECUTING),
        ("a call, ms", 1e3 * call, MILLISECONDS),
    ]
    reached = results.goals(goals)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
