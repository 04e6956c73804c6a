"""The calibration of the main example and a gradient by row, on several workers that have nothing of xql-ffi.

    python examples/scale_out.py [--engine sail] [--workers N] [--rows ROWS] [--steps STEPS]
    python examples/scale_out.py --engine ballista [--kill STEP]

The workers are those of Sail, which get text, or of Ballista, which get plans (`engines.py`): neither has a derivative
in it. The observations of the main example become a partitioned Parquet dataset, which the workers read, and this
process too, for the same answers on a single machine:

1. Calibration. On a single machine it is one recursive query. Neither engine has these, so that a step is one
   statement here, and the loop is this script's: it sends the parameters of each step as a table of one row.
2. A gradient by row. The model is a temperature for each level and latitude, the rows of a table, and
   ``grad((SELECT ...), temperature)`` is the derivative of the loss over all observations by each of them.

With ``--kill`` one of the workers is killed while that step runs. If the engine says so, the script ends: the
parameters of the step before are all there is. If it computes the step on the others, all goes on.
The script ends with the largest relative difference of each, and with status 1 if one is more than rounding.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datafusion import SessionContext
from engines import Engine, ballista, sail
from era5_sensitivity import CALIBRATION, FEATURES, LEARNING_RATE, LOSS, PARAMETERS, STEPS, connect, open_era5
from tqdm.auto import tqdm

import xql_ffi

TOLERANCE = 1e-9
ENGINES = {"sail": sail, "ballista": ballista}

# One step of gradient descent, as in the recursive term of the main example.
STEP = f"""
    SELECT m.step + 1 AS step,
           m.a - {LEARNING_RATE} * AVG(grad({LOSS}, m.a)) AS a,
           m.b - {LEARNING_RATE} * AVG(grad({LOSS}, m.b)) AS b,
           m.c - {LEARNING_RATE} * AVG(grad({LOSS}, m.c)) AS c,
           m.d - {LEARNING_RATE} * AVG(grad({LOSS}, m.d)) AS d,
           AVG({LOSS}) AS loss
    FROM model AS m CROSS JOIN observations AS o
    GROUP BY m.step, m.a, m.b, m.c, m.d
"""

ZONAL = """
    WITH residuals AS (
        SELECT o.area, z.temperature - o.t AS residual
        FROM observations AS o JOIN zonal AS z ON o.level = z.level AND o.latitude = z.latitude)
    SELECT level, latitude, grad((SELECT AVG(area * power(residual, 2)) FROM residuals), temperature) AS slope
    FROM zonal
