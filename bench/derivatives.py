"""Times derivatives against the same written by hand, against their primal and against JAX.

    build/fresh-55/bin/python bench/derivatives.py [--rows 2000000] [--rounds 9]

Every round runs all ways of a case one after the other, so that whatever else the machine does meets each; the figures
are the fastest of the rounds. DataFusion executes a finished physical plan on one thread over batches in memory; JAX is
compiled, in float64 and on one thread too. Planning is timed on its own, from the text to the physical plan. Where
several derivatives are taken, all of them are in one statement, the primal with them.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
from forms_cases import FUNCTIONS, Function, logistic, session, table
from results import Column, parse

import xql_ffi

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


CASES = [*FUNCTIONS, logistic(32)]


def seconds(job: Callable[[], object]) -> float:
    """How long the job takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def fastest(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each job over the rounds."""
    best = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            best[name] = min(best[name], seconds(job))
    return best


def measure(function: Function, rows: int, rounds: int) -> list[float]:
    """The figures of a line of the table."""
    rows = max(8192, rows // len(function.columns))
    data = table(function, rows)
    ctx = xql_ffi.register(session(data))
    arrays = [data[name].to_numpy() for name in function.columns]
    jax_gradient = jax.jit(jax.vmap(jax.value_and_grad(function.jax, function.positions)))
    several = len(function.by_hand) > 1
    ours, hand, primal = function.called(value=several), function.hand(value=several), function.alone()

    def run(sql: str) -> Callable[[], object]:
        planned = ctx.sql(sql).execution_plan()
        return lambda: sum(1 for _ in ctx.execute(planned, 0))

    def plan(sql: str) -> Callable[[], object]:
        return lambda: ctx.sql(sql).execution_plan()

    run_times = fastest(
        {
            "ours": run(ours),
            "hand": run(hand),
            "primal": run(primal),
            "jax": lambda: jax.block_until_ready(jax_gradient(*arrays)),  # type: ignore[no-untyped-call]
        },
        rounds,
    )
    plan_times = fastest({"ours": plan(ours), "hand": plan(hand), "primal": plan(primal)}, rounds)
    return [
        run_times["ours"] / rows * 1e9,
        run_times["ours"] / run_times["hand"],
        run_times["ours"] / run_times["primal"],
        run_times["ours"] / run_times["jax"],
        plan_times["ours"] * 1e3,
        plan_times["ours"] / plan_times["hand"],
        plan_times["ours"] / plan_times["primal"],
    ]


COLUMNS = (
    Column("derivative, a row", "ns", 1),
    Column("/ hand"),
    Column("/ primal"),
    Column("/ JAX"),
    Column("planning", "ms", 1),
    Column("planning / hand"),
    Column("planning / primal"),
)


def main() -> None:
    """Measures all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000, help="values in the table of a case, over its columns")
    parser.add_argument("--rounds", type=int, default=9)
    arguments, results = parse(parser, rows=200_000, rounds=5)
    shown = results.table("case", *COLUMNS)
    for function in CASES:
        shown.line(function.name, *measure(function, arguments.rows, arguments.rounds))
    results.write()


if __name__ == "__main__":
    main()
