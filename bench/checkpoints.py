"""Measures memory and time of the gradient through many steps of a field, by how many iterations are kept.

    build/fresh-55/bin/python bench/checkpoints.py [--cells 10000] [--steps 1000] [--kept 0 100 30 10 3 1]

The field is one of cells on a circle, each of which takes what it and its two neighbours give in every step, and the
value is how far its cells are from zero after the last one. Each number of iterations that are kept
(`SET xql.checkpoints`, 0 for all) runs in a process of its own, in one partition. The memory is what the gradient adds
to the most that the process has held before, when it had the value alone. The seconds are those of the processor. The
gradients have to be equal to the last bit. The exit status is 1 if a gradient with ten iterations or more takes more
than three times the time of that with all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
from results import Column, parse

# With ten iterations or more.
SLOWER, FROM = 3.0, 10


@dataclass(frozen=True)
class Run:
    """What one process has found: seconds, memory in MB, and a digest of the gradient."""

    value: float
    gradient: float
    before: float
    added: float
    digest: str


def peak() -> float:
    """The most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def run(cells: int, steps: int, kept: int) -> Run:
    """The value and its gradient in this process."""
    from datafusion import SessionConfig, SessionContext

    import xql_ffi

    ctx = xql_ffi.register(SessionContext(SessionConfig().with_target_partitions(1)))
    numbers = np.arange(cells)
    weights = {0: 0.9, 1: 0.3, -1: -0.2}
    stencil = {
        "cell": np.tile(numbers, len(weights)),
        "neighbour": np.concatenate([(numbers + shift) % cells for shift in weights]),
        "weight": np.repeat(list(weights.values()), cells),
    }
    ctx.from_arrow(pa.table(stencil), name="stencil")
    ctx.from_arrow(pa.table({"cell": numbers, "val": np.sin(0.37 * numbers)}), name="field")
    model = f"""WITH RECURSIVE m AS (
            SELECT 0 AS step, cell, val FROM field
            UNION ALL
            SELECT step + 1, s.cell, SUM(s.weight * sin(m.val)) FROM m JOIN stencil s ON s.neighbour = m.cell
            WHERE step < {steps} GROUP BY step, s.cell),
        loss AS (SELECT SUM(val * val) AS l FROM m WHERE step = {steps})"""
    clock = time.process_time
    start = clock()
    ctx.sql(f"{model} SELECT l FROM loss").collect()
    value, before = clock() - start, peak()
    ctx.sql(f"SET xql.checkpoints = {kept}").collect()
    start = clock()
    table = ctx.sql(f"{model} SELECT cell, grad((SELECT l FROM loss), val) AS d FROM field").to_arrow_table()
    gradient = clock() - start
    slopes = table.sort_by("cell")["d"].to_numpy()
    return Run(value, gradient, before, peak() - before, hashlib.sha256(slopes.tobytes()).hexdigest())


def measured(cells: int, steps: int, kept: int) -> Run:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--alone", *map(str, (cells, steps, kept))]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return Run(**json.loads(output))


def main() -> int:
    """Measures all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--kept", type=int, nargs="+", default=[0, 100, 30, 10, 3, 1])
    parser.add_argument("--alone", type=int, nargs=3, help=argparse.SUPPRESS)
    options, results = parse(parser, cells=1000, steps=50, kept=[0, 10, 1])
    if options.alone:
        print(json.dumps(asdict(run(*options.alone))))
        return 0
    columns = Column("memory", "MB", 0), Column("value", "s", 1), Column("gradient", "s", 1), Column("over all kept")
    table = results.table("iterations kept", *columns)
    found: dict[int, Run] = {}
    for kept in options.kept:
        case = found[kept] = measured(options.cells, options.steps, kept)
        first = found[options.kept[0]]
        table.line(f"{kept or 'all'}", case.added, case.value, case.gradient, case.gradient / first.gradient)
    results.write()
    if len({case.digest for case in found.values()}) > 1:
        print("the gradients are not equal")
        return 1
    return int(any(case.gradient > SLOWER * first.gradient for kept, case in found.items() if kept >= FROM))


if __name__ == "__main__":
    sys.exit(main())
