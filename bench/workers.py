"""Times the statements of examples/scale_out.py over more and more rows, on one machine and on several workers.

    python3 dev.py scale-out --help                      makes the environment, which is build/scale-out
    build/scale-out/bin/python bench/workers.py [--rows 100000 1000000] [--workers 1 2 4] [--rounds 3] [--folder FOLDER]
                                                [--of sail ballista]

The statements are one step of the calibration, a scan and an aggregate with the derivatives by four parameters, and
the gradient by row, by a temperature for each of 122 cells. They are run by

- the engine, in this process;
- the text of ``expand_sql``, on the module of ``datafusion`` from PyPI;
- the same text in Spark's SQL, on Sail with so many workers on this machine, with the client in the same process;
- Ballista with so many executors, each a process.

Each is a process of its own. The figures are those of the fastest round: seconds on the clock, and seconds of processor
time of the whole process with what it has started. All answers have to agree to 1e-9. The data are random, 16 Parquet
files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import SessionContext
from results import Column, parse

import xql_ffi

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import scale_out

FILES, CHUNK = 16, 1_000_000
START = {"a": 268.0, "b": -2.0, "c": -10.0, "d": 10.0}


def write(folder: Path, rows: int) -> None:
    """A dataset with the columns of the observations."""
    folder.mkdir()
    latitudes, levels = np.linspace(-90.0, 90.0, 61), np.array([850.0, 500.0])
    for file in range(FILES):
        rng = np.random.default_rng(file)
        writer = None
        left = rows // FILES
        while left > 0:
            count = min(left, CHUNK)
            left -= count
            latitude, level = rng.choice(latitudes, count), rng.choice(levels, count)
            s = np.sin(np.radians(latitude))
            columns = {
                "level": level,
                "latitude": latitude,
                "t": 270.0 - 25.0 * s**2 + rng.normal(size=count),
                "area": np.cos(np.radians(latitude)) * np.pi / 2,
                "p1": np.sqrt(3.0) * s,
                "p2": np.sqrt(5.0) * (3.0 * s**2 - 1.0) / 2.0,
                "h": np.where(level == levels[0], 1.0, -1.0),
            }
            table = scale_out.required(pa.table(columns))
            writer = writer or pq.ParquetWriter(folder / f"part-{file}.parquet", table.schema)
            writer.write_table(table)
        if writer:
            writer.close()


def tables(folder: Path) -> dict[str, pa.Table]:
    """The small tables, and the schema of the large one."""
    latitudes, levels = np.linspace(-90.0, 90.0, 61), np.array([850.0, 500.0])
    cells = {"level": np.repeat(levels, len(latitudes)), "latitude": np.tile(latitudes, len(levels))}
    zonal = scale_out.required(pa.table({**cells, "temperature": np.full(122, 250.0)}))
    schema = pq.read_schema(next(folder.iterdir()))
    return {"observations": schema.empty_table(), "zonal": zonal, "model": scale_out.model_at(0, START)}


class Measured(TypedDict):
    """The fastest of some rounds, and the answer."""

    clock: float
    processor: float
    answer: list[list[float]]


def processor_time() -> float:
    """The seconds that this process and those that it has started have computed."""
    own = psutil.Process()
    times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
    return float(sum(time.user + time.system for time in times))


def measured(run: Callable[[str], pa.Table], statements: dict[str, str], rounds: int) -> dict[str, Measured]:
    """What each of the statements takes."""
    found = {}
    for name, statement in statements.items():
        took = []
        for _ in range(rounds):
            clock, processor = time.perf_counter(), processor_time()
            answer = run(statement)
            took.append((time.perf_counter() - clock, processor_time() - processor))
        answer = answer.sort_by([(column, "ascending") for column in answer.column_names[:2]])
        clock, processor = map(min, zip(*took, strict=True))
        found[name] = Measured(
            clock=clock, processor=processor, answer=[column.to_pylist() for column in answer.columns]
        )
    return found


def one(path: str, folder: Path, rounds: int) -> dict[str, Measured]:
    """Measures the statements on one path: "engine", "text", or workers as "2 of sail"."""
    small = tables(folder)
    statements = {"step": scale_out.STEP, "by row": scale_out.ZONAL}
    count, _, of = path.partition(" of ")
    if of:
        with scale_out.ENGINES[of](int(count), folder.parent) as workers:
            workers.read("observations", folder)
            for name in ("zonal", "model"):
                workers.send(name, small[name])
            return measured(workers.run, statements, rounds)
    ctx = SessionContext()
    ctx.register_parquet("observations", str(folder))
    for name in ("zonal", "model"):
        ctx.from_arrow(small[name], name)
    if path == "engine":
        xql_ffi.register(ctx)
    else:
        schemas = {name: table.schema for name, table in small.items()}
        statements = {name: xql_ffi.expand_sql(sql, schemas) for name, sql in statements.items()}
    return measured(lambda sql: ctx.sql(sql).to_arrow_table(), statements, rounds)


def apart(path: str, folder: Path, rounds: int) -> dict[str, Measured]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", path, "--folder", str(folder), "--rounds", str(rounds)]
    env = {**os.environ, **({} if path == "engine" else {"XQL_FFI_ENGINE": "0"})}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Measured] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measures all sizes on all paths and prints a line of a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--of", choices=scale_out.ENGINES, nargs="+", default=["sail"], help="whose workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the data are written (default: a temporary folder)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments, results = parse(parser, rows=[100_000], workers=[2], rounds=2)
    if arguments.one:
        print(json.dumps(one(arguments.one, arguments.folder, arguments.rounds)))
        return
    paths = ["engine", "text", *(f"{count} of {of}" for of in arguments.of for count in arguments.workers)]
    columns = [Column(figure, "s") for name in paths for figure in (name, f"{name}, processor")]
    table = results.table("rows, statement", *columns)
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
            folder = Path(temporary) / "observations"
            write(folder, rows)
            found = {path: apart(path, folder, arguments.rounds) for path in paths}
        for statement, expected in found["engine"].items():
            figures: list[float] = []
            for path in paths:
                result = found[path][statement]
                np.testing.assert_allclose(result["answer"], expected["answer"], rtol=1e-9)
                figures += (result["clock"], result["processor"])
            table.line(f"{rows:,}, {statement}", *figures)
    results.write()


if __name__ == "__main__":
    main()
