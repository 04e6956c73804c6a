"""Times how gradients by row that are made of sums of products grow: with rows, with width and with steps.

    build/fresh-55/bin/python bench/contraction_growth.py [--rounds 3]

The figures are processor time on one thread, from the text of a statement to its rows: a layer by the number of its
samples, a network by the number of its hidden units, and its training by the number of steps. Each line has twice the
size of the one before; `growth` is its time over that one's, 2 where the time grows in proportion. The exit status is 1
if a size takes more than 2.5 times the time of half of it.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import contraction
import nn2sql
from results import Column, parse

GROWTH = 2.5
Run = Callable[[], Any]


def of_gradient(case: contraction.Case) -> Run:
    """A run of the statement of a gradient."""
    return partial(contraction.found, contraction.session(case, "true"), case)


def of_training(task: nn2sql.Task) -> Run:
    """A run of a training."""
    return partial(nn2sql.in_sql, task, task.tables())


def doubled(least: int, times: int) -> Iterator[int]:
    """A number, twice it, and so on."""
    return (least << time for time in range(times))


def series(times: int, quick: bool) -> Iterator[tuple[str, Iterator[tuple[int, Run]]]]:
    """What grows, each with runs by size."""
    small = 10 if quick else 1
    for by in "xw":
        layers = ((n, of_gradient(contraction.layer(by, n, 16, 8))) for n in doubled(25_000 // small, times))
        yield f"layer, samples x 16 x 8, by {by}", layers
    images, pixels = 2_000 // small, 784 // small
    networks = ((n, of_gradient(contraction.network("w0", images, pixels, n, 10))) for n in doubled(64, times))
    yield f"network {images:,} x {pixels} - hidden units - 10, by w0", networks
    trained = partial(nn2sql.Task, "network", images, (pixels, 20, 10), rate=0.001, filling=0.2)
    yield f"{images:,} x {pixels} - 20 - 10, steps", ((n, of_training(trained(n))) for n in doubled(10, times))


def least(run: Run, rounds: int) -> float:
    """The processor time of the fastest of the rounds, in seconds."""
    found = math.inf
    for _ in range(rounds):
        start = time.process_time()
        run()
        found = min(found, time.process_time() - start)
    return found


def main() -> int:
    """Measures all sizes."""
    if not contraction.ONE_THREAD.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **contraction.ONE_THREAD})
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=5, help="sizes of each series")
    options, results = parse(parser, rounds=2, times=2)
    table = results.table("what, size", Column("time", "ms", 1), Column("growth"))
    goals = []
    for name, runs in series(options.times, options.quick):
        before, worst = None, 0.0
        for size, run in runs:
            seconds = least(run, options.rounds)
            growth = seconds / before if before else None
            table.line(f"{name}: {size:,}", 1e3 * seconds, growth)
            before, worst = seconds, max(worst, growth or 0.0)
        goals.append((f"{name}, worst growth", worst, GROWTH))
    reached = results.goals(goals)
    results.write()
    return int(not reached)


if __name__ == "__main__":
    sys.exit(main())
