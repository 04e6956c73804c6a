"""Times the training of a logistic regression over more and more rows: in one statement, by clients' loops, and in JAX.

    build/fresh-55/bin/python bench/training.py [--rows 1000 1000000] [--steps 20] [--peer-rows 10000] [--only WAY ...]

The model has four weights and a bias, and the data are a Parquet file of five float columns. All ways take the same
steps of gradient descent in float64 and use all cores. They are

- one recursive statement on the engine, with the parameters as columns of a CTE of one row: their tangents are carried
  up through the join and the average, which is forward mode through the plan (within the loss it is reverse mode);
- the same statement over the file itself, which each step reads again;
- one recursive statement in reverse mode, by `grad((SELECT l FROM loss), w1)` from the one row of the model;
- a loop of this program on the engine, a statement in forward mode for each step;
- a loop of a client of ddxdb, a statement for each step, in an environment of its own (see bench/rows.py);
- JAX, with all steps in one compiled function.

Each is a process of its own, which has imported its libraries. `loading` is from the file to where the data are
trained from, `first` the first training, which plans or compiles, and `again` the fastest of those after it: JAX has
compiled then, and DataFusion, which keeps no plan, plans again. `memory` is the peak of the process. The parameters of
all ways have to agree to 1e-9. Some ways take part up to a number of rows only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from results import Column, parse
from rows import OURS, PARTITIONS, collected, engine, peer_python, register

RATE = 1.0
WEIGHTS = ("w1", "w2", "w3", "w4")
PARAMETERS = ("b", *WEIGHTS)
LOSS = f"ln(1 + exp(-y * (b + {' + '.join(f'{w} * x{w[1:]}' for w in WEIGHTS)})))"
# Beyond these rows a way would take more than 10 GB, or minutes. A recursive query of DataFusion 54 keeps what it reads
# of a file in each step.
LIMITS = {"ddxdb": 1_000_000, "one statement, from the file": 1_000_000}
START = {name: [0.0] for name in PARAMETERS}

# Trains for all steps.
Training = Callable[[], list[float]]


class Measured(TypedDict):
    """What a way takes, in seconds and MB, and the parameters that it finds."""

    loading: float
    first: float
    again: float
    memory: float
    parameters: list[float]


def write(file: Path, rows: int) -> None:
    """Random data of a logistic model."""
    rng = np.random.default_rng(7)
    columns = {f"x{w[1:]}": rng.normal(size=rows) for w in WEIGHTS}
    margin = -0.2 + sum(slope * x for slope, x in zip((0.5, -1.0, 1.5, 0.3), columns.values(), strict=True))
    columns["y"] = np.where(rng.uniform(size=rows) < 1 / (1 + np.exp(-margin)), 1.0, -1.0)
    schema = pa.schema([pa.field(name, pa.float64(), nullable=False) for name in columns])
    pq.write_table(pa.table(columns, schema=schema), file)


# --------------------------------------------------------------------------------------------------------------------
# Statements
# --------------------------------------------------------------------------------------------------------------------


def forward(model: str, where: str = "") -> str:
    """A step by tangents that are carried up from the columns of the model."""
    keys = ", ".join(("step", *PARAMETERS))
    descent = ", ".join(f"{name} - {RATE} * grad(AVG(loss), {name}) AS {name}" for name in PARAMETERS)
    losses = f"WITH losses AS (SELECT {keys}, {LOSS} AS loss FROM {model} CROSS JOIN data {where})"
    return f"{losses} SELECT step + 1 AS step, {descent} FROM losses GROUP BY {keys}"


def reverse(model: str, loss: str, where: str = "") -> str:
    """A step by cotangents that are swept down from the average to the row of the model."""
    descent = ", ".join(f"{name} - {RATE} * grad({loss}, {name}) AS {name}" for name in PARAMETERS)
    average = f"WITH loss AS (SELECT AVG({LOSS}) AS l FROM {model} CROSS JOIN data)"
    return f"{average} SELECT step + 1 AS step, {descent} FROM {model} {where}"


def recursive(step: str, steps: int) -> str:
    """All steps in one statement, of the statement of a step that reads `model`."""
    start = ", ".join(f"0.0 AS {name}" for name in PARAMETERS)
    columns = ", ".join(PARAMETERS)
    return f"""
        WITH RECURSIVE model AS (SELECT 0 AS step, {start} UNION ALL SELECT * FROM ({step}) AS next)
        SELECT {columns} FROM model WHERE step = {steps}"""


def parameters_of(table: pa.Table) -> list[float]:
    """The parameters in the one row of a result."""
    return [table[name][0].as_py() for name in PARAMETERS]


def one_statement(ctx: Any, step: str, steps: int) -> Training:
    """Training by a recursive statement."""
    statement = recursive(step, steps)
    return lambda: parameters_of(collected(ctx, statement))


def loop(ctx: Any, step: str, steps: int) -> Training:
    """Training by a statement for each step, whose result is the model of the next one."""

    def train() -> list[float]:
        table = pa.table({"step": [0], **START})
        for _ in range(steps):
            register(ctx, "model", table)
            table = collected(ctx, step)
        return parameters_of(table)

    return train


# --------------------------------------------------------------------------------------------------------------------
# Ways: each loads a file, and returns what trains on it
# --------------------------------------------------------------------------------------------------------------------


def loaded(ctx: Any, file: Path) -> Any:
    """The session with the data in memory."""
    register(ctx, "data", pq.read_table(file))
    return ctx


def in_one_statement(file: Path, steps: int) -> Training:
    """Forward mode over the data in memory."""
    return one_statement(loaded(engine(), file), forward("model", f"WHERE step < {steps}"), steps)


def over_the_file(file: Path, steps: int) -> Training:
    """Forward mode, the file read by each step."""
    ctx = engine()
    ctx.register_parquet("data", str(file))
    return one_statement(ctx, forward("model", f"WHERE step < {steps}"), steps)


def in_reverse_mode(file: Path, steps: int) -> Training:
    """Reverse mode over the data in memory."""
    return one_statement(loaded(engine(), file), reverse("model", OURS, f"WHERE step < {steps}"), steps)


def client(file: Path, steps: int) -> Training:
    """A loop over statements in forward mode."""
    return loop(loaded(engine(), file), forward("model"), steps)


def ddxdb(file: Path, steps: int) -> Training:
    """A loop over statements of ddxdb, in its environment. The column `step` is the key, which it asks for."""
    from datafusion import SessionConfig
    from ddxdb import Context

    return loop(
        loaded(Context(SessionConfig().with_target_partitions(PARTITIONS)), file), reverse("model", "loss"), steps
    )


def compiled(file: Path, steps: int) -> Training:
    """All steps as a compiled function."""
    import jax

    jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]
    import jax.numpy as jnp

    table = pq.read_table(file)
    x = jnp.asarray(np.column_stack([table[f"x{w[1:]}"].to_numpy() for w in WEIGHTS]))
    y = jnp.asarray(table["y"].to_numpy())

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        return jnp.log(1 + jnp.exp(-y * (parameters[0] + x @ parameters[1:]))).mean()

    @jax.jit
    def train(parameters: Any, x: Any, y: Any) -> Any:
        return jax.lax.fori_loop(0, steps, lambda _, at: at - RATE * jax.grad(loss)(at, x, y), parameters)

    return lambda: [float(value) for value in train(jnp.zeros(len(PARAMETERS)), x, y)]


WAYS: dict[str, Callable[[Path, int], Training]] = {
    "one statement": in_one_statement,
    "one statement, from the file": over_the_file,
    "one statement, reverse mode": in_reverse_mode,
    "a client's loop": client,
    "ddxdb": ddxdb,
    "JAX": compiled,
}


def measure(way: str, file: Path, steps: int) -> Measured:
    """Loads and trains in this process, once and then again for a second or three times."""
    importlib.import_module({"JAX": "jax.numpy", "ddxdb": "ddxdb"}.get(way, "xql_ffi"))
    clock = time.perf_counter
    start = clock()
    train = WAYS[way](file, steps)
    loading = clock() - start
    start = clock()
    parameters = train()
    first = clock() - start
    times: list[float] = []
    while not times or (sum(times) < 1.0 and len(times) < 3):
        start = clock()
        train()
        times.append(clock() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return Measured(loading=loading, first=first, again=min(times), memory=peak, parameters=parameters)


def apart(way: str, python: Path | str, file: Path, steps: int) -> Measured:
    """The same in a process of its own."""
    command = [str(python), __file__, "--way", way, "--file", str(file), "--steps", str(steps)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: Measured = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures all ways over all sizes, and says which is the fastest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--peer", type=Path, help="the Python of an environment with ddxdb")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    ours = [way for way in WAYS if way not in ("ddxdb", "JAX")]
    options, results = parse(parser, rows=[1000, 100_000], only=ours)
    if options.way:
        print(json.dumps(measure(options.way, options.file, options.steps)))
        return
    columns = [Column(figure, "ms", 1) for figure in ("loading", "first", "again", "loading and first")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pythons = {way: Path(sys.executable) for way in options.only}
        if "ddxdb" in pythons:
            pythons["ddxdb"] = options.peer or peer_python(folder / "ddxdb")
        table = results.table(f"{options.steps} steps", *columns, Column("memory", "MB", 0))
        for rows in options.rows:
            file = folder / f"{rows}.parquet"
            write(file, rows)
            expected = None
            for way, python in pythons.items():
                if rows > LIMITS.get(way, rows):
                    continue
                found = apart(way, python, file, options.steps)
                expected = expected or found["parameters"]
                np.testing.assert_allclose(found["parameters"], expected, rtol=1e-9, err_msg=way)
                seconds = found["loading"], found["first"], found["again"], found["loading"] + found["first"]
                table.line(f"{rows:,} rows, {way}", *(1e3 * each for each in seconds), found["memory"])
            file.unlink()
    results.write()


if __name__ == "__main__":
    main()
