"""Times derivatives over a Parquet file, from the file to an Arrow table of the results, by the engine and by JAX.

    build/fresh-55/bin/python bench/from_file.py [--rows 10000000] [--rounds 3] [--only NAME]

Both use all cores. The engine is given the path of the file and a statement with `grad`. JAX is given the columns as
pyarrow reads them, and its results are made an Arrow table again. `first` has planning or compiling in it, `again` is
the fastest of the rounds after it: JAX has compiled then, and DataFusion plans again. Times are those of the clock.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import SessionConfig, SessionContext
from forms_cases import FUNCTIONS, Function, table
from results import Column, parse

import xql_ffi

CASES = ("saturation vapour pressure", "damped oscillation", "logistic loss, 8 weights", "Planck spectrum")
TOLERANCE = 1e-9

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


def by_engine(function: Function, file: Path) -> pa.Table:
    """The derivatives as columns `c0`, `c1`, ..."""
    ctx = xql_ffi.register(SessionContext(SessionConfig()))
    ctx.register_parquet("t", str(file))
    return ctx.sql(function.called(value=False)).to_arrow_table()


def by_jax(function: Function) -> Callable[[Path], pa.Table]:
    """The same by a function that is compiled when it is called first."""
    gradient = jax.jit(jax.vmap(jax.grad(function.jax, function.positions)))

    def run(file: Path) -> pa.Table:
        data = pq.read_table(file)
        derivatives = gradient(*(data[name].to_numpy() for name in function.columns))
        return pa.table({f"c{i}": np.asarray(derivative) for i, derivative in enumerate(derivatives)})

    return run


def timed(run: Callable[[], pa.Table], rounds: int) -> tuple[float, float, pa.Table]:
    """Seconds of the first run, those of the fastest after it, and what it gives."""
    times = []
    for _ in range(1 + rounds):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return times[0], min(times[1:]), result


def main() -> None:
    """Prints a line for each function."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="functions whose name has this in it")
    options, results = parse(parser, rows=200_000)
    times = [Column(figure, "ms", 0) for figure in ("engine, first", "engine, again", "JAX, first", "JAX, again")]
    shown = results.table("from a file", *times, Column("engine / JAX, first"), Column("engine / JAX, again"))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for function in FUNCTIONS:
            if function.name not in CASES or options.only not in function.name:
                continue
            file = Path(folder) / "data.parquet"
            pq.write_table(table(function, options.rows), file)
            first, again, ours = timed(lambda: by_engine(function, file), options.rounds)  # noqa: B023
            jax_run = by_jax(function)
            jax_first, jax_again, theirs = timed(lambda: jax_run(file), options.rounds)  # noqa: B023
            for name in ours.column_names:
                # Partitions of the file come in any order.
                a, b = np.sort(ours[name].to_numpy()), np.sort(theirs[name].to_numpy())
                np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
            found.append((first / jax_first, again / jax_again))
            shown.line(function.name, *(1e3 * s for s in (first, again, jax_first, jax_again)), *found[-1])
    shown.line("geometric mean", *[None] * 4, *map(statistics.geometric_mean, zip(*found, strict=True)))
    results.write()


if __name__ == "__main__":
    main()
