"""Times the gradient of a recursive query by few parameters: in reverse mode by row, and forward, with the row.

    build/fresh-55/bin/python bench/likelihood.py [--points 100 300 1000] [--rounds 5]

The value is the likelihood of a time series whose variance follows from that of the point before (GARCH), and has three
parameters, the columns of one row. They are read in every iteration, and differentiated by row; or they are columns of
the recursive query, which hands them on, and each has a tangent beside the row. The figures are processor time on one
thread, from the text of a statement to its row, the fastest of the rounds. Both gradients have to agree to 1e-9.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time

import contraction
import numpy as np
import pyarrow as pa
from datafusion import SessionContext
from results import Column, parse

import xql_ffi

STEP = "w + a * e * e + b * h AS h, l + ln(h) + e * e / h AS l"
START = "CAST(0 AS BIGINT) AS t, CAST(1 AS DOUBLE) AS h, CAST(0 AS DOUBLE) AS l"


def statements(points: int) -> dict[str, str]:
    """The value and its gradient in both ways."""
    read = f"""WITH RECURSIVE g AS (SELECT {START} UNION ALL
            SELECT g.t + 1, {STEP} FROM p CROSS JOIN g JOIN y ON y.t = g.t WHERE g.t < {points}),
        loss AS (SELECT l FROM g WHERE t = {points})"""
    handed_on = f"""WITH RECURSIVE g AS (SELECT {START}, w, a, b FROM p UNION ALL
            SELECT g.t + 1, {STEP}, w, a, b FROM g JOIN y ON y.t = g.t WHERE g.t < {points})"""
    by_row = ", ".join(f"grad((SELECT l FROM loss), {name}) AS {name}" for name in "wab")
    forward = ", ".join(f"grad(l, {name}) AS {name}" for name in "wab")
    return {
        # DataFusion 54 removes what is not read outside.
        "value": f"{handed_on} SELECT * FROM g WHERE t = {points}",
        "by row": f"{read} SELECT {by_row} FROM p",
        "forward": f"{handed_on} SELECT {forward} FROM g WHERE t = {points}",
    }


def session(points: int) -> SessionContext:
    """A session with a time series and the parameters."""
    ctx = xql_ffi.register(SessionContext())
    ctx.sql("SET datafusion.execution.target_partitions = 1").collect()
    series = pa.table({"t": np.arange(points), "e": np.random.default_rng(1).standard_normal(points)})
    ctx.from_arrow(series, name="y")
    ctx.from_pydict({"w": [0.1], "a": [0.1], "b": [0.8]}, name="p")
    return ctx


def timed(ctx: SessionContext, statement: str, rounds: int) -> tuple[float, dict[str, float]]:
    """The processor time of the fastest of the rounds, and the row."""
    best, row = math.inf, {}
    for _ in range(rounds):
        start = time.process_time()
        [row] = ctx.sql(statement).to_pylist()
        best = min(best, time.process_time() - start)
    return best, row


def main() -> int:
    """Measures all numbers of points."""
    if not contraction.ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **contraction.ONE_THREAD})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="*", default=[100, 300, 1000])
    parser.add_argument("--rounds", type=int, default=5)
    options, results = parse(parser, points=[100, 300], rounds=2)
    columns = [Column(name, "ms", 1) for name in ("value", "by row", "forward")]
    table = results.table("points", *columns, Column("by row over forward"))
    for points in options.points:
        ctx = session(points)
        found = {name: timed(ctx, statement, options.rounds) for name, statement in statements(points).items()}
        by_row, forward = found["by row"], found["forward"]
        for name, value in forward[1].items():
            np.testing.assert_allclose(by_row[1][name], value, rtol=1e-9, atol=1e-9)
        table.line(f"{points:,}", *(1e3 * seconds for seconds, _ in found.values()), by_row[0] / forward[0])
    results.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
