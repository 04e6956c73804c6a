"""Times derivatives of functions, as plain SQL, against the fastest that one would write by hand.

    build/fresh-55/bin/python bench/forms.py [--rows 10000000] [--rounds 9] [--powers] [--only NAME]

The functions are fifteen that people have, or with `--powers` the half, third and negative powers.

The derivative is the text of `xql_ffi.expand_sql`, and DataFusion executes it as it comes from PyPI. Each function is
timed twice: the derivatives alone, and beside the value of the function. Every round runs all statements of a function
one after the other, in turn forwards and backwards, so that whatever else the machine does meets each. The figures are
processor time: for each batch of 8,192 rows the least of the rounds, all batches together. DataFusion executes a
finished physical plan on one thread over batches in memory; JAX is compiled, in float64 and on one thread too, its
arrays are on the device before, and all rows are one batch.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

os.environ["XQL_FFI_ENGINE"] = "0"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import datafusion
import jax
import numpy as np
from forms_cases import FUNCTIONS, POWERS, Function, session, table
from numpy.typing import NDArray
from results import Column, parse

import xql_ffi

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]

# The largest part by which a derivative may differ from the one by hand, on values of an ordinary size.
TOLERANCE = 1e-9


def check(function: Function) -> None:
    """Makes sure that what is timed computes the same."""
    ctx = session(table(function, 10_000))
    for value in (False, True):
        ours, hand = (ctx.sql(sql).to_arrow_table() for sql in (function.ours(value=value), function.hand(value=value)))
        for name in ours.column_names:
            np.testing.assert_allclose(ours[name].to_numpy(), hand[name].to_numpy(), rtol=TOLERANCE, err_msg=name)


def least(jobs: dict[str, Callable[[], Iterable[object]]], rounds: int) -> dict[str, float]:
    """The processor time of each job: of each of its batches the least over the rounds."""
    best: dict[str, NDArray[np.float64]] = {}
    for number in range(rounds):
        for name, job in list(jobs.items())[:: -1 if number % 2 else 1]:
            batches = iter(job())
            times = [time.process_time()]
            while next(batches, None) is not None:
                times.append(time.process_time())
            found = np.diff(times)
            best[name] = np.minimum(best.get(name, found), found)
    return {name: float(times.sum()) for name, times in best.items()}


@dataclass(frozen=True)
class Figures:
    """What one function takes: nanoseconds a row of its derivatives, and ratios of processor times."""

    name: str
    row: float
    hand: float
    beside: float
    value: float
    jax: float


def measure(function: Function, rows: int, rounds: int) -> Figures:
    """Times one function."""
    check(function)
    data = table(function, rows)
    ctx = session(data)
    gradient = jax.jit(jax.vmap(jax.grad(function.jax, function.positions)))
    arrays = [jax.device_put(data[name].to_numpy()) for name in function.columns]

    def run(sql: str) -> Callable[[], Iterable[object]]:
        plan = ctx.sql(sql).execution_plan()
        return lambda: ctx.execute(plan, 0)

    def run_jax() -> Iterator[object]:
        yield jax.block_until_ready(gradient(*arrays))  # type: ignore[no-untyped-call]

    times = least(
        {
            "ours": run(function.ours(value=False)),
            "hand": run(function.hand(value=False)),
            "ours beside": run(function.ours(value=True)),
            "hand beside": run(function.hand(value=True)),
            "value": run(function.alone()),
            "jax": run_jax,
        },
        rounds,
    )
    return Figures(
        function.name,
        times["ours"] / rows * 1e9,
        times["ours"] / times["hand"],
        times["ours beside"] / times["hand beside"],
        times["ours"] / times["value"],
        times["ours"] / times["jax"],
    )


COLUMNS = (
    Column("derivative, a row", "ns", 1),
    Column("/ hand"),
    Column("beside the value, / hand"),
    Column("/ value"),
    Column("/ JAX"),
)


def main() -> None:
    """Measures the functions and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--powers", action="store_true", help="half, third and negative powers")
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    arguments, results = parse(parser, rows=200_000, rounds=5)
    if "xql_ffi_engine" in sys.modules and (status := xql_ffi.engine_status()).startswith("active"):
        sys.exit(f"this program is about DataFusion from PyPI: set XQL_FFI_ENGINE=0 (the engine is {status})")
    versions = f"datafusion {datafusion.__version__}, jax {jax.__version__}"
    print(f"{versions}, {arguments.rows:,} rows, {arguments.rounds} rounds")
    shown = results.table("function", *COLUMNS)
    found: list[tuple[float, ...]] = []
    for function in POWERS if arguments.powers else FUNCTIONS:
        if arguments.only in function.name:
            figures = measure(function, arguments.rows, arguments.rounds)
            gc.collect()
            found.append((figures.hand, figures.beside, figures.value, figures.jax))
            shown.line(figures.name, figures.row, *found[-1])
    shown.line("geometric mean", None, *map(statistics.geometric_mean, zip(*found, strict=True)))
    shown.line("worst", None, *map(max, zip(*found, strict=True)))
    results.write()


if __name__ == "__main__":
    main()
