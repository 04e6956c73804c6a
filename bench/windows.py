"""Times how gradients by row through ordered windows grow with the rows.

    build/fresh-55/bin/python bench/windows.py [--rounds 3] [--times 7]

The value is a sum of squares of a window's values, and the derivative by every row's cell is summed. The figures are
processor time on one thread, from the text of a statement to its rows. Each line has twice the rows of the one before;
`growth` is its time over that one's, 2 where the time grows in proportion, and `plain` is the time of the value alone.
The exit status is 1 if twice the rows take more than 2.2 times the time.
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
from results import Column, Results, parse

import xql_ffi

GROWTH = 2.2
# Of the order: `t` has ten rows that are equal on the average, and `p` a hundred rows.
WINDOWS = {
    "running sum": "SUM(x) OVER (ORDER BY id)",
    "sum to the end": "SUM(x) OVER (ORDER BY id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)",
    "sum of 100 rows": "SUM(x) OVER (ORDER BY id ROWS BETWEEN 99 PRECEDING AND CURRENT ROW)",
    "sum of half of the rows": "SUM(x) OVER (ORDER BY id ROWS BETWEEN {half} PRECEDING AND CURRENT ROW)",
    "mean around, falling": "AVG(x) OVER (ORDER BY id DESC ROWS BETWEEN 50 PRECEDING AND 50 FOLLOWING)",
    "running sum, equal rows": "SUM(x) OVER (ORDER BY t)",
    "mean of a range": "AVG(x) OVER (ORDER BY t RANGE BETWEEN 20 PRECEDING AND 5 FOLLOWING)",
    "mean of groups": "AVG(x) OVER (ORDER BY t GROUPS BETWEEN 3 PRECEDING AND 1 PRECEDING)",
    "running sum by partitions": "SUM(x) OVER (PARTITION BY p ORDER BY id)",
    "running mean, filtered": "AVG(x) FILTER (WHERE id % 3 > 0) OVER (ORDER BY id)",
    "lag": "LAG(x, 3, 0.5) OVER (ORDER BY id)",
    "lead": "LEAD(x) OVER (PARTITION BY p ORDER BY id)",
    "first value": "FIRST_VALUE(x) OVER (ORDER BY id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "first value of all": "FIRST_VALUE(x) OVER (ORDER BY id)",
    "last value": "LAST_VALUE(x) OVER (ORDER BY t)",
    "third value": "NTH_VALUE(x, 3) OVER (ORDER BY id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)",
    "running maximum": "MAX(x) OVER (ORDER BY id)",
    "minimum of 100 rows": "MIN(x) OVER (ORDER BY id ROWS BETWEEN 99 PRECEDING AND CURRENT ROW)",
}


def statements(window: str) -> tuple[str, str]:
    """The statement of a value, and the one of its derivatives."""
    value = f"WITH s AS (SELECT {window} AS s FROM r), l AS (SELECT SUM(s * s) AS l FROM s)"
    return f"{value} SELECT l FROM l", f"{value} SELECT SUM(d) FROM (SELECT grad((SELECT l FROM l), x) AS d FROM r)"


def table(rows: int) -> pa.Table:
    """Rows in no order."""
    draw = np.random.default_rng(rows)
    ids = draw.permutation(rows)
    columns = {"id": ids, "t": ids // 10, "p": ids // 100, "x": draw.standard_normal(rows)}
    return pa.table(columns)


def seconds(ctx: SessionContext, sql: str, rounds: int) -> float:
    """The processor time of the fastest of the rounds."""
    found = math.inf
    for _ in range(rounds):
        start = time.process_time()
        ctx.sql(sql).collect()
        found = min(found, time.process_time() - start)
    return found


def measure(options: argparse.Namespace, results: Results) -> bool:
    """The figures of all windows and sizes, and whether all grow as they should."""
    lines = results.table("window, rows", Column("time", "ms", 1), Column("plain", "ms", 1), Column("growth"))
    sizes = [options.rows << doubling for doubling in range(options.times)]
    contexts = []
    for rows in sizes:
        ctx = xql_ffi.register(SessionContext())
        ctx.sql("SET datafusion.execution.target_partitions = 1").collect()
        ctx.register_record_batches("r", [table(rows).to_batches()])
        contexts.append(ctx)
    goals = []
    for name, window in WINDOWS.items():
        if options.only and name not in options.only:
            continue
        before, worst = None, 0.0
        for rows, ctx in zip(sizes, contexts, strict=True):
            plain, gradient = (
                seconds(ctx, sql, options.rounds) for sql in statements(window.replace("{half}", str(rows // 2)))
            )
            growth = gradient / before if before else None
            lines.line(f"{name}: {rows:,}", 1e3 * gradient, 1e3 * plain, growth)
            before, worst = gradient, max(worst, growth or 0.0)
        goals.append((f"{name}, worst growth", worst, GROWTH))
    return bool(results.goals(goals))


def main() -> int:
    """Measures all sizes."""
    if not contraction.ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **contraction.ONE_THREAD})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=15_625, help="rows of the smallest size")
    parser.add_argument("--times", type=int, default=7, help="sizes of each window")
    parser.add_argument("--only", nargs="*", choices=WINDOWS, metavar="WINDOW", help="these windows alone")
    options, results = parse(parser, rounds=2, rows=10_000, times=2)
    reached = measure(options, results)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