"""


def say(text: str) -> None:
    """Prints a line at once."""
    print(text, flush=True)


# --------------------------------------------------------------------------------------------------------------------
# The dataset
# --------------------------------------------------------------------------------------------------------------------


def required(table: pa.Table) -> pa.Table:
    """The same table, of which no column is nullable: its derivatives do not have to ask."""
    return table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))


def observations(rows: int | None) -> pa.Table:
    """The observations of the main example, evenly chosen if not all, with the cell and the member that each is of."""
    ctx = connect(open_era5())
    query = f"SELECT number, level, latitude, CAST(t AS DOUBLE) AS t, {FEATURES} FROM era5"
    table = ctx.sql(query).to_arrow_table().sort_by([(name, "ascending") for name in ("number", "latitude", "level")])
    count = len(table) if rows is None else min(rows, len(table))
    return required(table.take(np.arange(count) * len(table) // count))


def write(table: pa.Table, folder: Path) -> Path:
    """A folder with a file for each member of the ensemble."""
    path = folder / "observations"
    path.mkdir()
    for member in pc.unique(table["number"]).to_pylist():
        pq.write_table(table.filter(pc.field("number") == member), path / f"member-{member}.parquet")
    return path


def zonal_start(table: pa.Table) -> pa.Table:
    """The cells of level and latitude, all at one temperature."""
    cells = (
        table.group_by(["level", "latitude"]).aggregate([]).sort_by([("level", "ascending"), ("latitude", "ascending")])
    )
    return required(cells.append_column("temperature", pa.array(np.full(len(cells), 250.0))))


def model_at(step: int, parameters: dict[str, float]) -> pa.Table:
    """The parameters of one step as a table of one row."""
    return required(pa.table({"step": [step], **{name: [parameters[name]] for name in PARAMETERS}}))


# --------------------------------------------------------------------------------------------------------------------
# One machine
# --------------------------------------------------------------------------------------------------------------------


def on_one_machine(path: Path, zonal: pa.Table, steps: int) -> tuple[pa.Table, pa.Table]:
    """The calibration as one recursive query, up to a step, and the gradient by row, on the engine in this process."""
    ctx = xql_ffi.register(SessionContext())
    ctx.register_parquet("observations", str(path))
    ctx.from_arrow(zonal, "zonal")
    found = []
    for what, query in {"calibration, one recursive query": CALIBRATION, "gradient by row": ZONAL}.items():
        start = time.perf_counter()
        found.append(ctx.sql(query).to_arrow_table())
        say(f"  {what}: {time.perf_counter() - start:.2f} s")
    calibrated, slopes = found
    return calibrated.filter(pc.field("step") <= steps), slopes


# --------------------------------------------------------------------------------------------------------------------
# Several workers
# --------------------------------------------------------------------------------------------------------------------


class WorkerLostError(Exception):
    """What the engine says of a step in which a worker has been killed."""


def calibrated_by_steps(engine: Engine, steps: int, kill: int | None) -> pa.Table:
    """The parameters and the loss of every step, one statement for each step: a bar in a terminal, lines elsewhere."""
    parameters = {"a": 250.0, "b": 0.0, "c": 0.0, "d": 0.0}
    found = []
    for step in (bar := tqdm(range(steps + 1), desc="  calibration", unit="step", disable=None)):
        start = time.perf_counter()
        engine.send("model", model_at(step, parameters))
        if step == kill:
            say(f"  step {step:2d} of {steps}: a worker is killed")
            threading.Timer(0.01, engine.kill_worker).start()
        try:
            (row,) = engine.run(STEP).to_pylist()
        except Exception as error:
            if step != kill:
                raise
            raise WorkerLostError(f"{str(error).splitlines()[0]}\n  {step} steps are done") from error
        found.append({"step": step, **parameters, "loss": row["loss"]})
        if bar.disable:
            say(f"  step {step:2d} of {steps}: loss {row['loss']:10.6f} K2, {time.perf_counter() - start:.2f} s")
        bar.set_postfix_str(f"loss={row['loss']:.6f} K2", refresh=False)
        parameters = {name: row[name] for name in PARAMETERS}
    return pa.Table.from_pylist(found)


# --------------------------------------------------------------------------------------------------------------------
# Both
# --------------------------------------------------------------------------------------------------------------------


def difference(a: pa.Table, b: pa.Table, keys: list[str]) -> float:
    """The largest difference of two tables with the same keys, relative to the largest value of its column."""
    a, b = (table.sort_by([(key, "ascending") for key in keys]) for table in (a, b))
    if len(a) != len(b):
        return float("inf")
    largest = 0.0
    for name in a.column_names:
        left, right = (table[name].to_numpy().astype(np.float64) for table in (a, b))
        largest = max(largest, float(np.max(np.abs(left - right)) / (np.max(np.abs(left)) or 1.0)))
    return largest


def main() -> int:
    """Runs both on one machine and on the workers, and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=ENGINES, default="sail", help="whose workers (default: sail)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="workers (default: 2)")
    parser.add_argument("--rows", type=int, metavar="ROWS", help="observations (default: all 585,600)")
    parser.add_argument(
        "--steps", type=int, default=STEPS, metavar="STEPS", help=f"steps of descent (default: {STEPS})"
    )
    parser.add_argument("--kill", type=int, metavar="STEP", help="the step in which a worker is killed")
    arguments = parser.parse_args()
    if arguments.kill is not None and arguments.engine == "sail":
        parser.error("--kill takes --engine ballista: the workers of Sail are threads of this process")
    # The client warns of each retry while the server starts.
    logging.getLogger("pyspark").setLevel(logging.ERROR)

    with tempfile.TemporaryDirectory() as folder:
        say("observations")
        table = observations(arguments.rows)
        path = write(table, Path(folder))
        zonal = zonal_start(table)
        say(f"  {len(table):,} rows in {len(list(path.iterdir()))} Parquet files, {len(zonal)} cells")

        say("one machine")
        calibrated, slopes = on_one_machine(path, zonal, arguments.steps)

        say(f"{arguments.workers} workers of {arguments.engine}")
        start = time.perf_counter()
        with ENGINES[arguments.engine](arguments.workers, Path(folder)) as engine:
            engine.read("observations", path)
            engine.send("zonal", zonal)
            say(f"  started: {time.perf_counter() - start:.2f} s")
            try:
                stepped = calibrated_by_steps(engine, arguments.steps, arguments.kill)
            except WorkerLostError as lost:
                say(f"  {lost}")
                return 0
            start = time.perf_counter()
            spread = engine.run(ZONAL)
            say(f"  gradient by row: {time.perf_counter() - start:.2f} s")

    differences = {
        "calibration": difference(calibrated, stepped, ["step"]),
        "gradient by row": difference(slopes, spread, ["level", "latitude"]),
    }
    say("largest relative difference between one machine and the workers")
    for what, found in differences.items():
        say(f"  {what}: {found:.1e}")
    return int(not max(differences.values()) <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
